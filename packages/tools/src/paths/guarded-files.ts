/*
 * Access to files that is checked on what has been opened.
 *
 * A path that is checked and then opened may lead elsewhere by then, because somebody swapped a link or a folder. Here
 * the path is opened first, without reading and without side effects (O_PATH). The kernel says where the open handle is
 * (/proc/self/fd/N), that place is checked, and everything else happens through the handle:
 *
 * 1. A file is read through the handle that was checked.
 * 2. A file is written beside its place, in a folder that is held open, and renamed inside that folder. So a reader sees
 *    the old or the new content, and a link of that name is replaced and never followed.
 * 3. A change that depends on what was read names its stamp, which is compared just before the file is replaced.
 * 4. Pipes, sockets and devices are never opened for reading or writing, so they cannot block.
 *
 * Where there is no /proc (macOS, Windows), what was opened is compared with what was checked. That narrows the time in
 * which a swap succeeds, and does not close it.
 */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  renameSync,
  unlinkSync,
  type Stats,
} from 'node:fs';
import { open, readdir, type FileHandle } from 'node:fs/promises';
import { posix, resolve } from 'node:path';
import type { PathFacts } from '@treadle/core/policy';
import { DeniedError, outsideText } from '../denied.ts';
import type { FileOps, FileStatus, NarrowedRun } from '../ops.ts';
import { asStored, folderSpelling, inside, lexical, namedPath, pathFacts, type PathOptions } from './path-facts.ts';

export interface GuardOptions extends PathOptions {
  /**
   * Says why a file may not be used, or nothing. It gets the path and the place of what has been opened, and what narrows the
   * run. Default: both have to be inside the folder.
   */
  readonly check?: PathCheck;
}

export type PathCheck = (
  facts: PathFacts,
  use: 'read' | 'write',
  narrowed?: NarrowedRun,
) => string | undefined | Promise<string | undefined>;

/** Something that stays the same whatever happens to its name. */
export interface Held {
  /** The place without links. */
  readonly real: string;
  readonly stats: Stats;
  /** A path that leads to it. */
  readonly way: string;
  /** Throws if it is no longer what has been checked. */
  confirm(): void;
  close(): void;
}

/** Whether the kernel tells where an open handle is. */
const HAS_HANDLES = process.platform === 'linux' && existsSync('/proc/self/fd');
/** Not among the constants of Node; the same on x64 and arm64. */
const O_PATH = 0o10000000;
const { O_CREAT, O_EXCL, O_RDONLY, O_WRONLY } = constants;
const O_NOFOLLOW = constants.O_NOFOLLOW ?? 0;
const O_NONBLOCK = constants.O_NONBLOCK ?? 0;

export function guardedFiles(options: GuardOptions): FileOps {
  return guardedFilesWith(hold, options);
}

