import type { LoopReport, MetricsReport, ToolReport } from '@treadle/core/trace';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { loadStorePackage, openExistingStore } from '../config/store.ts';
import type { StoreLocation } from '../config/store.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import { alignColumns, oneLine } from '../terminal/printable.ts';
import { durationText, parseAge, plural, timestampText } from '../terminal/quantities.ts';
import { connectToServer, SERVER_FLAGS, SERVER_NOTE, type ServerConnection } from './server-connection.ts';

/** As `GET /v1/metrics/tools` answers. */
type Found = MetricsReport & {
  readonly since: number | null;
  readonly until: number | null;
  readonly waiting: number;
};

export const metricsCommand: Command = defineCommand({
  name: 'metrics',
  summary: SUMMARIES.metrics,
  flags: {
    tools: { type: 'switch', help: 'Print a line for each tool' },
    since: { type: 'text', value: 'TIME', help: 'From then on: an age such as 24h or 7d, or a date; default: all' },
    until: { type: 'text', value: 'TIME', help: 'Until then' },
    rebuild: {
      type: 'switch',
      help: 'Count all runs of the store again; those that were deleted do not count any more',
    },
    ...SERVER_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'Runs count when they pause or end. A time is extended to whole hours. P50 and P99 are the times that half and 99 percent of the\n' +
      'calls did not exceed. RECOVERED is the share of the errors that a success of the tool followed in the same run.',
    SERVER_NOTE,
  ],
  examples: [
    'treadle metrics',
    'treadle metrics --tools --since 24h',
    'treadle metrics --json | jq .loop.average_turns',
  ],
  async run({ values }, io) {
    const context = await resolveContext(values, io);
    const times = { since: timeIn('--since', values.since), until: timeIn('--until', values.until) };
    if (values.rebuild && values.url !== undefined) {
      throw new CommandError(
        '--rebuild counts the runs of the store of this machine, so it cannot be combined with --url.',
      );
    }
    const server = values.rebuild ? undefined : await connectToServer(values, context.store, io);
    const found = server
      ? await serverMetrics(server, times)
      : await storedMetrics(context.store, { ...times, rebuild: values.rebuild === true });
    if (found.waiting > 0) {
      io.stderr.write(`Up to ${plural(found.waiting, 'run')} are not counted yet. Repeat the command in a while.\n`);
    }
    if (values.json) {
      io.stdout.write(`${JSON.stringify(found, null, 2)}\n`);
      return EXIT.completed;
    }
    const colours = coloursFor(io.stdout, io.env);
    const lines = values.tools ? toolLines(found.tools, colours) : loopLines(found.loop, colours);
    io.stdout.write(lines.map((line) => `${line}\n`).join(''));
    return EXIT.completed;
  },
});

interface Times {
  readonly since: number | undefined;
  readonly until: number | undefined;
}

export async function serverMetrics(server: ServerConnection, { since, until }: Times): Promise<Found> {
  const query = new URLSearchParams();
  if (since !== undefined) query.set('since', String(since));
  if (until !== undefined) query.set('until', String(until));
  const found = await server.get<Found & { readonly object?: string }>(`/v1/metrics/tools?${query}`);
  const { object: _, ...metrics } = found;
  return metrics;
}

export async function storedMetrics(
  location: StoreLocation,
  { since, until, rebuild }: Times & { readonly rebuild: boolean },
): Promise<Found> {
  const store = await openExistingStore(location);
  try {
    const { findMetrics } = await loadStorePackage();
    const { HOUR_MS, metricsReport } = await import('@treadle/core/trace');
    const from = since === undefined ? null : Math.floor(since / HOUR_MS) * HOUR_MS;
    const to = until === undefined ? null : Math.ceil(until / HOUR_MS) * HOUR_MS;
    if (rebuild) await store.metrics.restart();
    const { metrics, waiting } = await findMetrics(store, {
      ...(from !== null && { since: from }),
      ...(to !== null && { until: to }),
      countMs: rebuild ? Infinity : COUNT_MS,
    });
    // Another process may have counted them just now.
    await store.durable();
    return { since: from, until: to, waiting, ...metricsReport(metrics) };
  } finally {
    await store.close();
  }
}

/** How long a person waits. */
const COUNT_MS = 10_000;

/** A flag that takes an age or a date. */
export function timeIn(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const age = parseAge(text);
  const time = age === undefined ? (/^\d{4}-/.test(text) ? Date.parse(text) : NaN) : Date.now() - age;
  if (Number.isSafeInteger(time)) return time;
  throw new CommandError(
    `${flag} must be an age such as 24h or 7d, or a date such as 2026-11-15 or 2026-11-15T12:00:00Z.`,
  );
}

function loopLines(loop: LoopReport, colours: Colours): readonly string[] {
  const {
    runs,
    turns,
    calls,
    average_turns: averageTurns,
    calls_per_turn: perTurn,
    average_answer_ms: answerMs,
  } = loop;
  const ended = Object.entries(runs).map(([status, count]) => `${count} ${status}`);
  const rows: readonly (readonly [string, string])[] = [
    ['runs', ended.join(', ') || 'none has ended'],
    ['turns', `${turns}, ${numberText(averageTurns)} a run`],
    ['calls', `${calls}, ${numberText(perTurn)} a turn`],
    ['answer', answerMs === null ? 'none' : `after ${durationText(answerMs)} on average`],
    [
      'parallel',
      `${plural(loop.parallel_batches, 'turn')}, at most ${plural(loop.max_concurrency, 'call')} at once; ` +
        `${durationText(loop.wall_time_saved_ms)} saved`,
    ],
  ];
  return rows.map(([name, text]) => `${colours.dim(name.padEnd(8))}  ${text}`);
}

export function toolLines(tools: readonly ToolReport[], colours: Colours): readonly string[] {
  if (tools.length === 0) return ['No tool was called.'];
  const rows = tools.map(({ tool, calls, successes, timeouts, latency_ms: latency, ...rates }) => [
    oneLine(tool, 40),
    String(calls),
    successes === calls ? '0' : `${calls - successes} (${percentText(rates.error_rate ?? 0)})`,
    String(timeouts),
    rates.recovery_rate === null ? '' : percentText(rates.recovery_rate),
    ...[latency.average, latency.p50, latency.p99].map((ms) => (ms === null ? '' : durationText(ms))),
    lastErrorText(rates.last_error),
  ]);
  const [head, ...lines] = alignColumns([HEAD, ...rows]).map((row) => row.join('  ').trimEnd());
  return [colours.dim(head!), ...lines];
}

const HEAD = ['TOOL', 'CALLS', 'ERRORS', 'TIMEOUTS', 'RECOVERED', 'AVERAGE', 'P50', 'P99', 'LAST ERROR'];

function lastErrorText(error: ToolReport['last_error']): string {
  return error === null ? '' : oneLine(`${timestampText(error.at)} ${error.type}: ${error.message}`, 90);
}

const percentText = (share: number): string => `${Math.round(share * 1_000) / 10} %`;
const numberText = (value: number | null): string => (value === null ? '0' : String(Math.round(value * 100) / 100));
