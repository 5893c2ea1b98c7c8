import { TreadleError, type JournalEntry, type RunStore } from '@treadle/core';
import { observationsOf } from '@treadle/core/memory';
import {
  addMetrics,
  metricsOf,
  NO_METRICS,
  type HourlyMetrics,
  type LoopMetrics,
  type Metrics,
  type ToolMetrics,
} from '@treadle/core/trace';
import type { CountedRun, MetricFilter, MetricStore, NotedRun } from '../ports/metrics.ts';

/** A note as a row, with what its run has counted. */
export interface Note {
  readonly id: number;
  readonly run: string;
  readonly counted: number;
  readonly target: number;
  readonly remembered: number;
}

export function groupNotes(notes: readonly Note[]): readonly NotedRun[] {
  return [...Map.groupBy(notes, ({ run }) => run)].map(([runId, own]) => {
    const { counted, target, remembered } = own[0]!;
    return { runId, notes: own.map(({ id }) => id), counted, target, remembered };
  });
}

/** The numbers of a run that is known. */
export interface StoredCounts {
  readonly counted: number;
  readonly remembered: number;
}

/** Whether nobody else has counted a run since it was read. */
export function isUnchanged({ counted, remembered, memory }: CountedRun, found: StoredCounts | undefined): boolean {
  return (found?.counted ?? 0) === counted && (!memory || (found?.remembered ?? 0) === remembered);
}

/** What is added to a row: the sums of a tool, or those of the loop, which have no name. Names are as they are stored. */
export interface RowSums {
  readonly tenant: string;
  readonly hour: number;
  readonly tool: string;
  readonly sums: Sums;
}

export type Sums = LoopMetrics | ToolMetrics;

/** A row of the table. */
export interface MetricRow {
  readonly hour: number;
  readonly tool: string;
  readonly sums: string;
}

