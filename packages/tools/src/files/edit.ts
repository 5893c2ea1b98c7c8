import { tool, type Tool, type ToolContext, type Verification } from '@treadle/core';
import type { Ops } from '../ops.ts';
import { timeoutFor, timeoutParameter } from '../timeouts.ts';
import { ToolError } from '../tool-error.ts';
import { runJob } from '../workers/run-job.ts';
import { count } from './listing.ts';
import { FILES_READ, readFiles, versionOf } from './read-files.ts';
import { lineEndOf, type TextForm } from './text-file.ts';
import { contentOf, demandStorable, readWhole, textOf } from './whole-text.ts';
import { workspace, type Workspace } from './workspace.ts';

const MAX_EDITS = 100;
/** Places of an ambiguous match that are shown. */
const MAX_PLACES = 10;
const MAX_DIFF_CHARS = 6_000;
const MAX_LINE_CHARS = 300;
const CONTEXT_LINES = 2;

interface EditInput extends Partial<Edit> {
  readonly path: string;
  readonly edits?: readonly Edit[];
}

interface Edit {
  readonly old_text: string;
  readonly new_text: string;
  readonly replace_all?: boolean;
}

const EDIT_PROPERTIES = {
  old_text: {
    type: 'string',
    description:
      'The text to replace, exactly as it is in the file, with its indentation and without line numbers. It must occur ' +
      'once: include lines before and after it until it does.',
  },
  new_text: { type: 'string', description: 'The text to put there; empty to remove the old text' },
  replace_all: { type: 'boolean', description: 'Replace every occurrence of old_text; default false' },
} as const;

export function editTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'edit',
    description:
      'Replace text in a file of the working folder. old_text must match exactly and only once; otherwise nothing is ' +
      'changed, and the error shows where it occurs or what is there instead. For several changes of one file give ' +
      'edits instead of old_text and new_text: all are applied, or none. Each is matched against the file as it is before ' +
      'the call. Line ends and the file mode are kept. Returns a diff. To create a file use write; to change several ' +
      'files at once use apply_patch.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Path relative to the working folder' },
        ...EDIT_PROPERTIES,
        edits: {
          type: 'array',
          minItems: 1,
          maxItems: MAX_EDITS,
          description: 'Several replacements in the file, which must not overlap',
          items: {
            type: 'object',
            properties: EDIT_PROPERTIES,
            required: ['old_text', 'new_text'],
            additionalProperties: false,
          },
        },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['path'],
      additionalProperties: false,
    },
    effect: 'once',
    touches: ({ path }) => [
      { type: 'read', path: String(path) },
      { type: 'write', path: String(path) },
    ],
    permissions: ['file_read', 'file_write'],
    resources: ({ path }) => [`file ${String(path)}`],
    remembers: [FILES_READ],
    timeoutMs: timeoutFor('files'),
    execute: (input, context) => edit(space, input as unknown as EditInput, context),
    verify: (input, context) => verifyEdit(space, input as unknown as EditInput, context),
  });
}

async function edit(space: Workspace, input: EditInput, context: ToolContext): Promise<string> {
  const { signal } = context;
  const edits = editsOf(input);
  const whole = await readWhole(space, input.path, signal);
  const stored = textOf(whole.bytes, input.path);
  const source = sourceOf(stored.text);
  const spans = placeEdits(source.text, edits);
  if ('problem' in spans) throw await unplaced(spans, source, input, signal);
  const text = replaced(source, spans.spans);
  if (text === stored.text)
    throw new ToolError('The edits change nothing: new_text is what is there.', 'invalid_params');

  const known = readFiles(context);
  const { shown, stamp } = whole.file;
  const state = known.compare(shown, versionOf(whole.bytes));
  const content = contentOf(stored, text);
  signal.throwIfAborted();
  await space.write(input.path, content, { stamp });
  // Who has not seen the rest of the file, or not its current content, has not seen it by an edit.
  if (state === 'same') known.note(shown, versionOf(content));
  return [
    `Edited ${JSON.stringify(shown)}: ${count(spans.spans.length, 'replacement')}.`,
    ...(state === 'changed'
      ? ['The file has changed since you last read it. Read it again before you rely on what you know of it.']
      : []),
    diffOf(source.text, spans.spans),
  ].join('\n');
}

