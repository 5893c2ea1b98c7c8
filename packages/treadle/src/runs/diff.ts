import { diffRuns, type RunDiff } from '@treadle/core';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import { command, type Command, EXIT } from '../command-line/command.ts';
import { plural } from '../terminal/quantities.ts';
import { oneLine, padded } from '../terminal/printable.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import type { Line } from './event-lines.ts';
import { excerpts, firstDifference } from './first-difference.ts';
import { momentLines } from './moment-lines.ts';
import { momentsOf } from './moments.ts';
import { shortId } from './run-id.ts';
import { readRun, type StoredRun } from './stored-run.ts';
import { lineTexts } from './timeline.ts';
import { withStore } from './with-store.ts';

/** From this many columns on two runs stand side by side. */
const WIDE_ENOUGH = 100;

export const diffCommand: Command = command({
  name: 'runs diff',
  summary: 'Show where two runs first differ, and how both went on',
  arguments: ['A', 'B'],
  flags: PLACE_FLAGS,
  notes: [
    `Times and the runs' own names do not count. On a terminal of ${WIDE_ENOUGH} columns or more the two stand side by side.\n` +
      'Exits with 0 if they are the same, with 1 if not.',
  ],
  run: ({ values, arguments: [first, second] }, io) =>
    withStore(values, io, async (store) => {
      const a = await readRun(store, first!);
      const b = await readRun(store, second!);
      const difference = diffRuns(a.entries, b.entries);
      const print = (lines: readonly string[]): void => void io.stdout.write(`${lines.join('\n')}\n`);
      if (difference.rest.length === 0) {
        print([`All ${plural(difference.same, 'entry is', 'entries are')} the same.`]);
        return EXIT.completed;
      }
      const columns = io.stdout.columns ?? 120;
      const look = { colours: coloursFor(io.stdout, io.env), width: columns };
      print([
        ...whereText(difference, look),
        '',
        ...(io.stdout.isTTY && columns >= WIDE_ENOUGH
          ? sideBySide(a, b, difference.same, look)
          : stacked(a, b, difference.same, look)),
      ]);
      return EXIT.failed;
    }),
});

interface Look {
  readonly colours: Colours;
  readonly width: number;
}

function whereText({ same, rest }: RunDiff, { colours, width }: Look): readonly string[] {
  const alike =
    same === 0
      ? 'They differ from the first entry on.'
      : `${plural(same, 'entry is', 'entries are')} the same, then they differ.`;
  const { a, b } = rest[0]!;
  if (!a || !b) return [alike, `Entry ${same} is not in ${a ? 'B' : 'A'}.`];
  if (a.event.type !== b.event.type) return [alike, `Entry ${same} is ${a.event.type} in A and ${b.event.type} in B.`];
  const found = firstDifference(a.event, b.event);
  if (!found) return [alike];
  const [inA, inB] = excerpts(found);
  return [
    alike,
    `Entry ${same}, ${a.event.type}, first in ${found.path}:`,
    `  A  ${colours.red(oneLine(inA, width - 5))}`,
    `  B  ${colours.red(oneLine(inB, width - 5))}`,
  ];
}

/** What each entry from there on says, in lines of at most that width. */
function told({ entries }: StoredRun, from: number, width: number): readonly (readonly Told[])[] {
  return momentsOf(entries)
    .slice(from)
    .map((moment) =>
      momentLines(moment).flatMap((line): Told[] =>
        line.detail ? [] : lineTexts(line, { width, full: false }, 0).map((text) => ({ text, tone: line.tone })),
      ),
    );
}

interface Told {
  readonly text: string;
  readonly tone: Line['tone'];
}

function sideBySide(a: StoredRun, b: StoredRun, from: number, { colours, width }: Look): readonly string[] {
  const digits = digitsOf(a, b);
  const half = Math.floor((width - digits - 2 - 3) / 2);
  const [left, right] = [told(a, from, half), told(b, from, half)];
  const row = (number: string, first: Told, second: Told): string =>
    `${colours.dim(number.padStart(digits))}  ${colours[first.tone](padded(first.text, half))} ${colours.dim('│')} ` +
    colours[second.tone](second.text);
  const length = Math.max(left.length, right.length);
  return [
    row(
      '',
      { text: `A ${shortId(a.summary.runId)}`, tone: 'bold' },
      { text: `B ${shortId(b.summary.runId)}`, tone: 'bold' },
    ),
    ...Array.from({ length }, (_, index) => {
      const [one, other] = [left[index] ?? [], right[index] ?? []];
      return Array.from({ length: Math.max(one.length, other.length) }, (__, line) =>
        row(line === 0 ? String(from + index) : '', one[line] ?? NOTHING, other[line] ?? NOTHING),
      );
    }).flat(),
  ].map((line) => line.trimEnd());
}

const NOTHING: Told = { text: '', tone: 'plain' };

function digitsOf(a: StoredRun, b: StoredRun): number {
  return Math.max(3, String(Math.max(a.entries.length, b.entries.length) - 1).length);
}

function stacked(a: StoredRun, b: StoredRun, from: number, { colours, width }: Look): readonly string[] {
  const digits = digitsOf(a, b);
  const part = (name: string, run: StoredRun): readonly string[] => [
    colours.bold(`${name} ${shortId(run.summary.runId)}`),
    ...told(run, from, width - digits - 2).flatMap((lines, index) =>
      lines.map(
        ({ text, tone }, line) =>
          `${colours.dim((line === 0 ? String(from + index) : '').padStart(digits))}  ${colours[tone](text)}`,
      ),
    ),
    ...(run.entries.length <= from ? [' '.repeat(digits + 2) + colours.dim('(nothing more)')] : []),
  ];
  return [...part('A', a), '', ...part('B', b)];
}
