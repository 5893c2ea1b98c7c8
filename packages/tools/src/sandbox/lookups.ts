import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  type Dirent,
  type Stats,
} from 'node:fs';
import { sep } from 'node:path';
import type { ExecRequest } from '../ops.ts';

/* What is at a path. What cannot be looked up is as if it were not there. */

export function isWithin(top: string, path: string): boolean {
  return path === top || path.startsWith(top.endsWith(sep) ? top : top + sep);
}

export function exists(path: string): boolean {
  return lstatOf(path) !== undefined;
}

export function isLink(path: string): boolean {
  return lstatOf(path)?.isSymbolicLink() === true;
}

export function lstatOf(path: string): Stats | undefined {
  return orElse(() => lstatSync(path, { throwIfNoEntry: false }), undefined);
}

export function entriesOf(folder: string): readonly Dirent[] {
  return orElse(() => readdirSync(folder, { withFileTypes: true }), []);
}

/** Whether it is there and this process cannot look into it. The program that has closed it can open it again. */
export function isClosed(path: string): boolean {
  const found = lstatOf(path);
  if (!found || found.isSymbolicLink()) return false;
  return orElse(() => accessSync(path, constants.R_OK | (found.isDirectory() ? constants.X_OK : 0)) ?? false, true);
}

/** Where a link leads, as it is written in it. */
export function linkOf(path: string): string | undefined {
  return orElse(() => readlinkSync(path), undefined);
}

export function realOf(path: string): string | undefined {
  return orElse(() => realpathSync(path), undefined);
}

/** The text of a plain file. A pipe that a command has made there would block, so it is not waited for. */
export function textOf(file: string): string {
  return orElse(() => {
    const fd = openSync(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    try {
      return fstatSync(fd).isFile() ? readFileSync(fd, 'utf8') : '';
    } finally {
      closeSync(fd);
    }
  }, '');
}

function orElse<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

let ownsSystem: boolean | undefined;

/**
 * Whether this user owns the devices and the files of the kernel in /proc, as root does outside of user namespaces. The owner can change
 * their modes and times without any capability, for the whole machine, also where nothing else of it is shown.
 */
export function ownsSystemFiles(): boolean {
  ownsSystem ??= lstatOf('/proc/version')?.uid === process.geteuid?.();
  return ownsSystem;
}

/** What has to change for a program so that its input does not lead to a device of the host. */
export function inputOf({ writable = false }: Pick<ExecRequest, 'writable'>): { readonly endedInput: boolean } {
  return { endedInput: !writable && ownsSystemFiles() };
}

/**
 * Descriptors that this process has inherited and would pass on: Node closes only the first ones. One of a folder would lead out of
 * every sandbox.
 */
export function inheritedDescriptors(): readonly number[] {
  return entriesOf('/proc/self/fd')
    .map(({ name }) => Number(name))
    .filter((fd) => fd > 2 && !isClosedOnExec(fd));
}

function isClosedOnExec(fd: number): boolean {
  const flags = /^flags:\s*([0-7]+)$/m.exec(textOf(`/proc/self/fdinfo/${fd}`))?.[1];
  return flags === undefined || (Number.parseInt(flags, 8) & 0o2000000) !== 0;
}
