import { Worker } from 'node:worker_threads';
import type { About, Simulated } from './simulate.ts';
import type { Patch, Progress, Work } from './worker.ts';

export interface FarmOptions {
  readonly firstSeed?: number;
  readonly schedules: number;
  readonly workers?: number;
  /** `runs`: no schedules with servers. */
  readonly about?: About;
  /** Changes of the source code. */
  readonly patches?: readonly Patch[];
  /** Default: run all schedules. */
  readonly stopAtFailure?: boolean;
  readonly onProgress?: (total: Total) => void;
}

/** The sum of all schedules. */
export interface Total {
  schedules: number;
  steps: number;
  /** Does not depend on the number of workers. */
  digest: number;
  /** The number of schedules in which something occurred. */
  readonly covered: Map<string, number>;
  readonly failures: Simulated[];
}

/** Runs schedules in worker threads, which load the code under test from its sources. */
export async function simulateMany({
  firstSeed = 1,
  schedules,
  workers = 1,
  about = 'everything',
  patches = [],
  stopAtFailure = false,
  onProgress,
}: FarmOptions): Promise<Total> {
  const total: Total = { schedules: 0, steps: 0, digest: 0, covered: new Map(), failures: [] };
  const started: Worker[] = [];
  const work = (index: number): Promise<void> => {
    const own = Math.ceil((schedules - index) / workers);
    const seeds = { firstSeed: firstSeed + index, schedules: own, stride: workers };
    const workerData: Work = { ...seeds, about, patches, stopAtFailure };
    const worker = new Worker(new URL('./worker.ts', import.meta.url), {
      workerData,
      execArgv: ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning'],
    });
    started.push(worker);
    return new Promise((resolve, reject) => {
      worker.on('error', reject);
      worker.on('message', (progress: Progress) => {
        add(total, progress);
        onProgress?.(total);
        if (progress.done || (stopAtFailure && total.failures.length > 0)) resolve();
      });
    });
  };
  try {
    await Promise.all(Array.from({ length: workers }, (_, index) => work(index)));
  } finally {
    await Promise.all(started.map((worker) => worker.terminate()));
  }
  total.failures.sort((a, b) => a.seed - b.seed);
  return total;
}

function add(total: Total, { schedules, steps, digest, covered, failures }: Progress): void {
  total.schedules += schedules;
  total.steps += steps;
  total.digest = (total.digest + digest) >>> 0;
  total.failures.push(...failures);
  for (const [what, count] of Object.entries(covered)) total.covered.set(what, (total.covered.get(what) ?? 0) + count);
}

/** The command that shows a schedule. */
function replayCommand(seed: number): string {
  return `npm run simulate -- --seed ${seed}`;
}

export function describeFailure({ seed, failure }: Simulated): string {
  return `Seed ${seed} violates "${failure!.check}": ${failure!.message}\nReplay it: ${replayCommand(seed)}`;
}
