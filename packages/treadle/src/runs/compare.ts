import { diffRuns, firstDifference, walkInSlices, type Difference, type RunDiff } from '@treadle/core';
import { entryLines, plural, shortId, shownEntries, type EntryLine } from '@treadle/core/describe';
import { EXIT, type Command } from '../command-line/command.ts';
import type { Colours } from '../terminal/colours.ts';
import { oneLine, padded } from '../terminal/printable.ts';
import { shortLine } from './entry-lines.ts';
import { readRun, runsCommand, type StoredRun } from './store-access.ts';

export const replayCommand: Command = runsCommand('replay ID', {
  summary: 'Replay the journal of a run, and check that it produces the same run',
  details:
    'Executes nothing. Exits with 1 and names the first entry that differs if code, wording or rules have changed since the\n' +
    'run was recorded.',
  examples: ['treadle runs replay 1a2b'],
  async run({ store, args, colours, print }) {
    const { summary, entries } = await readRun(store, args[0]!);
    const replayed = await walkInSlices(entries);
    if (replayed.type === 'replayed') return print(`${plural(entries.length, 'entry', 'entries')} replayed the same.`);
    const { seq, event, effect, difference } = replayed;
    print(
      colours.red(`Run ${shortId(summary.runId)} differs at entry ${seq} of 0 to ${entries.length - 1}.`),
      `  event       ${event}`,
      ...(effect === undefined ? [] : [`  effect      ${effect}`]),
      `  difference  ${oneLine(difference, 1_000)}`,
    );
    return EXIT.failed;
  },
});

/** Two runs are printed side by side on terminals with at least this many columns. */
const WIDE_TERMINAL = 100;

export const diffCommand: Command = runsCommand('diff A B', {
  summary: 'Show where two runs first differ, and how each continued',
  details:
    `Ignores times and run ids. On a terminal with at least ${WIDE_TERMINAL} columns the runs are shown side by side.\n` +
    'Exits with 0 if the runs are the same, with 1 if they differ.',
  examples: ['treadle runs diff 1a2b 3c4d'],
  async run({ store, args, io: { stdout }, colours, print }) {
    const a = await readRun(store, args[0]!);
    const b = await readRun(store, args[1]!);
    const diff = diffRuns(a.entries, b.entries);
    if (diff.rest.length === 0) return print(`All ${plural(diff.same, 'entry is', 'entries are')} the same.`);
    const width = stdout.columns ?? 120;
    print(differenceText(diff, colours, width));
    const groups = stdout.isTTY && width >= WIDE_TERMINAL ? [{ A: a, B: b }] : [{ A: a }, { B: b }];
    for (const runs of groups) print('', await entryColumns(runs, diff.same, colours, width));
    return EXIT.failed;
  },
});

function differenceText({ same, rest }: RunDiff, colours: Colours, width: number): readonly string[] {
  const { a, b } = rest[0]!;
  const start =
    same === 0 ? 'The first entries differ.' : `The first ${plural(same, 'entry is', 'entries are')} the same.`;
  if (!a || !b) return [start, `Entry ${same} is missing in ${a ? 'B' : 'A'}.`];
  if (a.event.type !== b.event.type) return [start, `Entry ${same} is ${a.event.type} in A and ${b.event.type} in B.`];
  const found = firstDifference(a.event, b.event);
  if (!found) return [start];
  const [inA, inB] = excerpts(found).map((text) => colours.red(oneLine(text, width - 5)));
  return [start, `Entry ${same}, ${a.event.type}, differs in ${found.path}:`, `  A  ${inA}`, `  B  ${inB}`];
}

type NamedRuns = Readonly<Record<string, StoredRun>>;

/** The entries of the runs from entry `from` on, with one column per run. */
async function entryColumns(
  named: NamedRuns,
  from: number,
  colours: Colours,
  width: number,
): Promise<readonly string[]> {
  const runs = Object.entries(named);
  const digits = Math.max(3, ...runs.map(([, { entries }]) => String(entries.length - 1).length));
  const cellWidth = Math.floor((width - digits - 2 - 3 * (runs.length - 1)) / runs.length);
  const columns: (readonly EntryLine[])[][] = [];
  for (const [name, { summary, entries }] of runs) {
    const heading = `${name} ${shortId(summary.runId)}${entries.length > from ? '' : ' (no more entries)'}`;
    const steps = (await shownEntries(entries)).slice(from);
    columns.push([
      [{ head: heading, tone: 'bold' }],
      ...steps.map((step) => entryLines(step).filter(({ detail }) => !detail)),
    ]);
  }
  const rows: string[] = [];
  for (let index = 0; index < Math.max(...columns.map(({ length }) => length)); index++) {
    const cells = columns.map((column) => column[index] ?? []);
    for (let at = 0; at < Math.max(...cells.map(({ length }) => length)); at++) {
      const texts = cells.map((lines, column) => {
        const line: EntryLine = lines[at] ?? { head: '', tone: 'plain' };
        const text = shortLine(line, cellWidth);
        return colours[line.tone](column < runs.length - 1 ? padded(text, cellWidth) : text);
      });
      const number = index > 0 && at === 0 ? String(from + index - 1) : '';
      rows.push(`${colours.dim(number.padStart(digits))}  ${texts.join(` ${colours.dim('│')} `)}`.trimEnd());
    }
  }
  return rows;
}

const SHARED_CHARS = 20;

/** Both values, from shortly before the first character that differs. */
export function excerpts({ a, b }: Difference): readonly string[] {
  const texts = [a, b].map((value) => (typeof value === 'string' ? value : (JSON.stringify(value) ?? 'nothing')));
  const [first, second] = texts as [string, string];
  let same = 0;
  while (same < first.length && first[same] === second[same]) same++;
  return same <= SHARED_CHARS * 2 ? texts : texts.map((text) => `…${text.slice(same - SHARED_CHARS)}`);
}
