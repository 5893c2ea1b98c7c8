import { existsSync } from 'node:fs';
import type { RunStore, RunSummary } from '@treadle/core';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import { command, type Command, EXIT } from '../command-line/command.ts';
import { findPlace } from '../config/context.ts';
import { padded, oneLine } from '../terminal/printable.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { noStore, openExistingStore } from '../config/store.ts';
import { ageText } from '../terminal/quantities.ts';
import { isChild, shortId } from './run-id.ts';
import { STANDINGS, standingOf, type Standing } from './run-standing.ts';

const DEFAULT_LIMIT = 20;

interface Listed extends RunSummary {
  readonly standing: Standing;
}

export const listCommand: Command = command({
  name: 'runs list',
  summary: 'List runs, newest first',
  flags: {
    status: {
      type: 'choice',
      choices: STANDINGS,
      value: 'STATUS',
      many: true,
      help: `One or more of ${STANDINGS.join(', ')}`,
    },
    limit: { type: 'count', value: 'N', min: 1, help: `At most N; default: ${DEFAULT_LIMIT}` },
    json: { type: 'switch', help: 'Print JSON' },
    ...PLACE_FLAGS,
  },
  notes: [
    'A run is interrupted if it is in the middle and no process drives it. The age is that of its beginning. A run that\n' +
      'works for another has the id of that one, followed by that of the call.',
    'Examples:\n' +
      '  treadle runs list --status interrupted --status paused\n' +
      '  treadle runs list --json --limit 1000 | jq \'.[] | select(.model == "demo") | .runId\'',
  ],
  async run({ values }, io) {
    const { store: place } = await findPlace(values, io);
    if (place.type === 'sqlite' && !existsSync(place.file)) {
      if (values.json) io.stdout.write('[]\n');
      io.stderr.write(`${noStore(place.file)}\n`);
      return EXIT.completed;
    }
    const store = await openExistingStore(place);
    try {
      const limit = values.limit ?? DEFAULT_LIMIT;
      // One more, to know whether there are more.
      const found = await listRuns(store, values.status, limit + 1);
      const runs = found.slice(0, limit);
      if (values.json) {
        io.stdout.write(`${JSON.stringify(runs, null, 2)}\n`);
        return EXIT.completed;
      }
      if (runs.length === 0) io.stderr.write(values.status ? 'There are no such runs.\n' : 'There are no runs yet.\n');
      else {
        const width = io.stdout.isTTY ? (io.stdout.columns ?? 80) : Infinity;
        io.stdout.write(
          `${runTable(runs, { colours: coloursFor(io.stdout, io.env), width, now: Date.now() }).join('\n')}\n`,
        );
      }
      if (found.length > limit) io.stderr.write(`There are more: --limit ${limit * 5}\n`);
      return EXIT.completed;
    } finally {
      await store.close();
    }
  },
});

/** `interrupted` is no status of the store's: it is found among what is `running`. */
async function listRuns(
  store: RunStore,
  wanted: readonly Standing[] | undefined,
  limit: number,
): Promise<readonly Listed[]> {
  if (!wanted) return withStanding(store, await store.list({ limit }));
  const statuses = [...new Set(wanted.map((standing) => (standing === 'interrupted' ? 'running' : standing)))];
  const split = statuses.includes('running');
  const found = await withStanding(store, await store.list({ status: statuses, limit: split ? Infinity : limit }));
  return found.filter(({ standing }) => wanted.includes(standing)).slice(0, limit);
}

function withStanding(store: RunStore, runs: readonly RunSummary[]): Promise<readonly Listed[]> {
  return Promise.all(runs.map(async (run) => ({ ...run, standing: await standingOf(store, run) })));
}

const HEADINGS = ['ID', 'STATUS', 'AGE', 'ENTRIES', 'MODEL'] as const;
const WIDEST_MODEL = 18;
const NARROWEST_TITLE = 12;

function runTable(
  runs: readonly Listed[],
  { colours, width, now }: { readonly colours: Colours; readonly width: number; readonly now: number },
): readonly string[] {
  const rows = runs.map(({ runId, standing, startedAt, entries, model }) => [
    shortId(runId),
    standing,
    ageText(now - startedAt),
    String(entries),
    oneLine(model, WIDEST_MODEL),
  ]);
  const widths = HEADINGS.map((heading, column) => Math.max(heading.length, ...rows.map((row) => row[column]!.length)));
  const cells = (row: readonly string[]): readonly string[] =>
    row.map((cell, column) =>
      HEADINGS[column] === 'ENTRIES' ? cell.padStart(widths[column]!) : padded(cell, widths[column]!),
    );
  const left = widths.reduce((sum, one) => sum + one + 2, 0);
  const room = Math.max(NARROWEST_TITLE, width - left);
  return [
    colours.dim([...cells(HEADINGS), 'TITLE'].join('  ')),
    ...rows.map((row, index) => {
      const [id, standing, ...rest] = cells(row);
      const paint = colours[TONES[runs[index]!.standing]];
      return [id, paint(standing!), ...rest, oneLine(titleOf(runs[index]!), room)].join('  ').trimEnd();
    }),
  ];
}

function titleOf(run: RunSummary): string {
  return run.parent !== undefined && !isChild(run) ? `(fork of ${shortId(run.parent)}) ${run.title}` : run.title;
}

const TONES = {
  running: 'bold',
  interrupted: 'bold',
  paused: 'bold',
  completed: 'plain',
  exhausted: 'red',
  failed: 'red',
  cancelled: 'dim',
} as const satisfies Record<Standing, keyof Colours>;
