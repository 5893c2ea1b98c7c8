import { entryOf, type Entry } from '../contenders/list.ts';
import { workloadOf } from '../workloads/list.ts';
import type { Metric, Values, Workload } from '../workloads/workload.ts';

/** All results of one run of the benchmark, in the form of the JSON file. */
export interface Results {
  readonly date: string;
  readonly machine: Readonly<Record<'node' | 'cpu' | 'pinning', string>>;
  readonly repeats: number;
  readonly quick: boolean;
  readonly versions: Readonly<Record<string, string>>;
  readonly series: readonly Series[];
}

/** The samples of one contender for one workload, or the reason why there are none. */
export interface Series {
  readonly workload: string;
  readonly contender: string;
  readonly samples: readonly Values[];
  readonly wrong?: string;
  readonly failed?: string;
}

/** One line of the report: a metric and the values of all contenders. */
export interface Row {
  readonly workload: Workload;
  readonly metric: Metric;
  readonly cells: readonly Cell[];
}

export interface Cell {
  readonly entry: Entry;
  readonly figure?: Figure;
  /** The reason for a missing value. */
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

/** The reference of the ratios: the fast floor, the minimal loop for in-process rows, the bare proxy for servers. */
export function floorOf(row: Row): number | undefined {
  return medianFor(row, FLOORS[row.workload.where]);
}

export function oursOf(row: Row): number | undefined {
  return medianFor(row, row.workload.where === 'served' ? 'treadle-server' : 'treadle');
}

export function numberOf(value: number, { digits }: Pick<Metric, 'digits'>): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
