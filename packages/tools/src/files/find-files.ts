import type { Ops } from '../ops.ts';
import { runJob } from '../workers/run-job.ts';
import { globPattern } from './glob-pattern.ts';
import { selectPaths } from './select-paths.ts';
import { ripgrepPaths, type RipgrepRequest } from './ripgrep.ts';
import { visibleFiles } from './walk.ts';
import { workspace, type Located, type Workspace } from './workspace.ts';

/** Matching fewer characters than this takes a few milliseconds, less than a thread needs to start. */
const MAX_STEPS_HERE = 5_000_000;
const CHECKED_AT_ONCE = 100;

export interface FindRequest extends Pick<RipgrepRequest, 'search' | 'names'> {
  /** A folder. */
  readonly from: Located;
  /** Relative to the folder. */
  readonly pattern?: string | undefined;
}

export interface FoundFiles {
  /** Paths relative to the folder, sorted. May contain more than the search wants: other lines have to be tested. */
  readonly paths: AsyncIterable<string>;
  /** There are more files than are looked at. */
  readonly isCut: boolean;
}

/** The files below a folder: with ripgrep if there is one, and by our own walker otherwise. */
export async function findFiles(
  { exec }: Ops,
  space: Workspace,
  { from, pattern, names, search }: FindRequest,
  signal: AbortSignal,
): Promise<FoundFiles> {
  const glob = pattern === undefined ? undefined : globPattern(pattern);
  const visible = visibleFiles({ space, from, pattern: glob, signal });
  const request = { folder: from.real, skipped: visible.skipped, search, names: names ?? glob?.lastNames };
  const proposed = await ripgrepPaths(exec, request, signal);
  const walked = proposed ? undefined : await visible.walk();
  const bytes = proposed ?? Buffer.from(walked!.paths.map((path) => `${path}\0`).join(''));
  const patterns = [pattern ?? '**', ...(names ? [`**/{${names.join(',')}}`] : [])];
  const selection = { paths: bytes, patterns };
  const isSmall = bytes.length * patterns.join().length < MAX_STEPS_HERE;
  const selected = isSmall ? selectPaths(selection) : await runJob('selectPaths', selection, signal);
  const sorted = selected === '' ? [] : selected.split('\0');
  async function* shown(): AsyncGenerator<string> {
    if (walked) return yield* sorted;
    for (let at = 0; at < sorted.length; at += CHECKED_AT_ONCE) {
      const some = sorted.slice(at, at + CHECKED_AT_ONCE);
      const isShown = await Promise.all(some.map((path) => visible.includes(path)));
      yield* some.filter((_, index) => isShown[index]);
    }
  }
  return { paths: shown(), isCut: walked?.isCut === true };
}

/** The plain files below the folder of `ops` that no .gitignore excludes, as paths relative to it. Of very many only some. */
export async function listFiles({ files }: Pick<Ops, 'files'>, signal: AbortSignal): Promise<readonly string[]> {
  const space = workspace(files);
  const { paths } = await visibleFiles({ space, from: await space.locate('.'), signal }).walk();
  return paths;
}
