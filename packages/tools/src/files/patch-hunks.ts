import { cutLine, nearestBlock, type NearestBlock } from './nearest-block.ts';
import { lineEndOf } from './text-file.ts';

/** A change of some lines of a file. */
export interface Hunk {
  /** For messages. */
  readonly name: string;
  /** Each with " ", "-" or "+" before it. */
  readonly lines: readonly string[];
  /** The first line before and after the patch, counted from 1. For a hunk without old lines, the line before it. */
  readonly start?: number;
  readonly newStart?: number;
  /** Lines above the hunk, from the outermost to the innermost. */
  readonly anchors: readonly string[];
  /** Its last line is the last line of the file. */
  readonly atEnd: boolean;
  /** The last line has no newline at its end, before and after the patch. */
  readonly endsWithout: { readonly old: boolean; readonly new: boolean };
}

export type Patched =
  | {
      readonly type: 'patched';
      readonly text: string;
      readonly added: number;
      readonly removed: number;
      readonly notes: readonly string[];
      /** No whitespace and no line was ignored. */ readonly isExact: boolean;
    }
  | {
      readonly type: 'failed';
      readonly hunk: string;
      readonly why: string;
      readonly near?: NearestBlock;
      /** Nothing is like its lines: what is where the patch says that they are. */
      readonly there?: LinesThere;
    };

export interface LinesThere {
  /** The first line, counted from 1. */
  readonly line: number;
  readonly lines: readonly string[];
  /** The number of lines of the file. */
  readonly count: number;
}

/** How lines are compared, from strict to tolerant. The first tells line ends apart. */
const LEVELS = [
  (line: Line) => (line.isTwice ? `${line.text}\r` : line.text),
  (line: Line) => line.text,
  (line: Line) => line.text.trimEnd(),
  (line: Line) => line.text.trim().replaceAll(/\s+/g, ' '),
] as const;
const LEVEL_NOTES = [
  undefined,
  undefined,
  ' without comparing whitespace at line ends',
  ' without comparing whitespace',
] as const;
const MAX_PLACES = 5;
/** Lines of context, before and after a change each, that need not be there. As in the program "patch". */
const MAX_FUZZ = 2;
/** With fuzz, only line ends may differ. */
const FUZZY_LEVELS = 2;
/** A hunk that only adds lines keeps at least this much context. */
const MIN_CONTEXT = 2;

/** Of what is shown where a hunk does not apply. */
const CONTEXT_LINES = 2;
const MAX_LINES_THERE = 20;

/** A line, and whether it ends with "\r\n". */
interface Line {
  readonly text: string;
  readonly isTwice: boolean;
}

/** Where the lines of a hunk are, and how many lines of context at its beginning and its end were not compared. */
interface Place {
  readonly first: number;
  readonly level: number;
  readonly lead: number;
  readonly tail: number;
}

const EXACT = { level: 0, lead: 0, tail: 0 };

