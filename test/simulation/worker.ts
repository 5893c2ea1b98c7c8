import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import path from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import type { About, Simulated } from './simulate.ts';

/** Changes a source file: the only occurrence of `from` is replaced. */
export interface Patch {
  /** Relative to `packages`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** What a worker does. */
export interface Work {
  readonly firstSeed: number;
  readonly schedules: number;
  /** Only each of this many seeds: the others belong to other workers. */
  readonly stride: number;
  readonly about: About;
  readonly patches: readonly Patch[];
  /** Stop at the first failure. */
  readonly stopAtFailure: boolean;
}

/** What a worker reports from time to time. */
export interface Progress {
  readonly schedules: number;
  readonly steps: number;
  /** The number of schedules in which something occurred. */
  readonly covered: Readonly<Record<string, number>>;
  readonly failures: readonly Simulated[];
  /** The sum of all digests. */
  readonly digest: number;
  readonly done: boolean;
}

const PACKAGES = path.resolve(import.meta.dirname, '../../packages');

/** Modules that are loaded from now on have the patches. */
function applyPatches(patches: readonly Patch[]): void {
  const byFile = Map.groupBy(patches, ({ file }) => new URL(`file://${path.join(PACKAGES, file)}`).href);
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      const own = byFile.get(url);
      return own ? { ...loaded, source: own.reduce(patched, readFileSync(new URL(url), 'utf8')) } : loaded;
    },
  });
}

function patched(source: string, { file, from, to }: Patch): string {
  const parts = source.split(from);
  if (parts.length === 2) return parts.join(to);
  throw new Error(`packages/${file} must contain this text once, not ${parts.length - 1} times: ${from}`);
}

/** Reports at least this often, in schedules. */
const REPORT_EVERY = 100;

async function work({ firstSeed, schedules, stride, about, patches, stopAtFailure }: Work): Promise<void> {
  if (patches.length > 0) applyPatches(patches);
  // Most errors of a schedule are expected, and stack traces cost time. A replay prints them.
  Error.stackTraceLimit = 0;
  const { simulate } = await import('./simulate.ts');
  let progress = emptyProgress();
  let failed = false;
  for (let index = 0; index < schedules && !(failed && stopAtFailure); index++) {
    const simulated = await simulate(firstSeed + index * stride, { about });
    failed ||= simulated.failure !== undefined;
    progress = progressAfter(progress, simulated);
    if (progress.schedules < REPORT_EVERY) continue;
    parentPort!.postMessage(progress, []);
    progress = emptyProgress();
  }
  parentPort!.postMessage({ ...progress, done: true }, []);
}

function emptyProgress(): Progress {
  return { schedules: 0, steps: 0, covered: {}, failures: [], digest: 0, done: false };
}

function progressAfter(progress: Progress, simulated: Simulated): Progress {
  const { covered } = progress;
  for (const what of simulated.covered) (covered as Record<string, number>)[what] = (covered[what] ?? 0) + 1;
  return {
    ...progress,
    schedules: progress.schedules + 1,
    steps: progress.steps + simulated.steps,
    failures: simulated.failure ? [...progress.failures, simulated] : progress.failures,
    digest: (progress.digest + simulated.digest) >>> 0,
  };
}

if (parentPort) await work(workerData as Work);
