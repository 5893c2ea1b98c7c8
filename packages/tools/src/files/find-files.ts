import type { Ops } from '../ops.ts';
import { runJob } from '../workers/run-job.ts';
import { globPattern } from './glob-pattern.ts';
import { ripgrepPaths, type RipgrepRequest } from './ripgrep.ts';
import { visibleFiles } from './walk.ts';
import type { Located, Workspace } from './workspace.ts';

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
  const proposed = await ripgrepPaths(exec, { folder: from.real, skipped: visible.skipped, search, names }, signal);
  const walked = proposed ? undefined : await visible.walk();
  const bytes = proposed ?? Buffer.from(walked!.paths.map((path) => `${path}\0`).join(''));
  const patterns = [pattern ?? '**', ...(names ? [`**/{${names.join(',')}}`] : [])];
  const selected = await runJob('selectPaths', { paths: bytes, patterns }, signal);
  const sorted = selected === '' ? [] : selected.split('\0');
  async function* shown(): AsyncGenerator<string> {
    for (const path of sorted) if (walked || (await visible.includes(path))) yield path;
  }
  return { paths: shown(), isCut: walked?.isCut === true };
}
