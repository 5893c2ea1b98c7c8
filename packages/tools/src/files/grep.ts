import { setImmediate } from 'node:timers/promises';
import { messageOf, tool, type Tool } from '@treadle/core';
import type { OpenFile } from '../ops.ts';
import { globPattern } from './glob-pattern.ts';
import { count, listing, walkNotes } from './listing.ts';
import { decodeText, encodingOf, readBytes } from './text-file.ts';
import { TimeLimitPassed, withinTime } from './time-limit.ts';
import { walk, type WalkNotes } from './walk.ts';
import type { Ops } from '../ops.ts';
import { UnreachableError, workspace, type Workspace } from './workspace.ts';

const MAX_MATCHES = 200;
const MAX_FILE_BYTES = 4 * 1024 * 1024;
/** Only this many characters of a line are searched. */
const MAX_LINE_CHARS = 10_000;
const SHOWN_LINE_CHARS = 300;
/** The deadline for the lines of one file. */
const MAX_FILE_MS = 1_000;

interface GrepInput {
  readonly pattern: string;
  readonly path?: string;
  readonly glob?: string;
  readonly ignoreCase?: boolean;
}

export function grepTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'grep',
    description:
      'Search the text files of the working folder, line by line, with a JavaScript regular expression. Returns ' +
      '"file:line: text". node_modules, .git, .treadle and binary files are left out.',
    input: {
      type: 'object',
      properties: {
        pattern: { type: 'string', description: 'Regular expression, such as "function \\w+"' },
        path: { type: 'string', description: 'File or folder to search; default: the working folder' },
        glob: { type: 'string', description: 'Only files that match, such as "*.ts" or "src/**/*.json"' },
        ignoreCase: { type: 'boolean', description: 'Upper and lower case are the same' },
      },
      required: ['pattern'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: ({ path = '.' }) => [{ type: 'read', path: String(path) }],
    permissions: ['file_read'],
    execute: (input, { signal }) => grep(space, input as unknown as GrepInput, signal),
  });
}

async function grep(space: Workspace, input: GrepInput, signal: AbortSignal): Promise<string> {
  const expression = compile(input);
  const filter =
    input.glob === undefined ? undefined : globPattern(input.glob.includes('/') ? input.glob : `**/${input.glob}`);
  const from = await space.locate(input.path ?? '.');
  const notes: WalkNotes = { links: 0, closed: 0, cut: false };
  const found = listing(MAX_MATCHES);
  const skipped = { searched: 0, binary: 0, large: 0, unreadable: 0, denied: 0 };
  let full = false;

  const search = async (path: string, shown: string): Promise<void> => {
    const file = await space.open(path);
    if (file.size > MAX_FILE_BYTES) {
      await file.handle.close();
      skipped.large++;
      return;
    }
    const text = await wholeText(file, signal);
    if (text === undefined) {
      skipped.binary++;
      return;
    }
    skipped.searched++;
    for (const match of matchingLines(expression, text, shown)) {
      if (!found.add(match)) {
        full = true;
        return;
      }
    }
  };

  if (from.kind === 'file') await search(from.real, from.shown);
  else {
    for await (const entry of walk({ space, from, pattern: filter, notes, signal })) {
      // The target of a link is searched at its own path.
      if (entry.kind !== 'file' || entry.linked || (filter && !filter.matches(entry.below))) continue;
      await search(`./${entry.shown}`, entry.shown).catch((error: unknown) => {
        if (signal.aborted || !isFileError(error)) throw error;
        if (error instanceof UnreachableError && error.errorType === 'permission_denied') skipped.denied++;
        else skipped.unreadable++;
      });
      if (full) break;
      // Yields to timers and signals, so that an abort takes effect. Reading small files does not yield.
      await setImmediate();
    }
  }

  const remarks: string[] = [];
  if (full)
    remarks.push(`only the first ${found.length} matches are shown: narrow the pattern, or give a path or glob`);
  if (found.length === 0) remarks.push(`no match in ${count(skipped.searched, 'file')}`);
  if (skipped.binary > 0) remarks.push(`${count(skipped.binary, 'binary file')} not searched`);
  if (skipped.large > 0)
    remarks.push(`${count(skipped.large, 'file')} over ${MAX_FILE_BYTES / 1024 / 1024} MB not searched`);
  if (skipped.denied > 0) remarks.push(`${count(skipped.denied, 'file')} not searched, because the policy denies it`);
  if (skipped.unreadable > 0) remarks.push(`${count(skipped.unreadable, 'file')} could not be read`);
  return found.text([...remarks, ...walkNotes(notes)]);
}

/** Tries the flag `u`, which \p{…} needs. Without it, escapes such as \- are allowed, as in other dialects. */
function compile(input: GrepInput): RegExp {
  const flags = input.ignoreCase ? 'i' : '';
  try {
    return new RegExp(input.pattern, `u${flags}`);
  } catch {
    try {
      return new RegExp(input.pattern, flags);
    } catch (error) {
      throw new Error(
        `${messageOf(error)}. Give a JavaScript regular expression; put "\\" before a literal character such as ( ` +
          `or [, and set ignoreCase instead of (?i).`,
        { cause: error },
      );
    }
  }
}

async function wholeText(file: OpenFile, signal: AbortSignal): Promise<string | undefined> {
  try {
    const bytes = await readBytes(file, signal);
    const encoding = encodingOf(bytes);
    return encoding && decodeText(bytes, encoding);
  } finally {
    await file.handle.close();
  }
}

function matchingLines(expression: RegExp, text: string, shown: string): string[] {
  try {
    return withinTime(MAX_FILE_MS, () => {
      const matches: string[] = [];
      const lines = text.split('\n');
      for (let i = 0; i < lines.length && matches.length <= MAX_MATCHES; i++) {
        const line = lines[i]!.slice(0, MAX_LINE_CHARS).replace(/\r$/, '');
        if (expression.test(line)) matches.push(`${shown}:${i + 1}: ${shortened(line)}`);
      }
      return matches;
    });
  } catch (error) {
    if (!(error instanceof TimeLimitPassed)) throw error;
    throw new Error(
      `The pattern took more than ${MAX_FILE_MS} ms on ${shown}, so the search was stopped. Simplify it: avoid repetition ` +
        `inside repetition, such as (a+)+.`,
      { cause: error },
    );
  }
}

function shortened(line: string): string {
  return line.length <= SHOWN_LINE_CHARS ? line : `${line.slice(0, SHOWN_LINE_CHARS)}…`;
}

function isFileError(error: unknown): boolean {
  return error instanceof UnreachableError || typeof (error as NodeJS.ErrnoException).syscall === 'string';
}
