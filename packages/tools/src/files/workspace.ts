import { relative, resolve } from 'node:path/posix';
import { DeniedError } from '../denied.ts';
import type { ChangeOptions, FileOps, FileStatus, FolderEntry, NarrowedRun, OpenFile, WriteOptions } from '../ops.ts';
import { ToolError } from '../tool-error.ts';

/** The files that tools can use, with paths and errors as models need them. Every path of a model goes through it. */
export interface Workspace {
  /** Throws if the path does not exist or may not be read, even through a symbolic link. */
  locate(path: string): Promise<Located>;
  /** Opens a plain file. The caller closes its handle. */
  open(path: string): Promise<OpenFile>;
  list(path: string): Promise<readonly FolderEntry[]>;
  write(path: string, content: string | Uint8Array, options?: WriteOptions): Promise<void>;
  remove(path: string, options?: ChangeOptions): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  /** The path from the working folder, however it is written. Does not look at the files, so it does not follow links. */
  normalized(path: string): string;
}

export interface Located {
  /** The absolute path without symbolic links, for opening it. */
  readonly real: string;
  /** The path relative to the working folder, with `/`, for messages; `.` is the folder itself. */
  readonly shown: string;
  readonly kind: FileStatus['type'];
  readonly size: number;
  /** For writing it: `stamp` of `WriteOptions`. */
  readonly stamp: string;
  readonly executable: boolean;
}

/** The path of a file for errors. */
export function quoted({ shown }: Located): string {
  return JSON.stringify(shown);
}

/** A path that does not exist, or cannot be used. */
export class UnreachableError extends ToolError {}

export function workspace(files: FileOps): Workspace {
  return {
    async locate(path) {
      const { path: found, type, ...status } = await guarded(path, files.stat(path));
      const { size, stamp, executable } = status;
      return { real: found, shown: relative(files.folder, found) || '.', kind: type, size, stamp, executable };
    },
    open: (path) => guarded(path, files.open(path)),
    list: (path) => guarded(path, files.list(path)),
    write: (path, content, options) => guarded(path, files.write(path, content, options)),
    remove: (path, options) => guarded(path, files.remove(path, options)),
    rename: (from, to) => guarded(from, files.rename(from, to)),
    normalized: (path) => relative(files.folder, resolve(files.folder, path)) || '.',
  };
}

/** The files that the run of a call can use: also those of its skills, and none that its rules deny. */
export function workspaceOf(files: FileOps, context: NarrowedRun): Workspace {
  return workspace(context.narrowedBy ? (files.narrowed?.(context) ?? files) : files);
}

async function guarded<T>(path: string, use: Promise<T>): Promise<T> {
  try {
    return await use;
  } catch (error) {
    throw unreachable(path, error);
  }
}

function unreachable(path: string, cause: unknown): UnreachableError {
  const name = JSON.stringify(path);
  if (cause instanceof DeniedError) return new UnreachableError(cause.message, 'permission_denied', { cause });
  switch ((cause as NodeJS.ErrnoException).code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return new UnreachableError(
        `There is no ${name} in the working folder. Use glob to see what is there.`,
        'not_found',
        { cause },
      );
    case 'EACCES':
    case 'EPERM':
      return new UnreachableError(`${name} cannot be used: permission denied.`, 'permission_denied', { cause });
    case 'ENXIO':
      return new UnreachableError(
        `${name} is a pipe, a socket or a device, so it cannot be used.`,
        'execution_failed',
        {
          cause,
        },
      );
    case 'ELOOP':
      return new UnreachableError(`${name} is a symbolic link to itself.`, 'execution_failed', { cause });
    case 'ESTALE':
      return new UnreachableError(
        `${name} was changed by somebody else meanwhile, so this call has left it as it is. Read it and try again.`,
        'execution_failed',
        { cause },
      );
    case 'ENAMETOOLONG':
      return new UnreachableError('The path is longer than the file system allows.', 'execution_failed', { cause });
    default:
      return new UnreachableError(`${name} cannot be used: ${(cause as Error).message}`, 'execution_failed', { cause });
  }
}
