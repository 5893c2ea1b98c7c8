import { isUtf8 } from 'node:buffer';
import { posix } from 'node:path';
import { tool, type ImageBlock, type TextBlock, type Tool, type ToolContext } from '@treadle/core';
import { nearest } from '@treadle/core/nearest';
import type { FolderEntry, OpenFile, Ops } from '../ops.ts';
import { timeoutFor, timeoutParameter } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';
import { JobError } from '../workers/run-job.ts';
import { binaryKindOf, imageTypeOf, isPdf } from './file-kind.ts';
import { count, listing, shownName } from './listing.ts';
import { pdfPages } from './pdf-pages.ts';
import { fileKey, readFiles, versionOf } from './read-files.ts';
import { encodingOf, MAX_WHOLE_BYTES, readBytes, readTextFrom } from './text-file.ts';
import { quoted, UnreachableError, workspace, workspaceOf, type Located, type Workspace } from './workspace.ts';

/** Below the limit of the loop for a result, so that the note with the next offset is not cut off. */
const MAX_CHARS = 12_000;
const MAX_LINES = 2_000;
const MAX_LINE_CHARS = 2_000;
const MAX_ENTRIES = 500;
const MAX_PAGES = 20;
/** Providers accept 5 MB as base64. */
const MAX_IMAGE_BYTES = 3_750_000;
const MAX_PDF_BYTES = 32 * 1024 * 1024;
/** On the way to a line far inside, progress is reported after each of these. */
const REPORTED_CHARS = 2_000_000;
/** How much of a large file is read to see what it is. */
const HEAD_BYTES = 64 * 1024;

interface ReadInput {
  readonly path: string;
  readonly offset?: number;
  readonly limit?: number;
}

interface ReadOutput {
  readonly content: readonly (TextBlock | ImageBlock)[];
}

export function readTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'read',
    description:
      'Read a file: the lines of a text with their numbers ("12<tab>text"), an image as an image, the text of a PDF by ' +
      'pages. For a folder, list its entries. Long files are returned in parts: the last line then says the offset of the ' +
      'next part. Very long lines are cut. To find something in large files, use grep; to find files, use glob.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Path relative to the working folder' },
        offset: { type: 'integer', minimum: 1, description: 'First line (PDF: page) to return, counted from 1' },
        limit: {
          type: 'integer',
          minimum: 1,
          description: `Lines (PDF: pages) to return at most; default ${MAX_LINES} (PDF: ${MAX_PAGES})`,
        },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['path'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: ({ path }) => [{ type: 'read', path: String(path) }],
    permissions: ['file_read'],
    timeoutMs: timeoutFor('files'),
    remembers: ({ path }) => [fileKey(space, path)],
    execute: (input, context) => read(workspaceOf(files, context), input as unknown as ReadInput, context),
  });
}

async function read(space: Workspace, input: ReadInput, context: ToolContext): Promise<string | ReadOutput> {
  context.signal.throwIfAborted();
  const file = await locate(space, input.path);
  if (file.kind === 'folder') return listFolder(space, file, input);
  if (file.kind === 'other')
    throw new ToolError(`${quoted(file)} is a pipe, a socket or a device, so it cannot be read.`);
  const opened = await space.open(file.real);
  try {
    const isWhole = opened.size <= MAX_WHOLE_BYTES;
    const bytes = await readBytes(opened, context.signal, isWhole ? MAX_WHOLE_BYTES : HEAD_BYTES);
    const output = await readOpened(opened, { file, bytes, isWhole }, input, context);
    readFiles(space, context).note(input.path, versionOf(isWhole ? bytes : opened));
    return output;
  } finally {
    await opened.handle.close();
  }
}

/** What is known of a file that was opened. `bytes`: all of it, or only the beginning. */
interface Head {
  readonly file: Located;
  readonly bytes: Uint8Array;
  readonly isWhole: boolean;
}