/** A job for a worker thread: applies hunks in their order, all or none. */
export async function applyHunks({ text, hunks }: { text: string; hunks: readonly Hunk[] }): Promise<Patched> {
  const { lines, endsInNewline, isTwice } = linesOf(text);
  const folded: (readonly string[])[] = [];
  const at = (level: number): readonly string[] => (folded[level] ??= lines.map(LEVELS[level]!));
  const output: Line[] = [];
  const notes: string[] = [];
  let cursor = 0;
  let isExact = true;
  let shift = 0;
  let added = 0;
  let removed = 0;
  let newline = endsInNewline || lines.length === 0;

  for (const hunk of hunks) {
    const old = patchLines(hunk.lines, '-');
    const place = findPlace(hunk, old);
    if ('why' in place) {
      const wanted = old.map((line) => line.text).join('\n');
      const near =
        old.length === 0 || place.isClear
          ? undefined
          : await nearestBlock({ text: lines.map((line) => line.text).join('\n'), wanted });
      const there = near || place.at === undefined ? undefined : linesThere(place.at, old.length);
      return { type: 'failed', hunk: hunk.name, why: place.why, ...(near && { near }), ...(there && { there }) };
    }
    const { first, level, lead, tail } = place;
    if (hunk.start !== undefined) {
      const expected = expectedAt(hunk, old) + lead;
      if (first !== expected)
        notes.push(`${hunk.name} was applied at line ${first + 1}, not at ${Math.max(expected + 1, 1)}`);
      shift += first - expected;
    }
    if (LEVEL_NOTES[level] !== undefined) {
      isExact = false;
      notes.push(`${hunk.name} was applied at line ${first + 1}${LEVEL_NOTES[level]}: check its indentation`);
    }
    if (lead + tail > 0) {
      isExact = false;
      notes.push(
        `${hunk.name} was applied without comparing its first ${lead} and last ${tail} lines of context: check it`,
      );
    }
    keep(first);
    for (const line of hunk.lines.slice(lead, hunk.lines.length - tail)) {
      if (line[0] === '+') {
        const { text: addedText, isTwice: asWritten } = lineOf(line.slice(1));
        // A patch that matches with its line ends is exact. Otherwise new lines end as most lines do.
        output.push({ text: addedText, isTwice: level === 0 && old.length > 0 ? asWritten : isTwice });
        added++;
      } else {
        if (line[0] === ' ') output.push(lines[cursor]!);
        else removed++;
        cursor++;
      }
    }
    if (cursor === lines.length) {
      if (hunk.endsWithout.new) newline = false;
      else if (hunk.endsWithout.old) newline = true;
    }
  }
  keep(lines.length);
  const ended = output.map((line) => `${line.text}${line.isTwice ? '\r\n' : '\n'}`).join('');
  return { type: 'patched', text: newline ? ended : ended.replace(/\r?\n$/, ''), added, removed, notes, isExact };

  function keep(until: number): void {
    while (cursor < until) output.push(lines[cursor++]!);
  }

  function expectedAt({ start = 0 }: Hunk, old: readonly Line[]): number {
    return start - (old.length === 0 ? 0 : 1) + shift;
  }

  /**
   * Where the old lines are: where the hunk says, or else at the only place after the hunk before. `isClear`: the reason needs no
   * lines of the file. `at`: where the hunk says that they are.
   */
  function findPlace(hunk: Hunk, old: readonly Line[]): Place | { why: string; isClear?: true; at?: number } {
    let from = cursor;
    for (const anchor of hunk.anchors) {
      const found = findAnchor(anchor, from);
      if (found < 0) {
        return { why: `there is no line ${JSON.stringify(anchor.slice(0, 200))} after line ${from}`, isClear: true };
      }
      from = found + 1;
    }
    if (old.length === 0) {
      if (hunk.atEnd) return { first: lines.length, ...EXACT };
      const first = hunk.start === undefined ? from : expectedAt(hunk, old);
      if (first >= from && first <= lines.length) return { first, ...EXACT };
      return { why: `the file has ${lines.length} lines, and the lines before ${from + 1} are taken`, isClear: true };
    }
    const whole = findLines(hunk, { old, from, lead: 0, tail: 0 });
    if (whole) return whole;
    if (isApplied(hunk)) return { why: 'it seems to be applied already', isClear: true };
    for (let fuzz = 1; fuzz <= MAX_FUZZ && !hunk.atEnd; fuzz++) {
      const lead = contextAt(hunk.lines, fuzz);
      const tail = contextAt(hunk.lines.toReversed(), fuzz);
      const part = old.slice(lead, old.length - tail);
      const isEnough = part.length >= (hunk.lines.some((line) => line[0] === '-') ? 1 : MIN_CONTEXT);
      const found = isEnough && findLines(hunk, { old: part, from, lead, tail });
      if (found) return found;
    }
    const said = hunk.atEnd ? lines.length - old.length : hunk.start === undefined ? from : expectedAt(hunk, old);
    const isSaid = hunk.atEnd || hunk.start !== undefined || hunk.anchors.length > 0;
    return {
      why: `its lines are not in the file${from > 0 ? ` after line ${from}` : ''}`,
      ...(isSaid && { at: said }),
    };
  }

  /** Undefined: they are nowhere. */
  function findLines(
    hunk: Hunk,
    { old, from, lead, tail }: { old: readonly Line[]; from: number; lead: number; tail: number },
  ): Place | { why: string; isClear: true } | undefined {
    const isFuzzy = lead + tail > 0;
    for (const [level, fold] of LEVELS.slice(0, isFuzzy ? FUZZY_LEVELS : LEVELS.length).entries()) {
      const wanted = old.map(fold);
      const there = at(level);
      const expected = hunk.atEnd
        ? lines.length - old.length
        : hunk.start === undefined
          ? -1
          : expectedAt(hunk, old) + lead;
      if (expected >= from && matches(there, wanted, expected)) return { first: expected, level, lead, tail };
      const places: number[] = [];
      for (let index = there.indexOf(wanted[0]!, from); index >= 0; index = there.indexOf(wanted[0]!, index + 1)) {
        if (!matches(there, wanted, index)) continue;
        places.push(index);
        if (places.length > MAX_PLACES || hunk.anchors.length > 0) break;
      }
      if (places.length === 1) return { first: places[0]!, level, lead, tail };
      // What is left of the lines may be anywhere, so the places would say little.
      if (places.length > 1 && isFuzzy) return undefined;
      if (places.length > 1) {
        const shown = places.slice(0, MAX_PLACES).map((place) => place + 1);
        const more = places.length > MAX_PLACES ? ' and more' : '';
        return {
          why: `its lines are at several places (lines ${shown.join(', ')}${more}). Add lines of context, or an "@@" line with a line above it`,
          isClear: true,
        };
      }
    }
    return undefined;
  }

  /** As many lines as the hunk has, with context. The last ones if the place is behind the end. */
  function linesThere(at: number, length: number): LinesThere {
    const last = Math.min(Math.max(at, 0) + length + CONTEXT_LINES, lines.length);
    const first = Math.max(Math.min(at, last - length) - CONTEXT_LINES, last - MAX_LINES_THERE, 0);
    return {
      line: first + 1,
      lines: lines.slice(first, last).map(({ text: one }) => cutLine(one)),
      count: lines.length,
    };
  }

  function findAnchor(anchor: string, from: number): number {
    const trimmed = lines.findIndex((line, index) => index >= from && line.text.trim() === anchor);
    return trimmed >= 0 ? trimmed : lines.findIndex((line, index) => index >= from && line.text.includes(anchor));
  }

  function isApplied(hunk: Hunk): boolean {
    const wanted = patchLines(hunk.lines, '+').map(LEVELS[1]);
    if (wanted.length === 0 || !hunk.lines.some((line) => line[0] === '+' && line.trim() !== '+')) return false;
    const there = at(1);
    for (let index = there.indexOf(wanted[0]!); index >= 0; index = there.indexOf(wanted[0]!, index + 1)) {
      if (matches(there, wanted, index)) return true;
    }
    return false;
  }
}

