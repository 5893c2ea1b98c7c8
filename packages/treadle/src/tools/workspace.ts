import { resolve } from 'node:path';
import { isAbsolute, relative } from 'node:path/posix';
import { DeniedError, guardedFiles, type FileStatus, type FolderEntry, type OpenFile } from '@treadle/tools';

/** The files that the file tools can access. Every path of a model goes through it, each time it is used. */
export interface Workspace {
  /** Throws if the path does not exist or may not be read, even through a symbolic link. */
  locate(path: string): Promise<Located>;
  /** Opens a plain file. The caller closes its handle. */
  open(path: string): Promise<OpenFile>;
  list(path: string): Promise<readonly FolderEntry[]>;
}

export interface Located {
  /** The absolute path without symbolic links, for opening it. */
  readonly real: string;
  /** The path relative to the working folder, with `/`, for messages; `.` is the folder itself. */
  readonly shown: string;
  readonly kind: FileStatus['type'];
  readonly size: number;
}

/** A path that does not exist, cannot be accessed, or is outside the folder. */
export class UnreachableError extends Error {}

/** A path that the policy denies. */
export class DeniedReadError extends UnreachableError {}

/**
 * What the policy says about reads of a file or folder, by its absolute path. `ask`: people have approved the call that names
 * the path, or an entry for its tool allows the call.
 */
export type ReadVerdict = (path: string) => Promise<'allow' | 'ask' | 'deny'>;

const OUTSIDE = 'outside';
const DENIED = 'denied';

/**
 * `readVerdict` is asked about each path when it is used, and about the place that was opened. What it does not deny inside the
 * folder may be read. Outside, that applies only without a symbolic link: a link may lead elsewhere since the call was judged,
 * so its target must be allowed. Without `readVerdict`, everything inside the folder may be read, and nothing else.
 */
export function workspace(folder: string, readVerdict?: ReadVerdict): Workspace {
  const top = resolve(folder).replaceAll('\\', '/');
  const files = guardedFiles({
    folder,
    async check({ path, target = path }) {
      const isInside = inside(top, path) && inside(top, target);
      if (!readVerdict) return isInside ? undefined : OUTSIDE;
      const here = await readVerdict(path);
      const there = path === target ? here : await readVerdict(target);
      if (here === 'deny' || there === 'deny') return DENIED;
      return isInside || path === target || there === 'allow' ? undefined : OUTSIDE;
    },
  });
  const guarded = async <T>(path: string, use: Promise<T>): Promise<T> => {
    try {
      return await use;
    } catch (error) {
      if (!(error instanceof DeniedError)) throw unreachable(path, error);
      if (error.message === OUTSIDE) throw outside(path);
      if (error.message !== DENIED) throw new UnreachableError(error.message);
      throw new DeniedReadError(`The policy does not allow reads of ${JSON.stringify(path)}. Read other files.`);
    }
  };
  return {
    async locate(path) {
      const { path: found, type, size } = await guarded(path, files.stat(path));
      return { real: found, shown: relative(top, found) || '.', kind: type, size };
    },
    open: (path) => guarded(path, files.open(path)),
    list: (path) => guarded(path, files.list(path)),
  };
}

export function inside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== '..' && !way.startsWith('../') && !isAbsolute(way);
}

function outside(path: string): UnreachableError {
  return new UnreachableError(
    `${JSON.stringify(path)} is outside the working folder. Only files inside it are accessible: give a path relative to it, ` +
      `without ".." and symbolic links that lead out of it.`,
  );
}

function unreachable(path: string, error: unknown): UnreachableError {
  const name = JSON.stringify(path);
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return new UnreachableError(`There is no ${name} in the working folder. Use glob to see what is there.`);
    case 'EACCES':
    case 'EPERM':
      return new UnreachableError(`${name} cannot be read: permission denied.`);
    case 'ELOOP':
      return new UnreachableError(`${name} is a symbolic link to itself.`);
    case 'ENAMETOOLONG':
      return new UnreachableError('The path is longer than the file system allows.');
    default:
      return new UnreachableError(`${name} cannot be read: ${(error as Error).message}`);
  }
}
