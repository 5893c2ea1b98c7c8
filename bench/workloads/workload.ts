import type { Contender, Run, StepInput, Task } from '../contenders/contender.ts';
import type { ContenderId, Mode } from '../contenders/list.ts';
import type { Check } from '../measure/check.ts';
import type { Served } from './served.ts';

/** A measured task. Each measurement has its own process. */
export interface Workload {
  /** For example `W1-stream`; `--only W1` selects all workloads with that prefix. */
  readonly id: string;
  readonly title: string;
  readonly metrics: readonly Metric[];
  readonly mode: Mode;
  readonly where: 'http' | 'in-process' | 'start' | 'served';
  /** Every sync of the disk takes 4 ms longer in the measured process. */
  readonly slowDisk?: true;
  /** The contenders that take part. By default all that support the workload. */
  readonly only?: readonly ContenderId[];
  readonly check: readonly Check[];
  /** Called in the measured process with a contender that passed the checks. Absent for `start`, which the parent measures. */
  readonly measure?: (measurement: Measurement) => Promise<Values>;
  /** Replaces `measure` for `served` workloads. */
  readonly served?: Served;
}

export interface Metric {
  readonly id: string;
  readonly title: string;
  readonly unit: string;
  readonly digits: number;
}

/** Values by metric id. */
export type Values = Readonly<Record<string, number>>;

export interface Measurement {
  readonly contender: Contender;
  readonly baseURL: string;
  readonly mode: Mode;
  /** Duration of warm-up and measurement in milliseconds; at least one round is always measured. */
  readonly warmUpMs: number;
  readonly measureMs: number;
}

export function task(
  measurement: Measurement,
  model: string,
  part: Partial<Pick<Task, 'onDelta' | 'step'>> = {},
): Task {
  return { baseURL: measurement.baseURL, model, stream: measurement.mode === 'stream', ...counting(), ...part };
}

/** Counters that reveal a contender that does less work while it is measured. */
let [steps, deltas] = [0, 0];

export function counting(): Pick<Task, 'onDelta' | 'step' | 'maxTurns'> {
  return {
    maxTurns: 1_000,
    onDelta: () => void deltas++,
    step: ({ index }: StepInput) => {
      steps++;
      return `step ${index} done, and all is well so far`;
    },
  };
}

interface Expected {
  readonly steps?: number;
  readonly deltas?: number;
}

/** CPU microseconds per run, averaged over the runs that fit into the time. Throws if a run did less than expected. */
export async function cpuOf(
  run: Run,
  { warmUpMs, measureMs }: Pick<Measurement, 'warmUpMs' | 'measureMs'>,
  expected: Expected,
): Promise<number> {
  await repeat(run, warmUpMs);
  [steps, deltas] = [0, 0];
  const before = process.cpuUsage();
  const runs = await repeat(run, measureMs);
  const cpu = cpuSince(before) / runs;
  if (expected.steps !== undefined && steps !== runs * expected.steps) {
    throw new Error(`${steps} of ${runs * expected.steps} calls executed while it was measured`);
  }
  if (expected.deltas !== undefined && deltas !== runs * expected.deltas) {
    throw new Error(`${deltas} of ${runs * expected.deltas} deltas delivered while it was measured`);
  }
  return cpu;
}

/** Runs at least once, and until the time has passed. */
export async function repeat(run: () => Promise<unknown>, forMs: number): Promise<number> {
  const end = performance.now() + forMs;
  let runs = 0;
  do {
    await run();
    runs++;
  } while (performance.now() < end);
  return runs;
}

export function cpuSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return user + system;
}
