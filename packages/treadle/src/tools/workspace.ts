import { realpath, stat } from 'node:fs/promises';
import { isAbsolute, relative, resolve, sep } from 'node:path';

/** The only folder that file tools can access. Every path of a model is checked by `locate`. */
export interface Workspace {
  /** The real path of the folder, without symbolic links. */
  root(): Promise<string>;
  /** Throws if the path does not exist, or is outside the folder, even through a symbolic link. */
  locate(path: string): Promise<Located>;
}

export interface Located {
  /** The real path, for opening the file. */
  readonly real: string;
  /** The path relative to the working folder, with `/`, for messages; `.` is the folder itself. */
  readonly shown: string;
  readonly kind: 'file' | 'folder' | 'other';
  readonly size: number;
}

export function workspace(folder: string): Workspace {
  const named = resolve(folder);
  let real: Promise<string> | undefined;
  const root = (): Promise<string> => (real ??= realpath(named));

  return {
    root,
    async locate(path) {
      if (path === '') throw new Error('The path is empty. Give one inside the working folder, such as "src/main.ts".');
      if (path.includes('\0'))
        throw new Error('The path contains a NUL byte, which file names cannot contain. Remove it.');
      const top = await root();
      const wanted = resolve(named, path);
      // Checked before the file system is accessed, so that errors do not reveal what exists elsewhere.
      if (!inside(named, wanted) && !inside(top, wanted)) throw outside(path);
      const found = await realpath(wanted).catch((error: unknown) => {
        throw unreachable(path, error);
      });
      if (!inside(top, found)) throw outside(path);
      const facts = await stat(found).catch((error: unknown) => {
        throw unreachable(path, error);
      });
      const kind = facts.isFile() ? 'file' : facts.isDirectory() ? 'folder' : 'other';
      return { real: found, shown: shownPath(top, found), kind, size: facts.size };
    },
  };
}

export function inside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

function shownPath(root: string, path: string): string {
  return relative(root, path).split(sep).join('/') || '.';
}

function outside(path: string): Error {
  return new Error(
    `${JSON.stringify(path)} is outside the working folder. Only files inside it are accessible: give a path relative to it, ` +
      `without ".." and symbolic links that lead out of it.`,
  );
}

function unreachable(path: string, error: unknown): Error {
  const name = JSON.stringify(path);
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return new Error(`There is no ${name} in the working folder. Use glob to see what is there.`);
    case 'EACCES':
    case 'EPERM':
      return new Error(`${name} cannot be read: permission denied.`);
    case 'ELOOP':
      return new Error(`${name} is a symbolic link to itself.`);
    case 'ENAMETOOLONG':
      return new Error('The path is longer than the file system allows.');
    default:
      return new Error(`${name} cannot be read: ${(error as Error).message}`);
  }
}
