import { count } from './listing.ts';
import { lineEndOf, type TextForm } from './text-file.ts';

export interface Edit {
  readonly old_text: string;
  readonly new_text: string;
  readonly replace_all?: boolean;
}

export interface Edited {
  readonly type: 'edited';
  readonly text: string;
  readonly replacements: number;
  /** A unified diff, shortened. */
  readonly diff: string;
}

/** Places of an ambiguous match that are shown. */
export const MAX_PLACES = 10;
const MAX_DIFF_CHARS = 6_000;
const MAX_LINE_CHARS = 300;
const CONTEXT_LINES = 2;

/** A job for a worker thread, because a large text may have very many places to replace. All edits are made, or none. */
export function applyEdits({ raw, edits }: { raw: string; edits: readonly Edit[] }): Edited | Unplaced {
  const source = sourceOf(raw);
  const placed = placeEdits(source.text, edits);
  if (placed.type === 'unplaced') return placed;
  const { spans } = placed;
  return {
    type: 'edited',
    text: replaced(source, spans),
    replacements: spans.length,
    diff: diffOf(source.text, spans),
  };
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

export function lineFeeds(text: string): string {
  return text.replaceAll('\r\n', '\n');
}

/** A part of the text that is replaced. */
interface Span {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

type Placed = { readonly type: 'placed'; readonly spans: readonly Span[] } | Unplaced;

export interface Unplaced {
  readonly type: 'unplaced';
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
    const failed = { type: 'unplaced', index, wanted, places, of: edits.length } as const;
    if (places.length === 0) return { problem: 'missing', ...failed };
    if (places.length > 1 && !replace_all) return { problem: 'ambiguous', ...failed };
    for (const start of places) spans.push({ start, end: start + wanted.length, text: lineFeeds(new_text), index });
  }
  spans.sort((a, b) => a.start - b.start);
  const late = spans.find(({ start }, at) => at > 0 && start < spans[at - 1]!.end);
  if (!late) return { type: 'placed', spans };
  const { index, start } = late;
  return {
    type: 'unplaced',
    problem: 'overlap',
    index,
    wanted: lineFeeds(edits[index]!.old_text),
    places: [start],
    of: edits.length,
  };
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
      ...context.before.map((one) => ` ${cutLine(one)}`),
      ...gone.map((one) => `-${cutLine(one)}`),
      ...out.map((one) => `+${cutLine(one)}`),
      ...context.after.map((one) => ` ${cutLine(one)}`),
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

export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < offset; at = text.indexOf('\n', at + 1)) line++;
  return line;
}

export function cutLine(line: string): string {
  return line.length > MAX_LINE_CHARS ? `${line.slice(0, MAX_LINE_CHARS)}…` : line;
}