/** What runs add, in one order, so that two transactions do not wait for each other. */
export function rowSums(runs: readonly CountedRun[]): readonly RowSums[] {
  const hours = new Map<string, { readonly tenant: string; readonly hour: number; readonly metrics: Metrics }>();
  for (const { tenant: name, hours: own } of runs) {
    const tenant = storedTenant(name);
    for (const [hour, added] of own) {
      const key = `${hour} ${tenant}`;
      hours.set(key, { tenant, hour, metrics: addMetrics(hours.get(key)?.metrics ?? NO_METRICS, added) });
    }
  }
  return [...hours.values()]
    .flatMap(({ tenant, hour, metrics: { loop, tools } }) => [
      { tenant, hour, tool: '', sums: loop },
      ...Object.entries(tools).map(([tool, sums]) => ({ tenant, hour, tool: tool.toWellFormed(), sums })),
    ])
    .toSorted((a, b) => compare(a.tenant, b.tenant) || a.hour - b.hour || compare(a.tool, b.tool));
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** No tenant has an empty name. */
export function storedTenant(tenant: string | undefined): string {
  return (tenant ?? '').toWellFormed();
}

/** `before`: what the row has; undefined if there is none. */
export function addedSums(before: string | undefined, { tool, sums }: Pick<RowSums, 'tool' | 'sums'>): string {
  if (before === undefined) return JSON.stringify(sums);
  const { loop, tools } = addMetrics(metricsIn(tool, JSON.parse(before) as Sums), metricsIn(tool, sums));
  return JSON.stringify(tool === '' ? loop : tools[tool]);
}

function metricsIn(tool: string, sums: Sums): Metrics {
  if (tool === '') return { loop: sums as LoopMetrics, tools: {} };
  return { ...NO_METRICS, tools: Object.fromEntries([[tool, sums as ToolMetrics]]) };
}

export function sumOfRows(rows: readonly MetricRow[]): Metrics {
  // One tool at a time: the work does not grow with rows times tools.
  const sums = new Map<string, Metrics>();
  for (const { tool, sums: text } of rows) {
    const added = metricsIn(tool, JSON.parse(text) as Sums);
    const before = sums.get(tool);
    sums.set(tool, before ? addMetrics(before, added) : added);
  }
  const { loop } = sums.get('') ?? NO_METRICS;
  const tools = [...sums].flatMap(([, metrics]) => Object.entries(metrics.tools));
  return { loop, tools: Object.fromEntries(tools.toSorted(([a], [b]) => compare(a, b))) };
}

type Counting = Pick<RunStore, 'list' | 'read'> & { readonly metrics: MetricStore };

export interface CountOptions {
  /** How many notes to take at most; default 50. */
  readonly limit?: number;
  /** Whether to keep what runs observed, too. */
  readonly keepsMemory?: boolean;
  /** Called with what was added by this process, except what the sums contained before they were made again. */
  readonly onCounted?: (hours: HourlyMetrics) => void;
}

/** Counts runs that were noted. Resolves to how many notes it took: 0 if there are none. */
export async function countNotedRuns(store: Counting, options: CountOptions = {}): Promise<number> {
  const { limit = 50, keepsMemory = false, onCounted } = options;
  const noted = await store.metrics.noted(limit);
  if (noted.length === 0) return 0;
  const counted = await Promise.all(noted.map((run) => countRun(store, run, keepsMemory ? run.remembered : undefined)));
  const added = new Set(await store.metrics.add(counted));
  for (const { runId, fresh } of counted) if (added.has(runId) && fresh.size > 0) onCounted?.(fresh);
  return noted.reduce((sum, { notes }) => sum + notes.length, 0);
}

const NOTHING: HourlyMetrics = new Map();

/** `fresh`: what was not in the sums before the last `restart`. */
type Count = CountedRun & { readonly fresh: HourlyMetrics };

/** `remembered`: how many entries the memory contains; undefined: this process keeps none. */
async function countRun(store: Counting, run: NotedRun, remembered: number | undefined): Promise<Count> {
  const { runId, counted, target } = run;
  const [summary] = await store.list({ runId, limit: 1 });
  const nothing = { ...run, next: counted, tenant: summary?.tenant, hours: NOTHING, fresh: NOTHING };
  const known = Math.min(counted, remembered ?? counted);
  // A run that goes on is noted again when it stops. After `restart` it counts as before.
  const isCounted = !summary || (summary.status === 'running' ? target : summary.entries) <= known;
  if (isCounted) return nothing;
  const all = await readableEntries(store, runId);
  const entries = summary.status === 'running' ? all.slice(0, target) : all;
  const { length } = entries;
  if (length <= known) return nothing;
  // What does not replay counts for nothing.
  const hoursFrom = async (from: number): Promise<HourlyMetrics> =>
    length > from ? ((await metricsOf(entries, from)) ?? NOTHING) : NOTHING;
  const hours = await hoursFrom(counted);
  const fresh = target > counted ? await hoursFrom(target) : hours;
  const found = { ...nothing, next: Math.max(counted, length), hours, fresh };
  if (remembered === undefined || length <= remembered) return found;
  const observations = (await observationsOf(entries, remembered)) ?? [];
  return { ...found, memory: { next: length, observations } };
}

/** A damaged run cannot be counted, and must not keep others from it. */
async function readableEntries(store: Counting, runId: string): Promise<readonly JournalEntry[]> {
  try {
    return await store.read(runId);
  } catch (error) {
    if (error instanceof TreadleError && error.code === 'journal-damaged') return [];
    throw error;
  }
}

/** What runs have done in a time. */
export interface FoundMetrics {
  readonly metrics: Metrics;
  /** How many notes are not counted yet: 0 if the sums contain every run that has paused or ended. */
  readonly waiting: number;
}

export interface FindMetricsOptions extends MetricFilter, CountOptions {
  /** For how long to count runs before; default 1,000 ms. */
  readonly countMs?: number;
}

/** Counts the runs that have stopped, for a limited time, and adds the sums. `since` and `until` are taken to be those of whole hours. */
export async function findMetrics(store: Counting, options: FindMetricsOptions = {}): Promise<FoundMetrics> {
  const { countMs = 1_000, limit, keepsMemory, onCounted, ...filter } = options;
  const until = performance.now() + countMs;
  const counting = {
    ...(limit !== undefined && { limit }),
    ...(keepsMemory && { keepsMemory }),
    ...(onCounted && { onCounted }),
  };
  // Another process may be counting the same runs: then there is nothing to add, but their notes go.
  while ((await countNotedRuns(store, counting)) > 0 && performance.now() < until);
  const metrics = await store.metrics.read(filter);
  return { metrics, waiting: await store.metrics.waiting() };
}
