import { existsSync } from 'node:fs';
import type { RunStatus } from '@treadle/core';
import type { WireStatus } from '@treadle/server';
import { defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { openExistingStore, rejectMemoryStore, storeText, type StoreLocation } from '../config/store.ts';
import { displayStatus } from '../runs/store-access.ts';
import { coloursFor } from '../terminal/colours.ts';
import { ageText, plural } from '../terminal/quantities.ts';
import { serverMetrics, storedMetrics, toolLines } from './metrics.ts';
import { connectToServer, SERVER_FLAGS, SERVER_NOTE } from './server-connection.ts';

const DAY_MS = 24 * 3_600_000;

export const statusCommand: Command = defineCommand({
  name: 'status',
  summary: SUMMARIES.status,
  flags: {
    tools: { type: 'switch', help: 'Print what each tool did in the last 24 hours' },
    ...SERVER_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'The key needs the scope metrics:read, and runs:read for --tools.',
    SERVER_NOTE,
    'Exit codes:\n  0  the server works, or the store can be read\n  1  the server cannot write to its store',
  ],
  examples: ['treadle status', 'treadle status --tools', 'treadle status --url https://treadle.example.com --json'],
  async run({ values }, io) {
    const { store } = await resolveContext(values, io);
    const server = await connectToServer(values, store, io);
    const times = { since: Date.now() - DAY_MS, until: undefined };
    const status = server ? await server.get<WireStatus>('/v1/status') : await storeStatus(store);
    const hasRuns = server !== undefined || store.type !== 'sqlite' || existsSync(store.file);
    const found =
      values.tools && hasRuns
        ? (await (server ? serverMetrics(server, times) : storedMetrics(store, { ...times, rebuild: false }))).tools
        : undefined;
    const isReady = !('ready' in status) || status.ready;
    const code = isReady ? EXIT.completed : EXIT.failed;
    if (values.json) {
      io.stdout.write(`${JSON.stringify({ ...status, ...(found && { tools_last_24h: found }) }, null, 2)}\n`);
      return code;
    }
    const colours = coloursFor(io.stdout, io.env);
    const rows = 'ready' in status ? serverRows(server!.url, status) : storeRows(status);
    const lines = rows.map(([name, text]) => `${colours.dim(name.padEnd(7))}  ${text}`);
    const tools = found ? ['', ...toolLines(found, colours)] : [];
    io.stdout.write([...lines, ...tools].map((line) => `${line}\n`).join(''));
    return code;
  },
});

interface StoreStatus {
  readonly object: 'store.status';
  readonly store: string;
  readonly runs: Readonly<Partial<Record<RunStatus | 'interrupted', number>>>;
}

/** The runs that have not ended. Those that have may be many. */
async function storeStatus(location: StoreLocation): Promise<StoreStatus> {
  rejectMemoryStore(location);
  const named = { object: 'store.status', store: storeText(location) } as const;
  if (location.type === 'sqlite' && !existsSync(location.file)) return { ...named, runs: {} };
  const store = await openExistingStore(location);
  try {
    const runs: Partial<Record<RunStatus | 'interrupted', number>> = {};
    for (const run of await store.list({ status: ['running', 'paused'], limit: Infinity })) {
      const status = await displayStatus(store, run);
      runs[status] = (runs[status] ?? 0) + 1;
    }
    return { ...named, runs };
  } finally {
    await store.close();
  }
}

type Rows = readonly (readonly [name: string, text: string])[];

function serverRows(url: string, { ready, started_at: startedAt, ...status }: WireStatus): Rows {
  const problem = ready ? '' : '; it cannot write to its store';
  return [
    ['server', `${url}, for ${ageText(Date.now() - startedAt)}${problem}`],
    ['runs', `${status.runs_in_progress} in progress, at most ${status.max_runs}`],
    ['models', status.models.join(', ')],
    ['tools', status.tools.join(', ') || 'none'],
  ];
}

function storeRows({ store, runs }: StoreStatus): Rows {
  const open = Object.entries(runs).map(([status, count]) => `${count} ${status}`);
  const total = Object.values(runs).reduce((sum, count) => sum + count, 0);
  return [
    ['server', 'none on this machine uses the store'],
    ['store', store],
    ['runs', open.length === 0 ? 'none is open' : `${plural(total, 'open run')}: ${open.join(', ')}`],
  ];
}
