import type { Contender, Run, StepInput, Task } from '../contenders/contender.ts';
import type { ContenderId, Mode } from '../contenders/list.ts';
import type { Check } from '../measure/check.ts';
import type { Served } from './served.ts';

/** Something that contenders are measured at, in a process of its own each time. */
export interface Workload {
  /** `W1-stream`; what is before the dash is the name by which it is chosen. */
  readonly id: string;
  readonly title: string;
  readonly metrics: readonly Metric[];
  readonly mode: Mode;
  readonly where: 'http' | 'in-process' | 'start' | 'served';
  /** Only these take part; default: all that can. */
  readonly only?: readonly ContenderId[];
  readonly check: readonly Check[];
  /** In the measured process, with a contender that passed the checks. Not of `start`, which the parent measures. */
  readonly measure?: (stage: Stage) => Promise<Values>;
  /** Instead, of what is `served`. */
  readonly served?: Served;
}

export interface Metric {
  readonly id: string;
  readonly title: string;
  readonly unit: string;
  readonly digits: number;
}

/** By the ids of the metrics. */
export type Values = Readonly<Record<string, number>>;

export interface Stage {
  readonly contender: Contender;
  readonly baseURL: string;
  readonly mode: Mode;
  /** How long to warm up and how long to measure, in milliseconds; at least one round is always measured. */
  readonly warmUpMs: number;
  readonly measureMs: number;
}

export function task(stage: Stage, model: string, part: Partial<Pick<Task, 'onDelta' | 'step'>> = {}): Task {
  return { baseURL: stage.baseURL, model, stream: stage.mode === 'stream', ...quiet(), ...part };
}

/** Counted, so that nobody is fast by doing less when it matters. */
let [steps, deltas] = [0, 0];

export function quiet(): Pick<Task, 'onDelta' | 'step' | 'maxTurns'> {
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

/** CPU microseconds of one run, over as many as fit into the time; each has to do as much as expected. */
export async function cpuOf(
  run: Run,
  { warmUpMs, measureMs }: Pick<Stage, 'warmUpMs' | 'measureMs'>,
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

/** At least once, and until the time is over. */
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
