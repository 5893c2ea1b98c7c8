import type { CallAnswered } from '../journal/items.ts';
import type { JournalEntry, RunStatus } from '../journal/port.ts';
import { statusOf, walkInSlices } from '../journal/replay.ts';
import type { State } from '../machine/state.ts';
import { textOf, type ErrorType } from '../messages.ts';
import { loggedText } from '../policy/execution-line.ts';
import { callKey, spanReader, type Span } from './spans.ts';
import { sharedBy, type AppliedEntry } from './steps.ts';

/**
 * What runs have done in a time: sums, so that those of several times, runs and processes can be added. Plain JSON. What happened
 * counts for the hour in which it became a fact.
 */
export interface Metrics {
  readonly loop: LoopMetrics;
  readonly tools: Readonly<Record<string, ToolMetrics>>;
}

export interface LoopMetrics {
  /** Runs that have ended, by how. */
  readonly runs: Readonly<Partial<Record<RunStatus, number>>>;
  /** Of the runs that have ended. Those of a child run are its own, and none of the run above. */
  readonly turns: number;
  readonly calls: number;
  /** The working time of the runs that have completed, in milliseconds. */
  readonly answerMs: number;
  /** Turns in which several calls ran at once. */
  readonly parallelBatches: number;
  /** The most calls that ran at once. */
  readonly maxConcurrency: number;
  /** What these turns would have taken longer with one call after the other. */
  readonly wallTimeSavedMs: number;
}

/** The name under which calls of tools that a run did not have are counted: models choose such names. */
export const UNKNOWN_TOOL = '(unknown)';

export interface ToolMetrics {
  readonly calls: number;
  readonly errors: Readonly<Partial<Record<ErrorType, number>>>;
  /** Of these errors, those that were followed by a success of the tool in the same run. */
  readonly recovered: number;
  /** How long the calls ran, and how many did. The time of a call that was lost is not known. */
  readonly ms: number;
  readonly ran: number;
  /** How many calls ran for how long: by the number of their bucket, see `bucketOf`. */
  readonly buckets: Readonly<Record<string, number>>;
  readonly lastError?: LastError;
}

export interface LastError {
  readonly at: number;
  readonly type: ErrorType;
  /** The beginning of its text, without secrets that can be recognised. */
  readonly message: string;
}

export const NO_METRICS: Metrics = {
  loop: { runs: {}, turns: 0, calls: 0, answerMs: 0, parallelBatches: 0, maxConcurrency: 0, wallTimeSavedMs: 0 },
  tools: {},
};

const NO_CALLS: ToolMetrics = { calls: 0, errors: {}, recovered: 0, ms: 0, ran: 0, buckets: {} };

export function addMetrics(a: Metrics, b: Metrics): Metrics {
  const names = new Set([...Object.keys(a.tools), ...Object.keys(b.tools)]);
  return {
    loop: {
      runs: addCounts(a.loop.runs, b.loop.runs),
      turns: a.loop.turns + b.loop.turns,
      calls: a.loop.calls + b.loop.calls,
      answerMs: a.loop.answerMs + b.loop.answerMs,
      parallelBatches: a.loop.parallelBatches + b.loop.parallelBatches,
      maxConcurrency: Math.max(a.loop.maxConcurrency, b.loop.maxConcurrency),
      wallTimeSavedMs: a.loop.wallTimeSavedMs + b.loop.wallTimeSavedMs,
    },
    tools: Object.fromEntries([...names].map((name) => [name, addCalls(toolIn(a, name), toolIn(b, name))])),
  };
}

/** A tool can have the name of a property that every object has. */
function toolIn({ tools }: Metrics, name: string): ToolMetrics | undefined {
  return Object.hasOwn(tools, name) ? tools[name] : undefined;
}

function addCalls(a: ToolMetrics = NO_CALLS, b: ToolMetrics = NO_CALLS): ToolMetrics {
  const last = laterError(a.lastError, b.lastError);
  return {
    calls: a.calls + b.calls,
    errors: addCounts(a.errors, b.errors),
    recovered: a.recovered + b.recovered,
    ms: a.ms + b.ms,
    ran: a.ran + b.ran,
    buckets: addCounts(a.buckets, b.buckets),
    ...(last && { lastError: last }),
  };
}

