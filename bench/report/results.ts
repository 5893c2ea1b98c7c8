import { entryOf, type Entry } from '../contenders/list.ts';
import { workloadOf } from '../workloads/list.ts';
import type { Metric, Values, Workload } from '../workloads/workload.ts';

/** Everything that one run of the benchmark found out; this is what is written as JSON. */
export interface Results {
  readonly date: string;
  readonly machine: Readonly<Record<'node' | 'cpu' | 'pinning', string>>;
  readonly repeats: number;
  readonly quick: boolean;
  readonly versions: Readonly<Record<string, string>>;
  readonly series: readonly Series[];
}

/** The repeats of one contender at one workload, or why there are none. */
export interface Series {
  readonly workload: string;
  readonly contender: string;
  readonly samples: readonly Values[];
  readonly wrong?: string;
  readonly failed?: string;
}

/** One line of what is reported: a metric, and all who were measured by it. */
export interface Row {
  readonly workload: Workload;
  readonly metric: Metric;
  readonly cells: readonly Cell[];
}

export interface Cell {
  readonly entry: Entry;
  readonly figure?: Figure;
  /** Instead of a figure. */
  readonly note?: string;
}

export interface Figure {
  readonly median: number;
  readonly low: number;
  readonly high: number;
}

export function rowsOf({ series }: Results): Row[] {
  const ids = [...new Set(series.map(({ workload }) => workload))];
  return ids.flatMap((id) => {
    const workload = workloadOf(id);
    const own = series.filter((one) => one.workload === id);
    return workload.metrics.map((metric) => ({ workload, metric, cells: own.map((one) => cellOf(one, metric)) }));
  });
}

function cellOf({ contender, samples, wrong, failed }: Series, { id }: Metric): Cell {
  const entry = entryOf(contender);
  if (wrong !== undefined) return { entry, note: `wrong: ${wrong}` };
  if (samples.length === 0) return { entry, note: `failed: ${failed ?? 'not measured'}` };
  const values = samples.map((sample) => sample[id]!).toSorted((a, b) => a - b);
  return { entry, figure: { median: medianOf(values), low: values[0]!, high: values.at(-1)! } };
}

function medianOf(sorted: readonly number[]): number {
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

export function medianFor({ cells }: Row, id: string): number | undefined {
  return cells.find(({ entry }) => entry.id === id)?.figure?.median;
}

const FLOORS = { http: 'fast-floor', start: 'fast-floor', 'in-process': 'minimal', served: 'proxy' } as const;

/** What others are compared with: the fast floor, in the process the minimal loop, of servers the bare proxy. */
export function floorOf(row: Row): number | undefined {
  return medianFor(row, FLOORS[row.workload.where]);
}

export function oursOf(row: Row): number | undefined {
  return medianFor(row, row.workload.where === 'served' ? 'treadle-server' : 'treadle');
}

export function numberOf(value: number, { digits }: Pick<Metric, 'digits'>): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
