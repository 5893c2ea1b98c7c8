import { setTimeout } from 'node:timers/promises';
import { HOUR_MS, metricsReport, type HourlyMetrics } from '@treadle/core/trace';
import { countNotedRuns, findMetrics, type FoundMetrics, type MetricFilter } from '@treadle/store';
import type { Engine } from '../../engine/engine.ts';
import { CONTENT_TYPE, type Metrics } from '../../http/metrics.ts';
import { sendJson } from '../../http/respond.ts';
import { route, type Parameters, type Route } from '../../http/routes.ts';
import { checkedQuery, TIME, timeOf } from '../../parse/query.ts';
import type { WireStatus, WireToolMetrics } from './wire.ts';

export interface MetricsRoutesOptions {
  readonly registry: Metrics;
  readonly counter: RunCounter;
  /** Whether the store can be written. */
  readonly ready: () => Promise<boolean>;
  readonly offer: () => Pick<WireStatus, 'models' | 'tools'>;
  readonly runs: () => Pick<WireStatus, 'runs_in_progress' | 'max_runs'>;
}

const QUERY: Parameters = { since: TIME, until: TIME };

export function metricsRoutes({ registry, counter, ready, offer, runs }: MetricsRoutesOptions): readonly Route[] {
  const startedAt = Date.now();
  return [
    route({
      method: 'GET',
      path: '/metrics',
      scope: 'metrics:read',
      summary: 'Metrics for Prometheus',
      answers: [CONTENT_TYPE],
      async handle(c) {
        await counter.count();
        return c.body(registry.text(), 200, { 'content-type': CONTENT_TYPE });
      },
    }),
    route({
      method: 'GET',
      path: '/v1/metrics/tools',
      scope: 'runs:read',
      summary: 'Get what tools and the loop did in a time',
      query: QUERY,
      async handle(c) {
        const query = checkedQuery(c.req.query(), QUERY);
        const since = query['since'] === undefined ? undefined : hourOf(timeOf(query['since'], 'since'));
        const until = query['until'] === undefined ? undefined : nextHour(timeOf(query['until'], 'until'));
        const { tenant } = c.get('caller');
        const { metrics, waiting } = await counter.find({
          tenant,
          ...(since !== undefined && { since }),
          ...(until !== undefined && { until }),
        });
        const times = { since: since ?? null, until: until ?? null };
        return sendJson(c, {
          object: 'metrics',
          ...times,
          waiting,
          ...metricsReport(metrics),
        } satisfies WireToolMetrics);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/status',
      scope: 'metrics:read',
      summary: 'Get the status of the server',
      async handle(c) {
        const status = { object: 'status', ready: await ready(), started_at: startedAt } as const;
        return sendJson(c, { ...status, ...runs(), ...offer() } satisfies WireStatus);
      },
    }),
  ];
}

const hourOf = (time: number): number => Math.floor(time / HOUR_MS) * HOUR_MS;
const nextHour = (time: number): number => Math.ceil(time / HOUR_MS) * HOUR_MS;

/** Counts the runs that have paused or ended, for `/metrics` of this process and for the store. */
export interface RunCounter {
  /** Counts, for a short time. Never rejects. Resolves to whether there may be more. */
  count(): Promise<boolean>;
  find(filter: MetricFilter): Promise<FoundMetrics>;
  /** Counts every now and then, until the returned function is called. */
  start(): () => void;
}

/** Nobody waits for these sums: who asks counts first. */
const COUNT_MS = 60_000;
/** How long a scrape may wait for them. */
const PART_MS = 250;

/** With a memory, it also keeps what the runs observed. */
export function runCounter({
  store,
  log,
  metrics,
  memory,
}: Pick<Engine, 'store' | 'log' | 'metrics' | 'memory'>): RunCounter {
  const since = hourOf(Date.now());
  let isStopped = false;
  let counting: Promise<boolean> | undefined;
  /** What was there before this process is not in its metrics. */
  const onCounted = (hours: HourlyMetrics): void => {
    for (const [hour, one] of hours) if (hour >= since) metrics?.runsCounted(one);
  };
  const options = { onCounted, keepsMemory: memory !== undefined };

  /** Resolves to whether there may be more. */
  async function countFor(ms: number): Promise<boolean> {
    const until = performance.now() + ms;
    try {
      while ((await countNotedRuns(store, options)) > 0) if (performance.now() >= until) return true;
    } catch (error) {
      if (!isStopped) log.error({ err: error }, 'runs could not be counted for the metrics');
    }
    return false;
  }

  const count = (): Promise<boolean> =>
    (counting ??= countFor(PART_MS).finally(() => {
      counting = undefined;
    }));

  /** Of many, such as those of an earlier version, it counts for half of the time. */
  async function countAll(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await count())) await setTimeout(PART_MS, undefined, { ref: false });
    await memory?.embed(signal);
  }

  return {
    count,
    find: (filter) => findMetrics(store, { ...filter, ...options }),
    start() {
      const stopped = new AbortController();
      const timer = setInterval(() => void countAll(stopped.signal), COUNT_MS).unref();
      return () => {
        isStopped = true;
        stopped.abort();
        clearInterval(timer);
      };
    },
  };
}