async function readOpened(
  opened: OpenFile,
  head: Head,
  input: ReadInput,
  { signal, report }: ToolContext,
): Promise<string | ReadOutput> {
  const { file, bytes } = head;
  const imageType = imageTypeOf(bytes);
  if (imageType !== undefined) return image(head, opened.size, imageType);
  if (isPdf(bytes)) return readPdf(opened, head, input, signal);
  const encoding = encodingOf(bytes);
  if (encoding === undefined) {
    const kind = binaryKindOf(bytes);
    throw new ToolError(
      `${quoted(file)} is a binary file of ${count(opened.size, 'byte')}${kind === undefined ? '' : `: ${kind}`}. Only text, ` +
        `PDF and images (PNG, JPEG, GIF, WebP) can be read.`,
    );
  }
  const first = input.offset ?? 1;
  const window = lineWindow(first, first + (input.limit ?? MAX_LINES) - 1);
  let chars = 0;
  for await (const piece of readTextFrom(opened, { bytes, encoding }, signal)) {
    if (!window.feed(piece)) break;
    const before = chars;
    chars += piece.length;
    if (Math.trunc(chars / REPORTED_CHARS) > Math.trunc(before / REPORTED_CHARS))
      report(`passed ${chars} characters of a file of ${opened.size} bytes`);
  }
  const { text, lines, full } = window.end();
  const notes: string[] = [];
  if (encoding !== 'utf-8') notes.push(`the file is encoded as ${encoding.toUpperCase()}`);
  else if (text.includes('\uFFFD') && !(head.isWhole && isUtf8(bytes)))
    notes.push('the file is not valid UTF-8: bytes that cannot be decoded are shown as \uFFFD');
  if (full) notes.push(`the file continues: read again with offset ${lines + 1}`);
  else if (lines === 0) notes.push('the file is empty');
  else if (first > lines)
    throw new ToolError(
      `${quoted(file)} has only ${count(lines, 'line')}: give an offset up to that.`,
      'invalid_params',
    );
  return [...(text === '' && lines === 0 ? [] : [text]), ...notes.map((note) => `[${note}]`)].join('\n');
}

function image({ file, bytes }: Head, size: number, mediaType: string): ReadOutput {
  if (size > MAX_IMAGE_BYTES) {
    throw new ToolError(
      `${quoted(file)} is an image of ${size} bytes. Images of up to ${MAX_IMAGE_BYTES} bytes can be read: make it smaller.`,
    );
  }
  const data = Buffer.from(bytes).toString('base64');
  return {
    content: [
      { type: 'text', text: `${shownName(file.shown)}: ${mediaType}, ${count(size, 'byte')}` },
      { type: 'image', mediaType, source: { type: 'data', data } },
    ],
  };
}

async function readPdf(
  opened: OpenFile,
  { file, bytes, isWhole }: Head,
  input: ReadInput,
  signal: AbortSignal,
): Promise<string> {
  if (opened.size > MAX_PDF_BYTES) {
    throw new ToolError(
      `${quoted(file)} is a PDF of ${opened.size} bytes. PDFs of up to ${MAX_PDF_BYTES} can be read.`,
    );
  }
  const rest = isWhole ? [] : [await readBytes(opened, signal, MAX_PDF_BYTES)];
  const firstPage = input.offset ?? 1;
  const maxPages = Math.min(input.limit ?? MAX_PAGES, MAX_PAGES);
  const whole = new Uint8Array(Buffer.concat([bytes, ...rest]));
  const { pages, pageCount } = await pdfPages({ bytes: whole, firstPage, maxPages, maxChars: MAX_CHARS }, signal).catch(
    (error: unknown) => {
      if (!(error instanceof JobError)) throw error;
      throw new ToolError(`The text of ${quoted(file)} cannot be read: ${error.message}`, 'execution_failed', {
        cause: error,
      });
    },
  );
  if (firstPage > pageCount)
    throw new ToolError(
      `${quoted(file)} has only ${count(pageCount, 'page')}: give an offset up to that.`,
      'invalid_params',
    );
  const parts = [...pages];
  const next = firstPage + parts.length;
  if (next <= pageCount) parts.push(`[the file continues: read again with offset ${next}, which counts pages]`);
  return parts.join('\n');
}

