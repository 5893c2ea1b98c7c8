import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Usage } from '@treadle/core';
import { timeOfBucket, UNKNOWN_TOOL, type Metrics as RunMetrics } from '@treadle/core/trace';

/**
 * Metrics in memory, and their text for Prometheus (text exposition format 0.0.4).
 *
 * 1. Counting costs one map lookup. Nothing is formatted before somebody reads the metrics.
 * 2. The number of series of a metric is bounded: further label values are counted together, as `other`.
 */
export interface Metrics {
  /** Adds a counter. Its name ends with `_total`. */
  counter(name: string, help: string, labels?: readonly string[]): Counter;
  /** Adds a gauge. `read` is called whenever the metrics are read. */
  gauge(name: string, help: string, read: () => number): void;
  /** Adds a gauge with one label. `read` returns the value for each value of the label. */
  gauge(name: string, help: string, read: () => Readonly<Record<string, number>>, label: string): void;
  /** Adds a counter that something else counts. */
  countedElsewhere(name: string, help: string, read: () => number): void;
  /** Adds a histogram. `bounds`: the upper bounds of its buckets, in ascending order. */
  histogram(name: string, help: string, bounds: readonly number[], labels?: readonly string[]): Histogram;
  /** All metrics, as Prometheus reads them. */
  text(): string;
}

export interface Counter {
  /** `labels`: the values of its labels, in their order. */
  add(amount: number, labels?: readonly string[]): void;
}

export interface Histogram {
  observe(value: number, labels?: readonly string[]): void;
  /** The same for many. `values`: each with how often it was observed. Their sum is given, because they may be rounded. */
  add(
    observed: { readonly values: readonly (readonly [number, number])[]; readonly sum: number },
    labels?: readonly string[],
  ): void;
}

/** The most series of one metric. */
const MAX_SERIES = 500;
const OTHER = 'other';

export const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** A registry. Several parts of a program can add their metrics to one. */
export function newMetrics(): Metrics {
  const written = new Map<string, () => string>();

  function add(name: string, type: string, help: string, lines: () => Iterable<string>): void {
    if (!/^[a-zA-Z_:][\w:]*$/.test(name)) throw new Error(`${JSON.stringify(name)} is not a valid name of a metric.`);
    if (written.has(name)) throw new Error(`There is already a metric ${name}. Give the new one another name.`);
    written.set(name, () =>
      [`# HELP ${name} ${escaped(help)}`, `# TYPE ${name} ${type}`, ...lines()].map((line) => `${line}\n`).join(''),
    );
  }

  function gauge(name: string, help: string, read: () => number | Readonly<Record<string, number>>, label = ''): void {
    add(name, 'gauge', help, () => {
      const value = read();
      if (typeof value === 'number') return [`${name} ${numberText(value)}`];
      return Object.entries(value).map(([key, one]) => `${name}${labelText([label], [key])} ${numberText(one)}`);
    });
  }

  return {
    counter(name, help, labels = []) {
      const all = seriesOf(labels, () => ({ value: 0 }));
      // Without labels there is one series, which is shown before anything was counted.
      if (labels.length === 0) all.of([]);
      add(name, 'counter', help, () => all.entries().map(([text, { value }]) => `${name}${text} ${numberText(value)}`));
      return {
        add(amount, values = []) {
          all.of(values).value += amount;
        },
      };
    },
    gauge,
    countedElsewhere(name, help, read) {
      add(name, 'counter', help, () => [`${name} ${numberText(read())}`]);
    },
    histogram(name, help, bounds, labels = []) {
      const all = seriesOf(labels, () => ({ counts: bounds.map(() => 0), sum: 0, count: 0 }));
      if (labels.length === 0) all.of([]);
      add(name, 'histogram', help, function* () {
        for (const [text, { counts, sum, count }] of all.entries()) {
          let below = 0;
          for (const [index, bound] of bounds.entries()) {
            below += counts[index]!;
            yield `${name}_bucket${withLabel(text, 'le', numberText(bound))} ${below}`;
          }
          yield `${name}_bucket${withLabel(text, 'le', '+Inf')} ${count}`;
          yield `${name}_sum${text} ${numberText(sum)}`;
          yield `${name}_count${text} ${count}`;
        }
      });
      return {
        add({ values: observed, sum }, labelValues = []) {
          const series = all.of(labelValues);
          series.sum += sum;
          for (const [value, times] of observed) {
            series.count += times;
            const index = bounds.findIndex((bound) => value <= bound);
            if (index >= 0) series.counts[index]! += times;
          }
        },
        observe(value, values = []) {
          const series = all.of(values);
          series.count += 1;
          series.sum += value;
          for (let index = 0; index < bounds.length; index++) {
            if (value > bounds[index]!) continue;
            series.counts[index]! += 1;
            return;
          }
        },
      };
    },
    text: () => [...written.values()].map((write) => write()).join(''),
  };
}

