import { execFile, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

/**
 * The commit that the loop is compared with. It stays the same, so that slowdowns add up which are each within noise. It is
 * the fastest one known, before memory, policies, programs and parked calls, and its core has the dependencies of today.
 * Change it only if it cannot be loaded any more, and then measure the budgets again.
 */
export const BASELINE = 'f18ca462123f051c768b3016b18add5095983fc0';

export interface Workload {
  readonly name: 'whole' | 'stream' | 'journal';
  /** Deltas of each reply. With deltas, the run has a listener. */
  readonly deltas: number;
  readonly hasJournal: boolean;
  /** At most this times the CPU time of the baseline. */
  readonly budget: number;
}

/**
 * W7 of `npm run bench`, and the same with a journal in memory. When the budgets were set, the ratios were 0.91, 0.94 and
 * 1.05, and up to 0.92, 0.95 and 1.07 with other load: with a journal, a start also computes the digest of what it pins, which the baseline does not have.
 */
export const WORKLOADS: readonly Workload[] = [
  { name: 'whole', deltas: 0, hasJournal: false, budget: 0.97 },
  { name: 'stream', deltas: 10, hasJournal: false, budget: 1 },
  { name: 'journal', deltas: 0, hasJournal: true, budget: 1.12 },
];

export const ROOT: string = path.resolve(import.meta.dirname, '../..');

/** A folder with `packages/core` as it was in a commit; undefined if the repository does not have the commit. */
export function treeOf(commit: string): string | undefined {
  const found = git('rev-parse', '--verify', '--quiet', `${commit}^{commit}`);
  if (found === undefined) return undefined;
  const cache = path.join(ROOT, '.cache/baseline');
  const tree = path.join(cache, found.trim());
  if (existsSync(tree)) return tree;
  mkdirSync(cache, { recursive: true });
  // Renamed when it is complete, because the process may be interrupted.
  const partial = mkdtempSync(path.join(cache, 'partial-'));
  try {
    const archive = path.join(partial, 'core.tar');
    git('archive', '--output', archive, found.trim(), 'packages/core/package.json', 'packages/core/src');
    const { status, stderr } = spawnSync('tar', ['-xf', archive, '-C', partial], { encoding: 'utf8' });
    if (status !== 0) throw new Error(`The archive of ${commit} could not be unpacked: ${stderr}`);
    rmSync(archive);
    renameSync(partial, tree);
    return tree;
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/** What git prints; undefined if it fails, also because there is no repository. */
function git(...args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  return status === 0 ? stdout : undefined;
}

/** What to do if the commit is missing. */
export const NO_HISTORY: string =
  `The baseline ${BASELINE.slice(0, 8)} is not in this repository, so the speed of the loop is NOT compared with it. ` +
  'Fetch the whole history: git fetch --unshallow';

/** CPU microseconds per turn, for each tree the values of all rounds of one process. */
export type Samples = readonly (readonly number[])[];

/** How the loop is optimised differs between processes by several percent, so one is not enough. */
const PROCESSES = 5;

/** Measures trees in several processes, one after the other. In each of them the trees alternate. */
export async function measure(workload: Workload, trees: readonly string[]): Promise<readonly Samples[]> {
  const processes: Samples[] = [];
  for (let index = 0; index < PROCESSES; index++) {
    const job = JSON.stringify({ workload, trees, index });
    const args = ['--conditions=treadle-source', path.join(import.meta.dirname, 'process.ts'), job];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT });
    processes.push(JSON.parse(stdout) as Samples);
  }
  return processes;
}

/** The CPU time of each tree. Noise only adds time, so of each process the lowest value counts; of all, the median. */
export function timesOf(processes: readonly Samples[]): readonly number[] {
  return ofTrees(processes, (samples, tree) => Math.min(...samples[tree]!));
}

/** The CPU time of each tree as a multiple of that of the first, compared within each process. */
export function ratiosOf(processes: readonly Samples[]): readonly number[] {
  return ofTrees(processes, (samples, tree) => Math.min(...samples[tree]!) / Math.min(...samples[0]!));
}

function ofTrees(processes: readonly Samples[], of: (samples: Samples, tree: number) => number): readonly number[] {
  return processes[0]!.map((_, tree) => median(processes.map((samples) => of(samples, tree))));
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** The ratio of this checkout to the baseline; undefined if the baseline is missing. Measures again if it is over budget. */
export async function ratioToBaseline(workload: Workload, take: typeof measure = measure): Promise<number | undefined> {
  const tree = treeOf(BASELINE);
  if (tree === undefined) return undefined;
  const ratio = async (): Promise<number> => ratiosOf(await take(workload, [tree, ROOT]))[1]!;
  const first = await ratio();
  return first <= workload.budget ? first : Math.min(first, await ratio());
}