async function listFolder(
  space: Workspace,
  folder: Located,
  { offset = 1, limit = MAX_ENTRIES }: ReadInput,
): Promise<string> {
  const names = (await space.list(folder.real)).map(entryName).sort();
  if (names.length === 0) return `[the folder ${shownName(folder.shown)} is empty]`;
  if (offset > names.length)
    throw new ToolError(
      `${quoted(folder)} has only ${names.length} entries: give an offset up to that.`,
      'invalid_params',
    );
  const found = listing(Math.min(limit, MAX_ENTRIES));
  for (const name of names.slice(offset - 1)) if (!found.add(name)) break;
  const next = offset + found.length;
  return [
    `[folder ${shownName(folder.shown)}]`,
    found.text(next > names.length ? [] : [`${names.length - next + 1} more entries: read again with offset ${next}`]),
  ].join('\n');
}

function entryName({ name, type }: FolderEntry): string {
  return (
    shownName(name) + (type === 'folder' ? '/' : type === 'link' ? ' (link)' : type === 'other' ? ' (not a file)' : '')
  );
}

/** Names what is similar to a path that does not exist. */
async function locate(space: Workspace, path: string): Promise<Located> {
  try {
    return await space.locate(path);
  } catch (error) {
    if (!(error instanceof UnreachableError) || error.errorType !== 'not_found') throw error;
    const meant = await similarPath(space, path).catch(() => undefined);
    if (meant === undefined) throw error;
    throw new UnreachableError(
      `There is no ${JSON.stringify(path)}. Did you mean ${JSON.stringify(meant)}?`,
      'not_found',
      {
        cause: error,
      },
    );
  }
}

/** Corrects the first name of the path that does not exist. */
async function similarPath(space: Workspace, path: string): Promise<string | undefined> {
  let [folder, wrong] = [posix.dirname(path), posix.basename(path)];
  while (!(await exists(space, folder))) {
    if (folder === posix.dirname(folder)) return undefined;
    [folder, wrong] = [posix.dirname(folder), posix.basename(folder)];
  }
  const names = (await space.list(folder)).map(({ name }) => name);
  const meant = nearest(wrong, names);
  return meant === undefined ? undefined : posix.join(folder, meant);
}

async function exists(space: Workspace, path: string): Promise<boolean> {
  return space.locate(path).then(
    () => true,
    () => false,
  );
}

/** Selects lines from text that arrives in chunks. Buffers only the selected lines. */
function lineWindow(
  first: number,
  last: number,
): {
  /** Returns false when it has all lines and there are more. */
  feed(piece: string): boolean;
  end(): { text: string; lines: number; full: boolean };
} {
  const selected: string[] = [];
  let chars = 0;
  let lines = 0;
  let line = '';
  let length = 0;
  let full = false;

  const append = (part: string): void => {
    length += part.length;
    if (line.length < MAX_LINE_CHARS) line += part.slice(0, MAX_LINE_CHARS - line.length);
  };
  const endLine = (): void => {
    const number = lines + 1;
    if (number >= first) {
      let shown = line.endsWith('\r') && length <= MAX_LINE_CHARS ? line.slice(0, -1) : line;
      if (length > MAX_LINE_CHARS) shown += ` [cut: the line has ${length} characters]`;
      shown = `${number}\t${shown}`;
      if (number > last || (selected.length > 0 && chars + shown.length + 1 > MAX_CHARS)) {
        full = true;
        return;
      }
      selected.push(shown);
      chars += shown.length + 1;
    }
    lines = number;
    line = '';
    length = 0;
  };

  return {
    feed(piece) {
      let from = 0;
      for (let at = piece.indexOf('\n'); at >= 0 && !full; at = piece.indexOf('\n', from)) {
        append(piece.slice(from, at));
        endLine();
        from = at + 1;
      }
      if (!full) append(piece.slice(from));
      return !full;
    },
    end() {
      if (!full && length > 0) endLine();
      return { text: selected.join('\n'), lines, full };
    },
  };
}