interface AllSeries<T> {
  of(values: readonly string[]): T;
  /** Each with its labels, as text. */
  entries(): [string, T][];
}

function seriesOf<T>(labels: readonly string[], newSeries: () => T): AllSeries<T> {
  const byKey = new Map<string, { readonly values: readonly string[]; readonly series: T }>();
  const add = (key: string, values: readonly string[]): T => {
    const series = newSeries();
    byKey.set(key, { values: [...values], series });
    return series;
  };
  return {
    of(values) {
      const key = values.length === 1 ? values[0]! : values.join('\0');
      const known = byKey.get(key);
      if (known) return known.series;
      if (byKey.size < MAX_SERIES - 1) return add(key, values);
      const others = labels.map(() => OTHER);
      const otherKey = others.join('\0');
      return byKey.get(otherKey)?.series ?? add(otherKey, others);
    },
    entries: () => [...byKey.values()].map(({ values, series }) => [labelText(labels, values), series]),
  };
}

/** `{route="/v1/models",status="200"}`, or nothing. */
function labelText(names: readonly string[], values: readonly string[]): string {
  if (names.length === 0) return '';
  const pairs = names.map((name, index) => `${name}="${escaped(values[index] ?? '').replaceAll('"', '\\"')}"`);
  return `{${pairs.join(',')}}`;
}