/** How many lines at the beginning are context, `most` at most. */
function contextAt(lines: readonly string[], most: number): number {
  const end = lines.findIndex((line) => line[0] !== ' ');
  return Math.min(end, most);
}

function matches(there: readonly string[], wanted: readonly string[], from: number): boolean {
  if (from + wanted.length > there.length) return false;
  for (let at = 0; at < wanted.length; at++) if (there[from + at] !== wanted[at]) return false;
  return true;
}

/** The lines before (`-`) or after (`+`) the hunk. */
function patchLines(lines: readonly string[], marker: '-' | '+'): readonly Line[] {
  return lines.filter((line) => line[0] === ' ' || line[0] === marker).map((line) => lineOf(line.slice(1)));
}

function lineOf(text: string): Line {
  return text.endsWith('\r') ? { text: text.slice(0, -1), isTwice: true } : { text, isTwice: false };
}

function linesOf(text: string): { lines: readonly Line[]; endsInNewline: boolean; isTwice: boolean } {
  const endsInNewline = text.endsWith('\n');
  const parts = text === '' ? [] : text.split('\n');
  if (endsInNewline) parts.pop();
  const lines: Line[] = parts.map(lineOf);
  const isTwice = lineEndOf(text) === '\r\n';
  const last = lines.at(-1);
  if (last && !endsInNewline && isTwice) lines[lines.length - 1] = { ...last, isTwice };
  return { lines, endsInNewline, isTwice };
}