/** Whether an interrupted edit was applied. */
async function verifyEdit(space: Workspace, input: EditInput, context: ToolContext): Promise<Verification> {
  const edits = editsOf(input);
  const whole = await readWhole(space, input.path, context.signal);
  const { text } = sourceOf(textOf(whole.bytes, input.path).text);
  const state = readFiles(context).compare(whole.file.shown, versionOf(whole.bytes));
  const applies = 'spans' in placeEdits(text, edits);
  // What the run knows is the content before the edit, because an interrupted call has recorded nothing.
  if (state === 'same') return { type: applies ? 'not-done' : 'unknown' };
  const isThere = edits.every(({ old_text, new_text }) => {
    const [before, after] = [lineFeeds(old_text), lineFeeds(new_text)];
    return after !== '' && text.includes(after) && !text.replaceAll(after, '\0').includes(before);
  });
  const result = `Edited ${JSON.stringify(whole.file.shown)}. The call was interrupted; the file has the new text.`;
  if (isThere && (!applies || state === 'changed')) return { type: 'done', result };
  // If the new text contains the old one, an edit that was applied could be applied again.
  return { type: applies && !isThere ? 'not-done' : 'unknown' };
}

function editsOf({
  edits,
  old_text: oldText = '',
  new_text: newText = '',
  replace_all: all,
}: EditInput): readonly Edit[] {
  if (edits && (oldText !== '' || newText !== '')) {
    throw new ToolError('Give either old_text and new_text, or edits, not both.', 'invalid_params');
  }
  const asked: readonly Edit[] = edits ?? [{ old_text: oldText, new_text: newText, ...(all && { replace_all: all }) }];
  for (const [index, { old_text: before, new_text: after }] of asked.entries()) {
    const which = nameOf(index, asked.length);
    if (before === '') {
      throw new ToolError(
        `${which} is empty. Give the text to replace, exactly as it is in the file; to insert text, ` +
          `replace a line beside it; to create a file or to replace all of it, use write.`,
        'invalid_params',
      );
    }
    if (before === after)
      throw new ToolError(`${which} and its new_text are the same: nothing would change.`, 'invalid_params');
    demandStorable('new_text', after);
  }
  return asked;
}

function nameOf(index: number, of: number): string {
  return of === 1 ? 'old_text' : `old_text of edits[${index}]`;
}

/** A text with "\n" as line ends, and where they were "\r\n". */
interface Source {
  readonly text: string;
  readonly raw: string;
  readonly lineEnd: TextForm['lineEnd'];
}

function sourceOf(raw: string): Source {
  return { text: lineFeeds(raw), raw, lineEnd: lineEndOf(raw) };
}

function lineFeeds(text: string): string {
  return text.replaceAll('\r\n', '\n');
}

/** A part of the text that is replaced. */
interface Span {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

type Placed = { readonly spans: readonly Span[] } | Unplaced;

interface Unplaced {
  readonly problem: 'missing' | 'ambiguous' | 'overlap';
  readonly index: number;
  readonly wanted: string;
  /** Where it occurs. */
  readonly places: readonly number[];
  /** How many edits there are. */
  readonly of: number;
}

/** Where the edits apply. All are matched against the same text. */
function placeEdits(text: string, edits: readonly Edit[]): Placed {
  const spans: (Span & { readonly index: number })[] = [];
  for (const [index, { old_text, new_text, replace_all = false }] of edits.entries()) {
    const wanted = lineFeeds(old_text);
    const places: number[] = [];
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + (replace_all ? wanted.length : 1))) {
      places.push(at);
      if (!replace_all && places.length > MAX_PLACES) break;
    }
    const failed = { index, wanted, places, of: edits.length };
    if (places.length === 0) return { problem: 'missing', ...failed };
    if (places.length > 1 && !replace_all) return { problem: 'ambiguous', ...failed };
    for (const start of places) spans.push({ start, end: start + wanted.length, text: lineFeeds(new_text), index });
  }
  spans.sort((a, b) => a.start - b.start);
  const late = spans.find(({ start }, at) => at > 0 && start < spans[at - 1]!.end);
  if (!late) return { spans };
  const { index, start } = late;
  return { problem: 'overlap', index, wanted: lineFeeds(edits[index]!.old_text), places: [start], of: edits.length };
}

/** The text with other spans, and the line ends that it had. New lines end as most lines do. */
function replaced({ text, raw, lineEnd }: Source, spans: readonly Span[]): string {
  const isPlain = raw.length === text.length;
  const parts: string[] = [];
  let at = 0;
  let rawAt = 0;
  const keep = (until: number): void => {
    const start = rawAt;
    if (isPlain) rawAt = until;
    else {
      for (; at < until; at++) rawAt += raw[rawAt] === '\r' && text[at] === '\n' ? 2 : 1;
    }
    at = until;
    parts.push(raw.slice(start, rawAt));
  };
  for (const span of spans) {
    keep(span.start);
    keep(span.end);
    parts.pop();
    parts.push(lineEnd === '\n' ? span.text : span.text.replaceAll('\n', '\r\n'));
  }
  keep(text.length);
  return parts.join('');
}

