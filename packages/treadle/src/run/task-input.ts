import { open, stat } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import type { LoopOptions, UserBlock } from '@treadle/core';
import { binaryKindOf, imageTypeOf, isPdf } from '@treadle/tools';
import { CommandError } from '../command-line/command.ts';
import { decodeText, readProblem } from '../command-line/named-file.ts';
import { readStdin, type Io } from '../terminal/io.ts';
import { sizeText } from '../terminal/quantities.ts';

const MAX_TEXT_BYTES = 1_000_000;
const MAX_MEDIA_BYTES = 20_000_000;

/**
 * The task of a command line: a text, and files whose names follow an @. Without a text, the first file is the task, or standard
 * input if there is no file. `prompt`: the value of --prompt, with which `-` is one of the files.
 */
export async function readTask(words: readonly string[], io: Io, prompt?: string): Promise<LoopOptions['input']> {
  const texts = words.filter((word) => !isFileWord(word));
  const sendsInput = prompt !== undefined && texts[0] === '-';
  const [given, surplus] = prompt === undefined ? texts : [prompt, ...texts.slice(sendsInput ? 1 : 0)];
  if (surplus !== undefined) {
    throw new CommandError(
      `treadle run takes one task, but also got ${JSON.stringify(surplus)}. Put text with spaces in quotes, and @ before the ` +
        'name of a file.',
    );
  }
  const files: Attached[] = [];
  for (const word of words.filter(isFileWord)) files.push(await readAttached(word.slice(1), io));
  if (sendsInput) files.push({ name: 'standard input', block: { type: 'text', text: await readStdin(io) } });
  const isTask = given !== undefined && (given !== '-' || prompt !== undefined);
  const task =
    given === undefined && files.length > 0 ? taskOf(files.shift()!) : isTask ? given : await readText(io, given);
  if (task.trim() === '') throw new CommandError('The task is empty. Describe what to do: "treadle run \'…\'".');
  if (files.length === 0) return task.trim();
  return [{ role: 'user', content: [{ type: 'text', text: task.trim() }, ...files.map(attachedBlock)] }];
}

/**
 * The blocks of the files that a message names after an @, in the folder of the tools. A word that names no file is text.
 * Throws for a file that cannot be sent.
 */
export async function filesNamedIn(text: string, io: Pick<Io, 'cwd'>): Promise<readonly UserBlock[]> {
  const names = [...text.matchAll(/(?:^|\s)@([^\s@]+)/g)].map(([, name = '']) => name);
  const blocks: UserBlock[] = [];
  for (const name of new Set(names)) {
    const found = await fileNamed(name, io.cwd);
    if (found === undefined) continue;
    const { block } = await readAttached(found, io);
    blocks.push(attachedBlock({ name: found, block }));
  }
  return blocks;
}

/** The file that a word of a sentence names, which may end with it. Undefined: there is none. */
export async function fileNamed(name: string, cwd: string): Promise<string | undefined> {
  for (const one of [name, name.replace(/[.,;:!?)]+$/, '')]) {
    const isFile = await stat(resolve(cwd, one)).then(
      (found) => found.isFile(),
      () => false,
    );
    if (isFile) return one;
  }
  return undefined;
}

function isFileWord(word: string): boolean {
  return /^@\S/.test(word);
}

/** `given`: `-`, or undefined. */
async function readText(io: Io, given: string | undefined): Promise<string> {
  if (given === '-' || !io.stdin.isTTY) return readStdin(io);
  throw new CommandError('The task is missing. Give it in quotes, "treadle run \'…\'", or on standard input.');
}

function taskOf({ name, block }: Attached): string {
  if (block.type === 'text') return block.text;
  throw new CommandError(`The task is missing: ${name} is not a text. Add what to do with it in quotes.`);
}

/** What the value of a flag says, or the file that it names after an @. */
export async function textOrFile(value: string, io: Io): Promise<string> {
  if (!isFileWord(value)) return value;
  return readTextFile(value.slice(1), io, AT_HINT);
}

/** The text of a file that a flag names. `missingHint`: what to do if there is no such file. */
export async function readTextFile(file: string, io: Io, missingHint = ''): Promise<string> {
  const bytes = await readFileOf(file, io, missingHint);
  if (bytes.length <= MAX_TEXT_BYTES) return textOf(file, bytes);
  throw new CommandError(
    `${file} is too long (${sizeText(bytes.length)}). It can have at most ${sizeText(MAX_TEXT_BYTES)}.`,
  );
}

const AT_HINT = ' If the text itself starts with @, put a space before it.';

function textOf(file: string, bytes: Buffer): string {
  try {
    return decodeText(bytes);
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${readProblem(error)}. Convert it to UTF-8, or name another file.`);
  }
}

export interface Attached {
  readonly name: string;
  readonly block: UserBlock;
}

async function readAttached(file: string, io: Pick<Io, 'cwd'>): Promise<Attached> {
  const bytes = await readFileOf(file, io, AT_HINT);
  const name = basename(file);
  const mediaType = imageTypeOf(bytes) ?? (isPdf(bytes) ? 'application/pdf' : undefined);
  if (mediaType !== undefined) {
    const source = { type: 'data', data: bytes.toString('base64') } as const;
    return { name, block: { type: mediaType.startsWith('image/') ? 'image' : 'file', mediaType, name, source } };
  }
  if (bytes.includes(0)) {
    const kind = binaryKindOf(bytes) ?? 'binary data';
    throw new CommandError(`${file} is ${kind}. Only texts, images and PDFs can be given to the model.`);
  }
  if (bytes.length > MAX_TEXT_BYTES) {
    throw new CommandError(
      `${file} is too long for a message (${sizeText(bytes.length)}). Name it without @ in the task: the model can read parts ` +
        'of it with its tools.',
    );
  }
  return { name, block: { type: 'text', text: textOf(file, bytes) } };
}

async function readFileOf(file: string, io: Pick<Io, 'cwd'>, missingHint: string): Promise<Buffer> {
  try {
    const handle = await open(resolve(io.cwd, file));
    try {
      const { size } = await handle.stat();
      if (size > MAX_MEDIA_BYTES) throw new Error(`it is larger than ${sizeText(MAX_MEDIA_BYTES)}`);
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new CommandError(
      isMissing ? `There is no file ${file}.${missingHint}` : `${file} cannot be read: ${readProblem(error)}.`,
    );
  }
}

export function attachedBlock({ name, block }: Attached): UserBlock {
  if (block.type !== 'text') return block;
  return { type: 'text', text: `<file name=${JSON.stringify(name)}>\n${block.text.trimEnd()}\n</file>` };
}
