import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { textOf, type UserBlock } from '@treadle/core';
import type { CommandContext } from '../config/context.ts';
import { readProblem } from '../command-line/named-file.ts';
import { attachedBlock, fileNamed, filesNamedIn } from '../run/task-input.ts';
import { loadSkillsPackage } from '../skills/command-skills.ts';
import { oneLine } from '../terminal/printable.ts';
import type { CalledTool } from './conversation.ts';

/** A command of the folder: `.treadle/commands/NAME.md`, whose text is sent as a message. */
export interface OwnCommand {
  readonly name: string;
  readonly help: string;
  /** What it takes, as the help shows it. */
  readonly argument?: string;
  readonly template: string;
}

const FOLDER = '.treadle/commands';
const MAX_BYTES = 100_000;
const MAX_HELP = 80;

/** Read again each time, so that a file that was changed applies at once. */
export async function readOwnCommands({ folder, loaded }: Pick<CommandContext, 'folder' | 'loaded'>): Promise<{
  readonly commands: readonly OwnCommand[];
  readonly problems: readonly string[];
}> {
  const path = join(loaded.path === undefined ? folder : dirname(loaded.path), FOLDER);
  const names = await readdir(path).catch(() => []);
  const commands: OwnCommand[] = [];
  const problems: string[] = [];
  for (const file of names.filter((one) => one.endsWith('.md')).sort()) {
    const name = file.slice(0, -'.md'.length);
    try {
      if (!/^[a-z0-9-]+$/.test(name)) throw new Error('its name must have lower-case letters, digits and hyphens only');
      const { size } = await stat(join(path, file));
      if (size > MAX_BYTES) throw new Error('it is larger than 100 kB');
      commands.push(await parseCommand(name, await readFile(join(path, file), 'utf8')));
    } catch (error) {
      problems.push(`The command ${FOLDER}/${oneLine(file, MAX_HELP)} is not used: ${readProblem(error)}.`);
    }
  }
  return { commands, problems };
}

async function parseCommand(name: string, text: string): Promise<OwnCommand> {
  const { keys, body } = text.startsWith('---') ? await parseFront(text) : { keys: undefined, body: text };
  const template = body.trim();
  if (template === '') throw new Error('it is empty');
  const [first = ''] = template.split('\n');
  const value = (key: string): string | undefined => {
    const found: unknown = keys?.get(key);
    return typeof found === 'string' ? oneLine(found, MAX_HELP) : undefined;
  };
  const argument = value('argument-hint') ?? (/\$(ARGUMENTS|[1-9])/.test(template) ? '[ARGUMENTS]' : undefined);
  return { name, help: value('description') ?? oneLine(first, MAX_HELP), template, ...(argument && { argument }) };
}

async function parseFront(
  text: string,
): Promise<{ readonly keys: { get(key: string): unknown } | undefined; readonly body: string }> {
  // The parser takes time to load.
  const { frontMatter, yamlTable } = await loadSkillsPackage();
  const parts = frontMatter(text);
  if (!parts) return { keys: undefined, body: text };
  const table = yamlTable(parts.front, { what: 'The front matter', linesBefore: 1 });
  if (table.type === 'problem') throw new Error(`line ${table.line}: ${table.message}`);
  return { keys: table.document, body: parts.body };
}

/**
 * The message that a command stands for: `$ARGUMENTS` and `$1` to `$9` are what the user has given, !`command` is the output of a
 * command, and `@file` sends a file. Commands run, and files are read, under the policy. What the user has given is not expanded
 * again. Undefined: a call was stopped.
 */
export async function expandCommand(
  { template }: OwnCommand,
  argument: string,
  {
    folder,
    callTool,
    writeLine,
  }: {
    readonly folder: string;
    readonly callTool: (name: string, input: object) => Promise<CalledTool | undefined>;
    readonly writeLine: (line: string) => void;
  },
): Promise<{ readonly text: string; readonly blocks: readonly UserBlock[] } | undefined> {
  const words = wordsOf(argument);
  const given = (text: string): string =>
    text.replaceAll(/\$(?:ARGUMENTS|([1-9]))/g, (_, place?: string) =>
      place === undefined ? argument : (words[Number(place) - 1] ?? ''),
    );
  const blocks: UserBlock[] = [];
  let text = '';
  let end = 0;
  for (const found of template.matchAll(/!`([^`\n]+)`|(?<![^\s(])@([^\s@]+)/g)) {
    const [whole, command, path] = found;
    text += given(template.slice(end, found.index));
    end = found.index + whole.length;
    if (command !== undefined) {
      const called = await callTool('bash', { command: given(command) });
      if (called?.ending.isInterrupted) return undefined;
      text += called ? textOf(called.content).trimEnd() : '(There is no tool bash.)';
      continue;
    }
    const name = given(path!);
    text += `@${name}`;
    const file = await fileNamed(name, folder);
    if (file === undefined) continue;
    const called = await callTool('read', { path: file });
    if (called?.ending.isInterrupted) return undefined;
    if (!called || called.isError) writeLine(`@${file} is not sent: it could not be read.`);
    else blocks.push(...sentBlocks(file, called));
  }
  text += given(template.slice(end));
  if (argument !== '' && !/\$(ARGUMENTS|[1-9])/.test(template)) text += `\n\n${argument}`;
  return { text, blocks: [...blocks, ...(await filesNamedIn(argument, { cwd: folder }))] };
}

/** Words in quotes are one. */
function wordsOf(argument: string): readonly string[] {
  return [...argument.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(([, double, single, plain]) => {
    return double ?? single ?? plain ?? '';
  });
}

function sentBlocks(name: string, { content }: CalledTool): readonly UserBlock[] {
  return content.flatMap((block) => (block.type === 'error' ? [] : attachedBlock({ name, block })));
}
