import { lineAt } from './text-edits.ts';

/** The part of a text that is most like the wanted one. */
export interface NearestBlock {
  /** The first line, counted from 1. */
  readonly line: number;
  /** What differs, if it is only that. */
  readonly difference?: 'whitespace' | 'quotes';
  /** Lines of a diff from the wanted text to what is there. */
  readonly diff: readonly string[];
}

const MAX_DIFF_LINES = 40;
const MAX_LINE_CHARS = 200;
/** Lines that are more frequent say little about the place. */
const MAX_PLACES = 200;
const DIFF_TIMEOUT_MS = 1_000;
/** Part of its lines, or of the letters of a line, that a block must share. */
const LIKE_LINES = 0.4;
const LIKE_LETTERS = 0.6;

/** A job for a worker thread: the time depends on the texts. Undefined if nothing is similar. Both texts have line ends "\n". */
export async function nearestBlock({
  text,
  wanted,
}: {
  text: string;
  wanted: string;
}): Promise<NearestBlock | undefined> {
  const lines = text.split('\n');
  const wantedLines = wanted.replace(/\n$/, '').split('\n');
  const same = sameBut(text, wanted);
  if (same) {
    const { first, last, difference } = same;
    return { line: first + 1, difference, diff: await diffOf(wantedLines, lines.slice(first, last + 1)) };
  }
  const first = likeBlock(lines, wantedLines) ?? likeLine(lines, wantedLines);
  if (first === undefined) return undefined;
  return { line: first + 1, diff: await diffOf(wantedLines, lines.slice(first, first + wantedLines.length)) };
}

/** The lines of the text that differ from the wanted text only in whitespace or in the form of quotes. */
function sameBut(
  text: string,
  wanted: string,
): { first: number; last: number; difference: 'whitespace' | 'quotes' } | undefined {
  for (const difference of ['whitespace', 'quotes'] as const) {
    const fold = difference === 'quotes' ? foldQuotes : (one: string) => one;
    const needle = fold(wanted).replaceAll(/\s+/g, '');
    if (needle === '') return undefined;
    const folded = fold(text);
    const at = folded.replaceAll(/\s+/g, '').indexOf(needle);
    if (at < 0) continue;
    const [start, end] = placesOf(folded, at, at + needle.length - 1);
    const first = lineAt(folded, start) - 1;
    return { first, last: first + lineAt(folded.slice(start), end - start) - 1, difference };
  }
  return undefined;
}

/** Keeps the length of the text. */
function foldQuotes(text: string): string {
  return text
    .replaceAll(/[\u2018\u2019\u201B`]/g, "'")
    .replaceAll(/["\u201C\u201D]/g, "'")
    .replaceAll(/[\u2010-\u2015]/g, '-');
}

/** Where two characters are, which are counted without whitespace. */
function placesOf(text: string, first: number, last: number): [number, number] {
  let count = 0;
  let start = 0;
  for (let at = 0; at < text.length; at++) {
    if (/\s/.test(text[at]!)) continue;
    if (count === first) start = at;
    if (count === last) return [start, at];
    count++;
  }
  return [start, text.length - 1];
}

/** The place at which most lines are the same apart from whitespace. */
function likeBlock(lines: readonly string[], wanted: readonly string[]): number | undefined {
  const places = new Map<string, number[]>();
  for (const [at, line] of lines.entries()) {
    const key = line.replaceAll(/\s+/g, '');
    if (key === '') continue;
    const known = places.get(key);
    if (!known) places.set(key, [at]);
    else if (known.length < MAX_PLACES) known.push(at);
  }
  const votes = new Map<number, number>();
  let filled = 0;
  for (const [at, line] of wanted.entries()) {
    const key = line.replaceAll(/\s+/g, '');
    if (key === '') continue;
    filled++;
    for (const place of places.get(key) ?? []) votes.set(place - at, (votes.get(place - at) ?? 0) + 1);
  }
  let best: { first: number; count: number } | undefined;
  for (const [first, count] of votes) if (!best || count > best.count) best = { first: Math.max(first, 0), count };
  return best && best.count >= filled * LIKE_LINES ? best.first : undefined;
}

/** The line that is most like the longest wanted line, and from it the first line of the block. */
function likeLine(lines: readonly string[], wanted: readonly string[]): number | undefined {
  let longest = 0;
  for (const [at, line] of wanted.entries()) if (line.trim().length > wanted[longest]!.trim().length) longest = at;
  const pairs = letterPairs(wanted[longest]!);
  let best = { at: 0, likeness: 0 };
  for (const [at, line] of lines.entries()) {
    const likeness = likenessOf(pairs, line);
    if (likeness > best.likeness) best = { at, likeness };
  }
  return best.likeness >= LIKE_LETTERS ? Math.max(best.at - longest, 0) : undefined;
}

function letterPairs(line: string): ReadonlyMap<string, number> {
  const letters = line.slice(0, MAX_LINE_CHARS).replaceAll(/\s+/g, '');
  const pairs = new Map<string, number>();
  for (let at = 0; at + 1 < letters.length; at++) {
    const pair = letters.slice(at, at + 2);
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  return pairs;
}

/** The share of letter pairs that two lines have in common (Dice's coefficient). */
function likenessOf(pairs: ReadonlyMap<string, number>, line: string): number {
  const others = letterPairs(line);
  let common = 0;
  let total = 0;
  for (const count of pairs.values()) total += count;
  for (const [pair, count] of others) {
    total += count;
    common += Math.min(count, pairs.get(pair) ?? 0);
  }
  return total === 0 ? 0 : (2 * common) / total;
}

/** `-` lines are wanted, `+` lines are there. */
async function diffOf(wanted: readonly string[], there: readonly string[]): Promise<readonly string[]> {
  const { structuredPatch } = await import('diff');
  const texts = [wanted, there].map((lines) => lines.map((line) => `${line}\n`).join('')) as [string, string];
  const patch = structuredPatch('', '', ...texts, '', '', { context: 2, timeout: DIFF_TIMEOUT_MS });
  const all = patch
    ? patch.hunks.flatMap(({ lines }) => lines)
    : [...wanted.map((line) => `-${line}`), ...there.map((line) => `+${line}`)];
  const shown = all.slice(0, MAX_DIFF_LINES).map(cutLine);
  if (all.length > shown.length) shown.push(`[${all.length - shown.length} more lines]`);
  return shown;
}

export function cutLine(line: string): string {
  return line.length > MAX_LINE_CHARS ? `${line.slice(0, MAX_LINE_CHARS)}…` : line;
}