function withLabel(text: string, name: string, value: string): string {
  return text === '' ? `{${name}="${value}"}` : `${text.slice(0, -1)},${name}="${value}"}`;
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

function numberText(value: number): string {
  if (value === Infinity) return '+Inf';
  if (value === -Infinity) return '-Inf';
  return String(value);
}

// The metrics of the server

/** What the server counts. Every label has few values: routes, models and tools of the server, not names of clients. */
export interface ServerMetrics {
  /** A request has ended. `route`: its pattern, such as `/v1/responses/{id}`. */
  requestEnded(method: string, route: string, status: number, ms: number): void;
  /** A request could not be parsed. */
  requestUnreadable(status: number): void;
  /** A run has ended or was interrupted. */
  runEnded(outcome: string, ms: number): void;
  /** A model call. `model`: the name under which the server offers it. */
  modelReplied(model: string, usage: Usage, isFallback: boolean): void;
  modelFailed(model: string, code: string): void;
  toolCalled(tool: string, isError: boolean): void;
  /** What runs did, when they paused or ended: counted by one of all processes. */
  runsCounted(metrics: RunMetrics): void;
  runsRecovered(count: number): void;
  /** The store has committed a transaction. */
  storeCommitted(ms: number, writes: number): void;
  /** Adds what is read whenever the metrics are read. */
  addGauges(gauges: ServerGauges): void;
  addConnections(gauges: ConnectionGauges): void;
  /** Measures the delay of the event loop until the returned function is called. */
  watchEventLoop(): () => void;
}

export interface ServerGauges {
  readonly runsInProgress: () => number;
  readonly maxRuns: number;
  readonly bytesInProgress: () => number;
  readonly maxBytes: number;
}

export interface ConnectionGauges {
  readonly connections: () => number;
  readonly requestsInProgress: () => number;
  /** Requests that wait for the answer to an earlier one on their connection. */
  readonly requestsWaiting: () => number;
}

/** Seconds. A request may be a run of several minutes. */
const REQUEST_BOUNDS = [0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300];
const RUN_BOUNDS = [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const STORE_BOUNDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

/** From a file that is read to a build. */
const TOOL_BOUNDS = [0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300];

/** How often the event loop is looked at. */
const LOOP_MS = 20;

/** `WS` is a message on a WebSocket. Methods that clients invent are counted together. */
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'WS'];

/** Adds the metrics of a server. They need a registry of their own: a second server needs another one. */
export function serverMetrics(all: Metrics): ServerMetrics {
  const requests = all.counter('treadle_http_requests_total', 'HTTP requests that have ended.', [
    'method',
    'route',
    'status',
  ]);
  const requestSeconds = all.histogram(
    'treadle_http_request_duration_seconds',
    'Time from the headers of a request to the end of its response, including streams.',
    REQUEST_BOUNDS,
    ['route'],
  );
  const runs = all.counter('treadle_runs_total', 'Runs that have ended, wait, or were interrupted.', ['outcome']);
  const runSeconds = all.histogram('treadle_run_duration_seconds', 'Time that runs were driven.', RUN_BOUNDS);
  const recovered = all.counter(
    'treadle_runs_recovered_total',
    'Runs of a process that had stopped, or that were due, and were resumed.',
  );
  const calls = all.counter('treadle_model_calls_total', 'Model calls, after all retries and fallbacks.', [
    'model',
    'outcome',
  ]);
  const fallbacks = all.counter('treadle_model_fallbacks_total', 'Replies that came from a fallback of the model.', [
    'model',
  ]);
  const tokens = all.counter(
    'treadle_tokens_total',
    'Tokens that models reported. "cached" is the part of "input" that was read from a cache.',
    ['model', 'type'],
  );
  const cost = all.counter('treadle_cost_dollars_total', 'Cost of model calls whose price is known, in US dollars.', [
    'model',
  ]);
  const toolCalls = all.counter(
    'treadle_tool_calls_total',
    'Calls of tools that have their result. Functions of clients are counted together, as "client".',
    ['tool'],
  );
  const toolErrors = all.counter('treadle_tool_errors_total', 'Calls of tools whose result is an error.', ['tool']);
  const counted = runMetrics(all);
  /** Names of tools of the server. Clients choose the names of their functions, so these are no labels. */
  const toolNames = new Set<string>([UNKNOWN_TOOL]);
  const commitSeconds = all.histogram(
    'treadle_store_commit_duration_seconds',
    'Time from the first write of a transaction until it was durable.',
    STORE_BOUNDS,
  );
  const writes = all.counter('treadle_store_writes_total', 'Writes in committed transactions.');

  return {
    requestEnded(method, route, status, ms) {
      requests.add(1, [METHODS.includes(method) ? method : 'other', route, String(status)]);
      requestSeconds.observe(ms / 1000, [route]);
    },
    requestUnreadable(status) {
      requests.add(1, ['other', UNREADABLE, String(status)]);
    },
    runEnded(outcome, ms) {
      runs.add(1, [outcome]);
      runSeconds.observe(ms / 1000);
    },
    modelReplied(model, usage, isFallback) {
      calls.add(1, [model, 'replied']);
      if (isFallback) fallbacks.add(1, [model]);
      tokens.add(usage.inputTokens, [model, 'input']);
      tokens.add(usage.outputTokens, [model, 'output']);
      if (usage.cachedTokens) tokens.add(usage.cachedTokens, [model, 'cached']);
      if (usage.cost) cost.add(usage.cost, [model]);
    },
    modelFailed: (model, code) => calls.add(1, [model, code]),
    toolCalled(tool, isError) {
      toolNames.add(tool);
      toolCalls.add(1, [tool]);
      if (isError) toolErrors.add(1, [tool]);
    },
    runsCounted: (metrics) => counted(metrics, toolNames),
    runsRecovered: (count) => recovered.add(count),
    storeCommitted(ms, count) {
      commitSeconds.observe(ms / 1000);
      writes.add(count);
    },
    addGauges({ runsInProgress, maxRuns, bytesInProgress, maxBytes }) {
      all.gauge('treadle_runs_in_progress', 'Runs that this process drives or has admitted.', runsInProgress);
      all.gauge('treadle_runs_limit', 'max_concurrent_runs: further runs are rejected.', () => maxRuns);
      all.gauge('treadle_bytes_in_progress', 'Bytes that requests and runs in progress hold.', bytesInProgress);
      all.gauge('treadle_bytes_limit', 'max_bytes_in_progress: further large requests are rejected.', () => maxBytes);
      all.countedElsewhere('process_cpu_seconds_total', 'CPU time of the process.', cpuSeconds);
      all.gauge('process_resident_memory_bytes', 'Memory of the process.', () => process.memoryUsage.rss());
      all.gauge('process_start_time_seconds', 'When the process started, since 1970.', () => startedAt());
    },
    addConnections({ connections, requestsInProgress, requestsWaiting }) {
      all.gauge('treadle_http_connections', 'Open connections.', connections);
      all.gauge('treadle_http_requests_in_progress', 'Requests that are being answered.', requestsInProgress);
      all.gauge(
        'treadle_http_requests_waiting',
        'Pipelined requests that wait until the response before theirs has been sent.',
        requestsWaiting,
      );
    },
    watchEventLoop() {
      const delay = monitorEventLoopDelay({ resolution: LOOP_MS });
      delay.enable();
      /** The values contain the interval at which the event loop is looked at. */
      const seconds = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e9 - LOOP_MS / 1000) || 0;
      all.gauge(
        'treadle_event_loop_delay_seconds',
        'Delay of the event loop since the metrics were read the last time.',
        () => {
          const read = {
            '0.5': seconds(delay.percentile(50)),
            '0.99': seconds(delay.percentile(99)),
            '1': seconds(delay.max),
          };
          delay.reset();
          return read;
        },
        'quantile',
      );
      return () => delay.disable();
    },
  };
}

