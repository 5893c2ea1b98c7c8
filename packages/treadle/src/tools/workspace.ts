import { realpath, stat } from 'node:fs/promises';
import { isAbsolute, relative, resolve, sep } from 'node:path';

/** The one folder that file tools may see. Every path that a model gives goes through `locate`. */
export interface Workspace {
  /** Where it really is, without symbolic links. */
  root(): Promise<string>;
  /** Throws for whatever is not there or lies outside, also by way of a symbolic link, and says what is allowed. */
  locate(path: string): Promise<Located>;
}

export interface Located {
  /** The real path, to open. */
  readonly real: string;
  /** Relative to the working folder and with `/`, to show; `.` is the folder itself. */
  readonly shown: string;
  readonly kind: 'file' | 'folder' | 'other';
  readonly size: number;
}

export function workspace(folder: string): Workspace {
  const given = resolve(folder);
  let real: Promise<string> | undefined;
  const root = (): Promise<string> => (real ??= realpath(given));

  return {
    root,
    async locate(path) {
      if (path === '') throw new Error('The path is empty. Give one inside the working folder, such as "src/main.ts".');
      if (path.includes('\0')) throw new Error('The path holds a NUL byte, which no file name can. Leave it out.');
      const top = await root();
      const wanted = resolve(given, path);
      // Before the file system is asked, so that nobody learns what exists elsewhere.
      if (!inside(given, wanted) && !inside(top, wanted)) throw outside(path);
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
    `${JSON.stringify(path)} lies outside the working folder. Only what is inside it can be seen: give a path relative ` +
      `to it, without ".." that leaves it and without symbolic links that lead out.`,
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
      return new Error(`${name} may not be read by this user.`);
    case 'ELOOP':
      return new Error(`${name} is a symbolic link that leads back to itself.`);
    case 'ENAMETOOLONG':
      return new Error('The path is longer than the file system takes.');
    default:
      return new Error(`${name} cannot be read: ${(error as Error).message}`);
  }
}