/** `hold`: how something is held open. */
export function guardedFilesWith(hold: (path: string) => Held, options: GuardOptions): FileOps {
  const { folder, check = insideOf(folder) } = options;
  const spelled = folderSpelling(folder);
  const listeners: ((path: string) => void)[] = [];
  const tell = ({ real }: Held, name: string): void => listeners.forEach((listener) => listener(`${real}/${name}`));

  return {
    folder: spelled(lexical(resolve(folder))),

    narrowed: (run) => guardedFilesWith(hold, { ...options, check: (facts, use) => check(facts, use, run) }),

    async stat(path) {
      const held = await holdChecked(path, 'read');
      held.close();
      return statusOf(held);
    },

    async open(path) {
      const held = await holdChecked(path, 'read');
      try {
        if (!held.stats.isFile())
          throw failure(held.stats.isDirectory() ? 'EISDIR' : 'ENXIO', 'is not a plain file', path);
        const handle = await openHeld(held);
        return { ...statusOf(held), handle };
      } finally {
        held.close();
      }
    },

    async list(path) {
      const held = await holdChecked(path, 'read');
      try {
        if (!held.stats.isDirectory()) throw failure('ENOTDIR', 'is not a folder', path);
        const found = await readdir(held.way, { withFileTypes: true });
        held.confirm();
        return found.map((item) => ({ name: item.name, type: item.isSymbolicLink() ? 'link' : typeOf(item) }));
      } finally {
        held.close();
      }
    },

    async write(path, content, { create = false, executable, like, stamp } = {}) {
      const other = like === undefined ? undefined : await statsOf(like);
      const { parent, name, before } = await placeFor(path);
      const model = before ?? other;
      const mode = model && modeFor(model, executable);
      const temporary = `${parent.way}/.treadle-${randomBytes(8).toString('hex')}`;
      const place = `${parent.way}/${name}`;
      try {
        if (create && before) throw failure('EEXIST', 'exists', path);
        const handle = await open(
          temporary,
          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
          mode ?? (executable ? 0o777 : 0o666),
        );
        try {
          await handle.writeFile(content);
          // Only root may give a file away. Others become its owner.
          if (model) await handle.chown(model.uid, model.gid).catch(() => {});
          if (mode !== undefined) await handle.chmod(mode);
          await handle.sync();
        } finally {
          await handle.close();
        }
        parent.confirm();
        demandStamp(place, stamp, path);
        if (create) linkSync(temporary, place);
        else renameSync(temporary, place);
        tell(parent, name);
      } finally {
        removeIfThere(temporary);
        parent.close();
      }
    },

    async remove(path, { stamp } = {}) {
      const { parent, name } = await holdParent(path, 'write');
      try {
        const place = `${parent.way}/${name}`;
        parent.confirm();
        demandStamp(place, stamp, path);
        unlinkSync(place);
      } finally {
        parent.close();
      }
    },

    async rename(from, to) {
      const source = await holdParent(from, 'read', 'write');
      try {
        const target = await holdParent(to, 'write');
        try {
          source.parent.confirm();
          target.parent.confirm();
          renameSync(`${source.parent.way}/${source.name}`, `${target.parent.way}/${target.name}`);
          tell(target.parent, target.name);
        } finally {
          target.parent.close();
        }
      } finally {
        source.parent.close();
      }
    },

    onChange: (listener) => void listeners.push(listener),
  };

  async function statsOf(path: string): Promise<Stats> {
    const held = await holdChecked(path, 'read');
    held.close();
    return held.stats;
  }

  function statusOf({ real, stats }: Held): FileStatus {
    return {
      path: spelled(real),
      type: typeOf(stats),
      size: stats.size,
      modifiedMs: stats.mtimeMs,
      stamp: stampOf(stats),
      executable: (stats.mode & 0o100) !== 0,
    };
  }

  function nameOf(path: string): string {
    const named = namedPath(path, options);
    if ('unclear' in named)
      throw new DeniedError(`${JSON.stringify(path.slice(0, 100))} cannot be used: ${named.unclear}.`);
    return named.path;
  }

  async function demand(path: string, real: string, uses: readonly ('read' | 'write')[]): Promise<void> {
    const shown = spelled(lexical(nameOf(path)));
    const target = spelled(asStored(real));
    for (const use of uses) {
      const reason = await check(target === shown ? { path: shown } : { path: shown, target }, use);
      if (reason !== undefined) throw new DeniedError(reason);
    }
  }

  async function holdChecked(path: string, use: 'read' | 'write'): Promise<Held> {
    let held: Held;
    try {
      held = hold(nameOf(path));
    } catch (error) {
      if (error instanceof DeniedError) throw error;
      // Errors must not tell what exists in other places.
      throw (await deniedAt(path, use)) ?? error;
    }
    try {
      await demand(path, held.real, [use]);
      return held;
    } catch (error) {
      held.close();
      throw error;
    }
  }

  async function deniedAt(path: string, use: 'read' | 'write'): Promise<DeniedError | undefined> {
    const reason = await check(placeOf(path), use);
    return reason === undefined ? undefined : new DeniedError(reason);
  }

  /** Where a path leads that cannot be opened. If it is not known, up to the first name that makes it so. */
  function placeOf(path: string): PathFacts {
    const { unclear, ...place } = pathFacts(path, options);
    if (unclear === undefined) return place;
    const names = nameOf(path).split('/');
    while (names.length > 1) {
      const name = names.pop()!;
      const above = pathFacts(names.join('/') || '/', options);
      if (above.unclear === undefined) return { ...place, target: posix.join(above.target ?? above.path, name) };
    }
    return place;
  }

  /** The folder of a name and the name, for changes of the name itself. */
  async function holdParent(
    path: string,
    ...uses: readonly ('read' | 'write')[]
  ): Promise<{ parent: Held; name: string }> {
    const named = nameOf(path).replace(/(?<=[^/])\/+$/, '');
    const name = posix.basename(named);
    if (name === '' || name === '.' || name === '..') throw failure('EINVAL', 'does not end in a name', path);
    let parent: Held;
    try {
      parent = hold(posix.dirname(named));
    } catch (error) {
      throw (await deniedAt(path, 'write')) ?? error;
    }
    try {
      await demand(path, `${parent.real}/${name}`, uses);
      return { parent, name };
    } catch (error) {
      parent.close();
      throw error instanceof DeniedError ? error : ((await deniedAt(path, 'write')) ?? error);
    }
  }

  /** Where a file is written: the folder, held open, and the name in it. `before` if the file exists. */
  async function placeFor(path: string): Promise<{ parent: Held; name: string; before: Stats | undefined }> {
    let held: Held | undefined;
    try {
      held = await holdChecked(path, 'write');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    if (!held) return { ...(await newPlace(path)), before: undefined };
    held.close();
    if (!held.stats.isFile()) throw failure(held.stats.isDirectory() ? 'EISDIR' : 'ENXIO', 'is not a plain file', path);
    const parent = hold(posix.dirname(held.real));
    if (parent.real === posix.dirname(held.real)) {
      return { parent, name: posix.basename(held.real), before: held.stats };
    }
    parent.close();
    throw moved(path);
  }

  /** For a file that does not exist: creates the folders above it that are missing, each inside the one that is held. */
  async function newPlace(path: string): Promise<{ parent: Held; name: string }> {
    const names = nameOf(path).split('/');
    const name = names.pop()!;
    if (name === '' || name === '.' || name === '..') throw failure('EISDIR', 'does not end in a name', path);
    const missing: string[] = [];
    let parent: Held | undefined;
    while (!parent) {
      try {
        parent = hold(names.join('/') || '/');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || names.length <= 1) throw error;
        missing.unshift(names.pop()!);
      }
    }
    try {
      if (missing.includes('..')) throw failure('ENOENT', 'leads through a folder that does not exist', path);
      await demand(path, [parent.real, ...missing.filter((one) => one !== '' && one !== '.'), name].join('/'), [
        'write',
      ]);
      for (const folderName of missing) {
        if (folderName === '' || folderName === '.') continue;
        parent.confirm();
        makeFolder(`${parent.way}/${folderName}`);
        const inner = hold(`${parent.way}/${folderName}`);
        const expected = posix.join(parent.real, folderName);
        parent.close();
        parent = inner;
        if (inner.real !== expected) throw moved(path);
      }
      if (!parent.stats.isDirectory()) throw failure('ENOTDIR', 'is below a file', path);
      if (lstatSync(`${parent.way}/${name}`, { throwIfNoEntry: false })?.isSymbolicLink()) {
        throw failure('ENOENT', 'is a symbolic link to a file that does not exist', path);
      }
      return { parent, name };
    } catch (error) {
      parent.close();
      throw error;
    }
  }
}

