import { accessSync, constants, lstatSync, readdirSync, type BigIntStats, type Dirent } from 'node:fs';

/*
 * What was found in folders, for as long as they stay the same. Looking at the time of a folder costs one call; reading it and
 * judging its entries costs far more.
 *
 * 1. A new, removed or renamed entry changes both times of its folder. A program can set the first one back, and not the second.
 * 2. A folder that was changed shortly before it was read may change again within the same tick of the clock. It is read again
 *    the next time.
 */

/** Longer than the ticks of every file system, which are two seconds at most. */
const SETTLED_MS = 3_000;

export type FolderCache<T> = (path: string, judge: (entries: readonly Dirent[] | undefined) => T) => T;

/**
 * Judges the entries of a folder, or returns what was said about them before. Undefined: they cannot be read. What is no folder any
 * more has none. It does not wait for the system in other threads: a project has so many folders that this would cost more than
 * looking at them.
 */
export function folderCache<T>(now: () => number = Date.now): FolderCache<T> {
  const known = new Map<string, { readonly state: string; readonly found: T }>();
  return (path, judge) => {
    const readAt = now();
    const before = statusOf(path);
    const state = before && `${before.dev} ${before.ino} ${before.mtimeNs} ${before.ctimeNs}`;
    const last = known.get(path);
    if (last !== undefined && last.state === state) return last.found;
    const found = judge(entriesIn(path));
    const changedAt =
      before === undefined ? Infinity : Number(before.ctimeMs > before.mtimeMs ? before.ctimeMs : before.mtimeMs);
    if (changedAt < readAt - SETTLED_MS) known.set(path, { state: state!, found });
    else known.delete(path);
    return found;
  };
}

function statusOf(path: string): BigIntStats | undefined {
  try {
    return lstatSync(path, { bigint: true, throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function entriesIn(path: string): readonly Dirent[] | undefined {
  try {
    // Nothing can be said about entries in a folder that cannot be entered.
    accessSync(path, constants.X_OK);
    return readdirSync(path, { withFileTypes: true });
  } catch (error) {
    return ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '') ? [] : undefined;
  }
}