/** Of two at the same time, always the same one: sums do not depend on their order. */
function laterError(a: LastError | undefined, b: LastError | undefined): LastError | undefined {
  if (!a || !b) return a ?? b;
  if (a.at !== b.at) return a.at > b.at ? a : b;
  return `${a.type} ${a.message}` > `${b.type} ${b.message}` ? a : b;
}

type Counts = Readonly<Partial<Record<string, number>>>;

function addCounts<T extends Counts>(a: T, b: T): T {
  const sum: Record<string, number> = { ...(a as Record<string, number>) };
  for (const [name, count] of Object.entries(b)) sum[name] = (sum[name] ?? 0) + count!;
  return sum as T;
}

/** Four buckets for each doubling, so that a percentile is at most a fifth too high. */
const BUCKETS_PER_DOUBLING = 4;

/** The number of the bucket of a time. */
export function bucketOf(ms: number): number {
  return ms <= 1 ? 0 : Math.ceil(Math.log2(ms) * BUCKETS_PER_DOUBLING);
}

/** The longest time of a bucket. */
export function timeOfBucket(bucket: number): number {
  return Math.round(2 ** (bucket / BUCKETS_PER_DOUBLING));
}

/** The time that `share` of the calls did not exceed, rounded up to the end of its bucket; undefined if none has run. */
export function percentile({ buckets, ran }: Pick<ToolMetrics, 'buckets' | 'ran'>, share: number): number | undefined {
  let left = Math.ceil(ran * share);
  const numbers = Object.keys(buckets)
    .map(Number)
    .toSorted((a, b) => a - b);
  for (const number of numbers) {
    left -= buckets[number]!;
    if (left <= 0) return timeOfBucket(number);
  }
  return undefined;
}

export function errorCount({ errors }: Pick<ToolMetrics, 'errors'>): number {
  return Object.values(errors).reduce((sum, count) => sum + count, 0);
}

export const HOUR_MS = 3_600_000;

/** Metrics by the hour, as the time at which it begins. */
export type HourlyMetrics = ReadonlyMap<number, Metrics>;

/**
 * Counts what entries have done. Those before `from` only say how the run got there: they were counted earlier. So do those that a fork
 * shares with its original.
 */