/** Adds the metrics of what runs did. Returns a function that counts. */
function runMetrics(all: Metrics): (metrics: RunMetrics, toolNames: ReadonlySet<string>) => void {
  const lastErrors: Record<string, number> = {};
  let mostAtOnce = 0;
  const errors = all.counter('treadle_tool_errors_by_type_total', 'Calls whose result is an error, by its type.', [
    'tool',
    'type',
  ]);
  const recovered = all.counter(
    'treadle_tool_recovered_total',
    'Errors that were followed by a success of the tool in the same run.',
    ['tool'],
  );
  const seconds = all.histogram('treadle_tool_duration_seconds', 'Time that calls ran.', TOOL_BOUNDS, ['tool']);
  all.gauge(
    'treadle_tool_last_error_timestamp_seconds',
    'When a call of the tool last failed, since 1970.',
    () => lastErrors,
    'tool',
  );
  const ended = all.counter('treadle_runs_ended_total', 'Runs that have ended, child runs too.', ['status']);
  const turns = all.counter('treadle_turns_total', 'Turns of runs that have ended.');
  const calls = all.counter('treadle_calls_total', 'Calls of runs that have ended.');
  const answers = all.counter('treadle_answer_seconds_total', 'Working time of runs that have completed.');
  const batches = all.counter('treadle_parallel_batches_total', 'Turns in which several calls ran at once.');
  const saved = all.counter('treadle_wall_time_saved_seconds_total', 'Time that these turns gained by it.');
  all.gauge('treadle_max_concurrency', 'The most calls of a turn that ran at once.', () => mostAtOnce);

  return ({ loop, tools }, toolNames) => {
    for (const [status, count] of Object.entries(loop.runs)) ended.add(count, [status]);
    turns.add(loop.turns);
    calls.add(loop.calls);
    answers.add(loop.answerMs / 1000);
    batches.add(loop.parallelBatches);
    saved.add(loop.wallTimeSavedMs / 1000);
    mostAtOnce = Math.max(mostAtOnce, loop.maxConcurrency);
    for (const [name, tool] of Object.entries(tools)) {
      const label = toolNames.has(name) ? name : OTHER;
      for (const [type, count] of Object.entries(tool.errors)) errors.add(count, [label, type]);
      if (tool.recovered > 0) recovered.add(tool.recovered, [label]);
      const values = Object.entries(tool.buckets).map(
        ([bucket, count]) => [timeOfBucket(Number(bucket)) / 1000, count] as const,
      );
      if (values.length > 0) seconds.add({ values, sum: tool.ms / 1000 }, [label]);
      if (tool.lastError) lastErrors[label] = Math.max(lastErrors[label] ?? 0, tool.lastError.at / 1000);
    }
  };
}

/** The route of requests that match none. */
export const NO_ROUTE = '(none)';
const UNREADABLE = '(unreadable)';

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function startedAt(): number {
  return Math.round(performance.timeOrigin) / 1000;
}
