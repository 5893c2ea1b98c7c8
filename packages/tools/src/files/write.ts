import { tool, type Tool, type ToolContext, type Verification } from '@treadle/core';
import type { Ops, WriteOptions } from '../ops.ts';
import { ToolError } from '../tool-error.ts';
import { timeoutFor, timeoutParameter } from '../call-limits.ts';
import { count, linesIn, shownName } from './listing.ts';
import { fileKey, readFiles, versionOf } from './read-files.ts';
import { encodeText, MAX_WHOLE_BYTES, PLAIN_FORM, readBytes, textFormOf } from './text-file.ts';
import { demandStorable, isDamagedText } from './whole-text.ts';
import { quoted, UnreachableError, workspace, type Located, type Workspace } from './workspace.ts';

interface WriteInput {
  readonly path: string;
  readonly content: string;
  readonly overwrite?: boolean;
}

export function writeTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'write',
    description:
      'Write a whole file: create it, with the folders above it, or replace all of its content. Use edit to change parts of ' +
      'a file. A file that exists is replaced only if you have read it before and nobody has changed it since. A ' +
      'replaced file keeps its mode, encoding (UTF-8 or UTF-16) and line ends. Returns how many lines and bytes were written.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Path relative to the working folder' },
        content: { type: 'string', description: 'The whole content of the file' },
        overwrite: {
          type: 'boolean',
          description: 'Replace the file even if you have not read it, or it has changed since; default false',
        },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['path', 'content'],
      additionalProperties: false,
    },
    effect: 'once',
    touches: ({ path, content }) => [{ type: 'write', path: String(path), lines: linesIn(String(content)) }],
    permissions: ['file_write'],
    timeoutMs: timeoutFor('files'),
    remembers: ({ path }) => [fileKey(space, path)],
    execute: (input, context) => write(space, input as unknown as WriteInput, context),
    verify: (input, context) => verify(space, input as unknown as WriteInput, context),
  });
}

/** What is at the path. */
interface Found {
  readonly file: Located;
  /** Only the beginning if the file is too large. */
  readonly bytes: Uint8Array;
  readonly isWhole: boolean;
  readonly version: string;
}

async function write(
  space: Workspace,
  { path, content, overwrite }: WriteInput,
  context: ToolContext,
): Promise<string> {
  demandStorable('content', content);
  const known = readFiles(space, context);
  const found = await look(space, path, context.signal);
  if (found && overwrite !== true) {
    const state = known.compare(path, found.version);
    if (state !== 'same') throw new ToolError(refusal(found.file, state));
    if (found.isWhole && isDamagedText(found.bytes)) {
      throw new ToolError(
        `${quoted(found.file)} is not valid UTF-8, so you have not seen all of it, and its encoding cannot be kept. Set overwrite to ` +
          `true to replace it by a text in UTF-8.`,
      );
    }
  }
  const bytes = bytesFor(content, found);
  context.signal.throwIfAborted();
  await store(space, path, bytes, { create: !found, ...(found && overwrite !== true && { stamp: found.file.stamp }) });
  const { shown } = found?.file ?? (await space.locate(path));
  known.note(path, versionOf(bytes));
  return report(found ? 'Replaced' : 'Created', shown, content, bytes);
}

/** The content is there, whoever has written it: done. Otherwise the call may run, and then looks at the file again. */
async function verify(space: Workspace, { path, content }: WriteInput, context: ToolContext): Promise<Verification> {
  const found = await look(space, path, context.signal).catch(() => undefined);
  const bytes = bytesFor(content, found);
  if (!found || versionOf(bytes) !== found.version) return { type: 'not-done' };
  readFiles(space, context).note(path, found.version);
  return { type: 'done', result: report('Wrote', found.file.shown, content, bytes) };
}

async function look(space: Workspace, path: string, signal: AbortSignal): Promise<Found | undefined> {
  let file: Located;
  try {
    file = await space.locate(path);
  } catch (error) {
    if (error instanceof UnreachableError && error.errorType === 'not_found') return undefined;
    throw error;
  }
  if (file.kind === 'folder') throw new ToolError(`${quoted(file)} is a folder. Give the path of a file.`);
  if (file.kind === 'other') throw new ToolError(`${quoted(file)} is not a regular file, so it cannot be replaced.`);
  const opened = await space.open(path);
  try {
    const bytes = await readBytes(opened, signal);
    const isWhole = opened.size <= MAX_WHOLE_BYTES;
    return { file, bytes, isWhole, version: versionOf(isWhole ? bytes : opened) };
  } finally {
    await opened.handle.close();
  }
}

/** A file that is not a text is replaced as if it were new. */
function bytesFor(content: string, found: Found | undefined): Uint8Array {
  return encodeText(content, (found && textFormOf(found.bytes)) ?? PLAIN_FORM);
}

async function store(space: Workspace, path: string, bytes: Uint8Array, options: WriteOptions): Promise<void> {
  try {
    await space.write(path, bytes, options);
  } catch (error) {
    switch (((error as Error).cause as NodeJS.ErrnoException | undefined)?.code) {
      case 'EEXIST':
        throw new ToolError(
          `${JSON.stringify(path)} was created by somebody else just now. Read it, and decide again.`,
        );
      case 'EISDIR':
        throw new ToolError(`${JSON.stringify(path)} does not end in the name of a file. Add one.`, 'invalid_params');
      case 'ENOTDIR':
        throw new ToolError(
          `${JSON.stringify(path)} lies below a file, which cannot contain other files. Choose another path.`,
        );
      case 'ENOENT':
        throw new ToolError(
          `${JSON.stringify(path)} is a symbolic link to a file that does not exist, or leads through a folder that does ` +
            `not exist. Give the path of the file itself, without "..".`,
        );
      default:
        throw error;
    }
  }
}

function refusal(file: Located, state: 'changed' | 'unread'): string {
  return state === 'unread'
    ? `${quoted(file)} exists (${file.size} bytes), and this run has not read it. Read it first, or set overwrite to true to ` +
        `replace it without.`
    : `${quoted(file)} has changed since this run read it. Read it again to see what is there now, or set overwrite to true ` +
        `to replace it without.`;
}

function report(what: string, shown: string, content: string, bytes: Uint8Array): string {
  return `${what} ${shownName(shown)}: ${count(linesIn(content), 'line')}, ${count(bytes.length, 'byte')}.`;
}