async function unplaced(
  { problem, index, wanted, places, of }: Unplaced,
  { text }: Source,
  { path }: EditInput,
  signal: AbortSignal,
): Promise<ToolError> {
  const which = nameOf(index, of);
  const file = JSON.stringify(path);
  if (problem === 'overlap') {
    return new ToolError(
      `${which} overlaps another edit at line ${lineAt(text, places[0]!)} of ${file}. Nothing was changed. Join the two edits.`,
      'invalid_params',
    );
  }
  if (problem === 'ambiguous') {
    const lines = text.split('\n');
    const shown = places.slice(0, MAX_PLACES).map((place) => {
      const line = lineAt(text, place);
      return `${line}\t${cut(lines[line - 1]!)}`;
    });
    const number = places.length > MAX_PLACES ? `more than ${MAX_PLACES} times` : `${places.length} times`;
    return new ToolError(
      `${which} occurs ${number} in ${file}, so it is not clear which one is meant. Nothing was changed. Include more ` +
        `lines around it, or set replace_all. It starts at these lines:\n${shown.join('\n')}`,
    );
  }
  const hint = wanted.split('\n').every((line) => /^\s*\d+\t/.test(line))
    ? ' It seems to contain line numbers, which are not part of the file: leave them out.'
    : '';
  const near = await runJob('nearestBlock', { text, wanted }, signal);
  if (!near) {
    return new ToolError(
      `${which} does not occur in ${file}, and nothing there is similar. Nothing was changed.${hint} Read the file, and ` +
        `copy the text from it.`,
    );
  }
  const difference = near.difference ? `; it differs only in ${near.difference}` : '';
  return new ToolError(
    `${which} does not occur in ${file}. Nothing was changed.${hint} The nearest text is at line ${near.line}${difference}. ` +
      `Use what is there (+) instead of what you gave (-):\n${near.diff.join('\n')}`,
  );
}

/** A unified diff of what the spans replace. */
function diffOf(text: string, spans: readonly Span[]): string {
  const lines = text.split('\n');
  const lineCount = text.endsWith('\n') ? lines.length - 1 : lines.length;
  // The line of a sorted span is found by going on from the last one.
  let line = 0;
  let lineStart = 0;
  const lineOf = (offset: number): number => {
    while (line < lines.length - 1 && lineStart + lines[line]!.length < offset) lineStart += lines[line++]!.length + 1;
    return line;
  };
  interface Change {
    first: number;
    last: number;
    after: string;
    /** How far `after` covers the last line. */
    end: number;
  }
  const changes: Change[] = [];
  for (const span of spans) {
    const first = lineOf(span.start);
    const before = text.slice(lineStart, span.start);
    const last = lineOf(span.end);
    const previous = changes.at(-1);
    if (previous && previous.last >= first) {
      previous.after += text.slice(previous.end, span.start) + span.text;
      previous.last = last;
      previous.end = span.end;
    } else changes.push({ first, last, after: before + span.text, end: span.end });
  }
  const blocks: string[] = [];
  let shift = 0;
  let chars = 0;
  for (const [index, { first, last, after, end }] of changes.entries()) {
    const lineEnd = text.indexOf('\n', end);
    const removed = lines.slice(first, last + 1);
    const added = (after + text.slice(end, lineEnd < 0 ? text.length : lineEnd)).split('\n');
    let from = 0;
    while (from < removed.length && from < added.length && removed[from] === added[from]) from++;
    let tail = 0;
    while (tail < removed.length - from && tail < added.length - from && removed.at(-1 - tail) === added.at(-1 - tail))
      tail++;
    const start = Math.max(first + from - CONTEXT_LINES, (changes[index - 1]?.last ?? -1) + 1);
    const stop = Math.min(last + 1 - tail + CONTEXT_LINES, changes[index + 1]?.first ?? lineCount);
    const context = { before: lines.slice(start, first + from), after: lines.slice(last + 1 - tail, stop) };
    const out = added.slice(from, added.length - tail);
    const gone = removed.slice(from, removed.length - tail);
    const kept = context.before.length + context.after.length;
    const block = [
      `@@ -${start + 1},${gone.length + kept} +${start + 1 + shift},${out.length + kept} @@`,
      ...context.before.map((one) => ` ${cut(one)}`),
      ...gone.map((one) => `-${cut(one)}`),
      ...out.map((one) => `+${cut(one)}`),
      ...context.after.map((one) => ` ${cut(one)}`),
    ].join('\n');
    shift += added.length - removed.length;
    chars += block.length;
    if (chars > MAX_DIFF_CHARS) {
      const room = block.slice(0, Math.max(block.length - (chars - MAX_DIFF_CHARS), 0));
      blocks.push(
        ...(room === '' ? [] : [room]),
        `[the diff is cut; ${count(changes.length - index - 1, 'more change')}]`,
      );
      break;
    }
    blocks.push(block);
  }
  return blocks.join('\n');
}

function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < offset; at = text.indexOf('\n', at + 1)) line++;
  return line;
}

function cut(line: string): string {
  return line.length > MAX_LINE_CHARS ? `${line.slice(0, MAX_LINE_CHARS)}…` : line;
}
