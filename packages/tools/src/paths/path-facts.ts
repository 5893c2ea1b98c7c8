/*
 * Where a path leads. Rules judge the path as it is named and the place it leads to.
 *
 * 1. `..` is applied after links, as the kernel does it, so `link/..` is the parent of the link's target.
 * 2. A name that does not exist yet is judged at its nearest existing parent. A link to nothing counts with its target,
 *    because writing through it creates that target.
 * 3. Where a file system does not distinguish case or Unicode forms, names are spelled as they are stored. All facts are in
 *    Unicode form C, so that one entry of a list covers both forms.
 * 4. A path whose meaning depends on the process that opens it (`/proc/self/cwd`, `/dev/fd/3`) is unclear.
 *
 * What is true here may be changed by somebody else a moment later: guarded-files.ts checks again what has been opened.
 */
import { lstatSync, readdirSync, readlinkSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { parse, posix, resolve, sep } from 'node:path';
import type { PathFacts } from '@treadle/core/policy';

export interface PathOptions {
  /** Where relative paths start. Facts spell everything below it as it is given here, also if it is reached by links. */
  readonly folder: string;
  /** What `~` stands for. Default: the home folder of the user. */
  readonly home?: string;
}

/** What is read of the file system. Absent results: there is nothing of that name. */
export interface FileSystem {
  lstat(path: string): { readonly dev: bigint; readonly ino: bigint; isSymbolicLink(): boolean } | undefined;
  readlink(path: string): string;
  readdir(path: string): readonly string[];
}

const REAL_FILE_SYSTEM: FileSystem = {
  lstat: (path) => {
    try {
      return lstatSync(path, { bigint: true, throwIfNoEntry: false });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return undefined;
      throw error;
    }
  },
  readlink: (path) => readlinkSync(path),
  readdir: (path) => readdirSync(path),
};

/** As in Linux. */
const MAX_PATH_BYTES = 4096;
const MAX_LINKS = 40;
const WINDOWS = sep === '\\';

/** Finds out where a path leads, through links. About 10 us a component. */
export function pathFacts(path: string, options: PathOptions): PathFacts {
  return pathFactsIn(REAL_FILE_SYSTEM, path, options);
}

export function pathFactsIn(files: FileSystem, path: string, options: PathOptions): PathFacts {
  const named = namedPath(path, options);
  if ('unclear' in named) return { path: lexical(resolve(options.folder)), unclear: named.unclear };
  const spelled = folderSpelling(options.folder);
  const shown = spelled(lexical(named.path));
  const led = followLinks(files, named.path);
  if ('unclear' in led) return { path: shown, unclear: led.unclear };
  const target = spelled(led.path);
  return target === shown ? { path: shown } : { path: shown, target };
}

/** The path as the kernel gets it: absolute, with `~` replaced, with its `..` and links. */
export function namedPath(
  path: string,
  { folder, home = homedir() }: PathOptions,
): { readonly path: string } | { readonly unclear: string } {
  if (path === '') return { unclear: 'the path is empty' };
  if (path.includes('\0')) return { unclear: 'the path contains a NUL byte, which file names cannot contain' };
  if (!path.isWellFormed()) return { unclear: 'the path is not valid Unicode' };
  if (WINDOWS && ambiguousOnWindows(path)) return { unclear: 'Windows reads a name in the path in more than one way' };
  let named = WINDOWS ? path.replaceAll('\\', '/') : path;
  if (/^~(\/|$)/.test(named)) named = resolve(home) + named.slice(1);
  else if (named.startsWith('~')) {
    return { unclear: 'it is not known whose home folder the path means; put ./ before a name that starts with ~' };
  } else if (parse(named).root === '') named = `${resolve(folder)}/${named}`;
  if (Buffer.byteLength(named) >= MAX_PATH_BYTES) return { unclear: 'the path is longer than the file system allows' };
  return { path: named };
}

/** Without links: `.`, `..` and repeated slashes removed. */
export function lexical(path: string): string {
  const plain = posix.normalize(WINDOWS ? path.replaceAll('\\', '/') : path).replace(/(?<=[^/])\/+$/, '');
  return plain.normalize('NFC');
}

/** Returns a function that spells paths below the real folder as the folder is given. */
export function folderSpelling(folder: string): (path: string) => string {
  const given = lexical(resolve(folder));
  let real = given;
  try {
    real = lexical(realpathSync.native(folder));
  } catch {
    // It does not exist yet.
  }
  return (path) => (real !== given && inside(real, path) ? given + path.slice(real.length) : path);
}

/** Whether a lexical path is the folder or below it. */
export function inside(folder: string, path: string): boolean {
  return path === folder || path.startsWith(folder.endsWith('/') ? folder : `${folder}/`);
}

function followLinks(files: FileSystem, named: string): { readonly path: string } | { readonly unclear: string } {
  const { root } = parse(named);
  const top = root.replace(/[/\\]$/, '');
  const ahead = named.slice(root.length).split('/').reverse();
  const stored = storedNames(files);
  let at = top;
  let links = 0;
  try {
    for (let name = ahead.pop(); name !== undefined; name = ahead.pop()) {
      if (name === '' || name === '.') continue;
      if (name === '..') {
        at = at.slice(0, Math.max(at.lastIndexOf('/'), top.length));
        continue;
      }
      const here = `${at}/${name}`;
      const entry = files.lstat(here);
      if (!entry?.isSymbolicLink()) {
        at += `/${stored(at, name, entry)}`;
        continue;
      }
      if (/^\/proc\/\d+\//.test(here)) {
        return { unclear: `${posix.basename(here)} in /proc is another place for each process; name the place itself` };
      }
      if (++links > MAX_LINKS) return { unclear: 'the path leads through too many symbolic links' };
      const target = files.readlink(here).replaceAll(sep, '/');
      if (parse(target).root !== '') at = top;
      ahead.push(...target.split('/').reverse());
    }
  } catch (error) {
    return { unclear: `it cannot be found out where the path leads (${(error as NodeJS.ErrnoException).code})` };
  }
  return { path: (at || '/').normalize('NFC') };
}

/** Spells each name of a path without links as it is stored. */
export function asStored(path: string, files: FileSystem = REAL_FILE_SYSTEM): string {
  const stored = storedNames(files);
  let at = '';
  for (const name of path.split('/').slice(1)) {
    if (name !== '') at += `/${stored(at, name, files.lstat(`${at}/${name}`))}`;
  }
  return (at || '/').normalize('NFC');
}

/** Returns a function for the names of one path, in order: names that do not exist follow the rules of their parent. */
function storedNames(
  files: FileSystem,
): (folder: string, name: string, entry: ReturnType<FileSystem['lstat']>) => string {
  let folds = false;
  return (folder, name, entry) => {
    if (!entry) return folds ? folded(name) : name;
    const variants = new Set([otherCase(name), name.normalize('NFC'), name.normalize('NFD')]);
    variants.delete(name);
    const same = [...variants].filter((variant) => {
      const other = files.lstat(`${folder}/${variant}`);
      return other?.ino === entry.ino && other.dev === entry.dev;
    });
    if (same.length === 0) return name;
    const names = files.readdir(folder === '' ? '/' : folder);
    // Two names of one file, by a hard link: the file system distinguishes them.
    if (names.includes(name) && same.every((variant) => names.includes(variant))) return name;
    folds = true;
    return names.includes(name) ? name : (names.find((one) => folded(one) === folded(name)) ?? folded(name));
  };
}

function folded(name: string): string {
  return name.normalize('NFC').toLowerCase();
}

function otherCase(name: string): string {
  const upper = name.toUpperCase();
  return upper === name ? name.toLowerCase() : upper;
}

/** Streams (`a.txt:b`), devices (`NUL`), short names (`PROGRA~1`), prefixes such as `\\?\`, dots and blanks at the end. */
function ambiguousOnWindows(path: string): boolean {
  if (/^[\\/]{2}/.test(path) || /^[a-z]:(?![\\/])/i.test(path)) return true;
  const names = path.replace(/^[a-z]:/i, '').split(/[\\/]/);
  return names.some(
    (name) =>
      /[:*?"<>|]|~\d/.test(name) ||
      (/[. ]$/.test(name) && name !== '.' && name !== '..') ||
      /^(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\.|$)/i.test(name),
  );
}
