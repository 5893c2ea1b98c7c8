import { tool, type Tool } from '@treadle/core';
import { readText } from './text-file.ts';
import type { Ops } from '../ops.ts';
import { workspace, type Workspace } from './workspace.ts';

/** Below the limit of the loop for a result, so that the note with the next offset is not cut off. */
const MAX_CHARS = 12_000;
const MAX_LINES = 2_000;
const MAX_LINE_CHARS = 2_000;

interface ReadInput {
  readonly path: string;
  readonly offset?: number;
  readonly limit?: number;
  readonly lineNumbers?: boolean;
}

export function readTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'read',
    description:
      'Read a text file of the working folder. Long files are returned in parts: the last line then contains the offset ' +
      'of the next part.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Path relative to the working folder' },
        offset: { type: 'integer', minimum: 1, description: 'First line to read, counted from 1' },
        limit: { type: 'integer', minimum: 1, description: `Lines at most; default ${MAX_LINES}` },
        lineNumbers: { type: 'boolean', description: 'Put its number before each line' },
      },
      required: ['path'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: ({ path }) => [{ type: 'read', path: String(path) }],
    permissions: ['file_read'],
    execute: (input, { signal }) => read(space, input as unknown as ReadInput, signal),
  });
}

async function read(space: Workspace, input: ReadInput, signal: AbortSignal): Promise<string> {
  const file = await space.locate(input.path);
  if (file.kind === 'folder') {
    throw new Error(
      `${JSON.stringify(input.path)} is a folder. Use glob with the pattern "*" and this path to list it.`,
    );
  }
  if (file.kind === 'other')
    throw new Error(`${JSON.stringify(input.path)} is not a regular file, so it cannot be read.`);

  const first = input.offset ?? 1;
  const window = lineWindow({
    first,
    last: first + (input.limit ?? MAX_LINES) - 1,
    numbered: input.lineNumbers === true,
  });
  for await (const piece of readText(await space.open(file.real), signal)) {
    if (piece === undefined) {
      throw new Error(`${JSON.stringify(input.path)} is a binary file of ${file.size} bytes; only text can be read.`);
    }
    if (!window.feed(piece)) break;
  }
  const { text, lines, full } = window.end();
  if (full) return `${text}\n[the file continues: read again with offset ${lines + 1}]`;
  if (lines === 0) return '[the file is empty]';
  if (first > lines) throw new Error(`The file has only ${lines} lines, so there is none at offset ${first}.`);
  return text;
}

/** Selects lines from text that arrives in chunks. Buffers only the selected lines. */
function lineWindow(want: { first: number; last: number; numbered: boolean }): {
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
    if (number >= want.first) {
      let shown = line.endsWith('\r') && length <= MAX_LINE_CHARS ? line.slice(0, -1) : line;
      if (length > MAX_LINE_CHARS) shown += ` [cut: the line has ${length} characters]`;
      if (want.numbered) shown = `${number}\t${shown}`;
      if (number > want.last || (selected.length > 0 && chars + shown.length + 1 > MAX_CHARS)) {
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