export function metricsReader(from = 0): { readonly hours: HourlyMetrics; add(entry: AppliedEntry): void } {
  const hours = new Map<number, Metrics>();
  const spans = spanReader();
  /** The times in which the calls of the turn ran. */
  const ran = new Map<string, Span[]>();
  /** The errors that no success has followed, by the name of their tool: what they were counted for. */
  const unrecovered = new Map<string, { readonly hour: number; readonly tool: string }[]>();
  let calls = 0;
  /** The last turn whose model has replied. */
  let repliedTurn = 0;
  /** What was counted when the run ended before: one that its model failed can be resumed. */
  let counted = { turns: 0, calls: 0 };
  /** The working time that a fork shares with its original. */
  let sharedMs = 0;
  let isShared: ReturnType<typeof sharedBy> = () => false;

  const hourNow = (): number => Math.floor(spans.at / HOUR_MS) * HOUR_MS;

  function count(
    increment: { readonly loop?: Partial<LoopMetrics>; readonly tools?: Metrics['tools'] },
    hour = hourNow(),
  ): void {
    const { loop, tools = {} } = increment;
    const added = { loop: { ...NO_METRICS.loop, ...loop }, tools };
    hours.set(hour, addMetrics(hours.get(hour) ?? NO_METRICS, added));
  }

  function countCall({ call, index, result }: CallAnswered, { turn, tools }: State, isCounted: boolean): void {
    calls++;
    const own = ran.get(`t${turn}.${index}`) ?? [];
    const ms = own.reduce((sum, { startedAt, endedAt }) => sum + endedAt! - startedAt, 0);
    const type = result.errorType ?? 'execution_failed';
    const times = own.length > 0 && { ms, ran: 1, buckets: { [bucketOf(ms)]: 1 } };
    const failed = result.isError && {
      errors: { [type]: 1 },
      lastError: { at: spans.at, type, message: firstLine(textOf(result.content)) },
    };
    const isUnknown = result.isError && own.length === 0 && !tools.some(({ name }) => name === call.name);
    const tool = isUnknown ? UNKNOWN_TOOL : call.name;
    if (isCounted) count({ tools: { [tool]: { ...NO_CALLS, calls: 1, ...times, ...failed } } });
    if (result.isError) {
      unrecovered.set(call.name, [...(unrecovered.get(call.name) ?? []), { hour: hourNow(), tool }]);
      return;
    }
    // A recovery counts where its error does, so that no range of hours has more recoveries than errors.
    for (const error of unrecovered.get(call.name) ?? [])
      if (isCounted) count({ tools: { [error.tool]: { ...NO_CALLS, recovered: 1 } } }, error.hour);
    unrecovered.delete(call.name);
  }

  return {
    hours,
    add(step) {
      const { entry, before, state, items } = step;
      for (const span of spans.add(step).ended) {
        const key = callKey(span.effect);
        // Nobody knows how long a call ran that was lost: its span ends when the run is resumed.
        if (key === undefined || span.kind !== 'tool' || span.problem === 'lost') continue;
        ran.set(key, [...(ran.get(key) ?? []), span]);
      }
      const isEnd = state.phase.type === 'ended' && before.phase.type !== 'ended';
      const isBatchOver = before.phase.type === 'tools' && state.phase.type !== 'tools';
      if (entry.event.type === 'run-started') isShared = sharedBy(entry.event);
      if (entry.event.type === 'model-replied') repliedTurn = before.turn;
      const isOfOriginal = isShared(entry);
      const isCounted = entry.seq >= from && !isOfOriginal;
      for (const item of items) if (item.type === 'call-answered') countCall(item, before, isCounted);
      if (isCounted && isBatchOver) count({ loop: batchMetrics([...ran.values()].flat()) });
      if (isCounted && isEnd) {
        const answerMs = statusOf(state) === 'completed' ? state.activeMs - sharedMs : 0;
        const own = { turns: state.turn - counted.turns, calls: calls - counted.calls };
        count({ loop: { runs: { [statusOf(state)]: 1 }, ...own, answerMs } });
      }
      if (isEnd) counted = { turns: state.turn, calls };
      if (isOfOriginal) {
        // The model of the turn that begins with the last shared entry is asked by the fork.
        counted = { turns: repliedTurn, calls };
        sharedMs = state.activeMs;
        // The original recovers from its errors, or does not.
        unrecovered.clear();
      }
      if (isBatchOver) ran.clear();
    },
  };
}

/** The metrics of a stored run, from an entry on. Undefined if its entries do not replay. */
export async function metricsOf(entries: readonly JournalEntry[], from = 0): Promise<HourlyMetrics | undefined> {
  const reader = metricsReader(from);
  const walked = await walkInSlices(entries, reader.add);
  return walked.type === 'replayed' ? reader.hours : undefined;
}

/** What the calls of one turn gained by running at once. */
function batchMetrics(spans: readonly Span[]): Partial<LoopMetrics> {
  const times = spans.map(({ startedAt, endedAt }) => [startedAt, endedAt!] as const);
  const moments = times.flatMap(([from, to]) => (to > from ? [[from, 1] as const, [to, -1] as const] : []));
  // At the same time, calls end before others begin.
  moments.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let [running, most, wall, since] = [0, 0, 0, 0];
  for (const [at, change] of moments) {
    if (running > 0) wall += at - since;
    running += change;
    since = at;
    most = Math.max(most, running);
  }
  const sum = times.reduce((ms, [from, to]) => ms + to - from, 0);
  const maxConcurrency = Math.max(most, Math.min(1, times.length));
  return most > 1 ? { parallelBatches: 1, maxConcurrency, wallTimeSavedMs: sum - wall } : { maxConcurrency };
}

function firstLine(text: string): string {
  return loggedText(text.split('\n', 1)[0]!);
}