/** Holds what a path leads to. */
export function hold(path: string): Held {
  return HAS_HANDLES ? holdByHandle(path) : holdByComparison(path);
}

function insideOf(folder: string): PathCheck {
  const top = lexical(resolve(folder));
  return ({ path, target = path }, use) => {
    const outside = [path, target].find((one) => !inside(top, one) || (use === 'write' && one === top));
    return outside === undefined ? undefined : outsideText(path);
  };
}

/** Linux: an open handle, which does not allow reading, and its place according to the kernel. */
export function holdByHandle(path: string): Held {
  const fd = openSync(path, O_PATH);
  try {
    const way = `/proc/self/fd/${fd}`;
    const stats = fstatSync(fd);
    const real = readlinkSync(way);
    // One of several hard links may have been removed. The kernel adds a word to its name, which other files may have.
    const isRemoved = stats.nlink === 0 || (real.endsWith(' (deleted)') && !isAt(real, stats));
    if (isRemoved) throw failure('ENOENT', 'has been removed', path);
    if (!real.startsWith('/')) throw new DeniedError(`${JSON.stringify(path)} is not a file of a file system.`);
    const confirm = (): void => {
      // What was opened stays the same, but a folder may have been moved to where changes are not allowed.
      if (stats.isDirectory() && readlinkSync(way) !== real) throw moved(path);
    };
    return { real, stats, way, confirm, close: () => closeSync(fd) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Other systems: the place, and what was there when it was checked. */
export function holdByComparison(path: string): Held {
  const found = realpathSync.native(path);
  const stats = lstatSync(found);
  const real = found.replaceAll('\\', '/');
  return {
    real,
    stats,
    way: found,
    confirm() {
      if (!isAt(found, stats) || realpathSync.native(path) !== found) throw moved(path);
    },
    close() {},
  };
}

async function openHeld(held: Held): Promise<FileHandle> {
  const follow = held.way.startsWith('/proc/self/fd/') ? 0 : O_NOFOLLOW;
  const handle = await open(held.way, O_RDONLY | O_NONBLOCK | follow);
  try {
    if (!isSame(await handle.stat(), held.stats)) throw moved(held.real);
    held.confirm();
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function isAt(path: string, stats: Stats): boolean {
  const now = lstatSync(path, { throwIfNoEntry: false });
  return now !== undefined && isSame(now, stats);
}

function isSame(a: Stats, b: Stats): boolean {
  return a.ino === b.ino && a.dev === b.dev;
}

/** A file that is replaced gets another number, also if its size and its time are the same. */
function stampOf({ ino, size, mtimeMs }: Stats): string {
  return `${ino} ${size} ${mtimeMs}`;
}

/** The change follows without a pause, so no other call of this process comes between. */
function demandStamp(place: string, stamp: string | undefined, path: string): void {
  if (stamp === undefined) return;
  const now = lstatSync(place, { throwIfNoEntry: false });
  if (!now || stampOf(now) !== stamp) throw failure('ESTALE', 'has changed', path);
}

function typeOf(item: { isFile(): boolean; isDirectory(): boolean }): 'file' | 'folder' | 'other' {
  return item.isFile() ? 'file' : item.isDirectory() ? 'folder' : 'other';
}

/** The mode of a file that is replaced or moved: with execution for all who may read, without it, or as it was. */
function modeFor(before: Stats, executable: boolean | undefined): number {
  const mode = before.mode & 0o777;
  if (executable === undefined) return mode;
  return executable ? mode | ((mode & 0o444) >> 2) : mode & ~0o111;
}

function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It was renamed.
  }
}

/** Somebody else may have made it. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function moved(path: string): Error {
  return new DeniedError(`${JSON.stringify(path)} was replaced while it was opened. Try again.`);
}

function failure(code: string, what: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${JSON.stringify(path)} ${what}`), { code, syscall: 'open', path });
}
