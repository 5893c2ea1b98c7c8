/* Repositories in the working folder: what git tracks, and whether it may find settings that run programs. */
import { readFileSync } from 'node:fs';
import path from 'node:path/posix';
import { changesIn, entriesBelow, placesOf, statsOf, Unclear, type Scope } from './scope.ts';

interface IndexEntry {
  readonly name: string;
  /** It is a repository inside. */
  readonly isRepository: boolean;
  /** What git compares to see whether a file has changed: its size, and its time in seconds. */
  readonly size: number;
  readonly seconds: number;
}

const MAX_BYTES = 32 * 1024 * 1024;

/** The bytes of a file, empty if there is none. */
function bytesOf(file: string, scope: Scope): Buffer {
  const stats = statsOf(file, scope);
  if (!stats?.isFile()) return Buffer.alloc(0);
  if (stats.size > MAX_BYTES) throw new Unclear(`${file} is too large to be looked at`);
  return readFileSync(file);
}

/** What git tracks in the folder of the command. */
function trackedFiles(root: string, scope: Scope): readonly IndexEntry[] {
  // In a worktree, .git is a file that names a folder.
  const named = /^gitdir: (.+)$/m.exec(bytesOf(`${root}/.git`, scope).toString())?.[1] ?? '.git';
  const index = bytesOf(path.resolve(root, named, 'index'), scope);
  const entries = index.length === 0 ? [] : (entriesOf(index, 20) ?? entriesOf(index, 32));
  if (!entries) throw new Unclear('the index of git is not understood');
  return entries;
}

/** The format is that of gitformat-index(5). Undefined if the hashes have another length, or if there is more to it. */
function entriesOf(index: Buffer, hashBytes: number): readonly IndexEntry[] | undefined {
  if (index.length < 12 + hashBytes) return undefined;
  const entries: IndexEntry[] = [];
  const version = index.readUInt32BE(4);
  let at = 12;
  let name = Buffer.alloc(0);
  for (let left = index.readUInt32BE(8); left > 0; left--) {
    const fixed = 40 + hashBytes;
    if (at + fixed + 2 >= index.length) return undefined;
    const flags = index.readUInt16BE(at + fixed);
    let start = at + fixed + (flags & 0x4000 ? 4 : 2);
    // In version 4, the first byte or bytes say how much of the end of the last name is replaced.
    let [byte, replaced] = [index[start]!, version === 4 ? index[start++]! & 127 : name.length];
    for (; version === 4 && byte & 128; replaced = ((replaced + 1) << 7) | (byte & 127)) byte = index[start++]!;
    const end = index.indexOf(0, start);
    if (end === -1 || replaced > name.length) return undefined;
    name = Buffer.concat([name.subarray(0, name.length - replaced), index.subarray(start, end)]);
    if ((flags & 0xfff) !== Math.min(name.length, 0xfff)) return undefined;
    const numberAt = (offset: number): number => index.readUInt32BE(at + offset);
    const isRepository = numberAt(24) === 0xe000;
    entries.push({ name: name.toString(), isRepository, size: numberAt(36), seconds: numberAt(8) });
    at = version === 4 ? end + 1 : at + ((end - at + 8) & ~7);
  }
  // Entries may also be in another file, or stand for whole folders.
  for (; at + 8 < index.length - hashBytes; at += 8 + index.readUInt32BE(at + 4))
    if (/^(link|sdir)$/.test(index.toString('latin1', at, at + 4))) return undefined;
  return entries;
}

/** Whether it is in another repository than that of the command, or behind a link. */
function isElsewhere(base: string, scope: Scope): boolean {
  const relative = base.startsWith('/') ? path.relative(scope.root!, base) : base;
  const parts = relative.split('/').filter((part) => part !== '' && part !== '.');
  return parts.some((part, at) => {
    const place = [scope.root, ...parts.slice(0, at + 1)].join('/');
    return part === '..' || statsOf(place, scope)?.isSymbolicLink() || statsOf(`${place}/.git`, scope);
  });
}

/** Commands of git that never look into a repository inside. */
const STAYS = /^(blame|branch|clean|fetch|grep|log|ls-files|push|remote|rev-parse|show|tag|worktree)$/;

/** Whether git may find settings that run programs. `isChange`: the command brings commits, which have settings of submodules too. */
export function mayEnterRepository(verb: string, isChange: boolean, scope: Scope): boolean {
  const { root, found } = scope;
  if (root === undefined) return false;
  // Without .gitmodules in the folder, git reads the one of the index or of the last commit.
  const mayHaveModules = trackedFiles(root, scope).some(
    (one) => one.isRepository || one.name.toLowerCase() === '.gitmodules',
  );
  if (mayHaveModules || statsOf(`${root}/.gitmodules`, scope)) return true;
  if (scope.folders.some((base) => isElsewhere(base, scope))) return true;
  if (STAYS.test(verb) || (!isChange && !found.newRepositories)) return false;
  found.hasRepositoryBelow ??= hasRepositoryBelow(root, scope);
  return found.newRepositories === 'unpacked' || found.hasRepositoryBelow;
}

/** Looking for one name takes less than what other entries are read for. */
function hasRepositoryBelow(root: string, scope: Scope): boolean {
  for (const { file, isRepository } of entriesBelow(root, scope, undefined, 1 / 30))
    if (isRepository && file !== `${root}/.git`) return true;
  return false;
}

/**
 * Git prints differences of all files that it tracks. `paths`: those that the command names. `isChangeOnly`: it compares the files with
 * the index, so that those that are as they were are not printed.
 */
export function demandNoPrivate(paths: readonly string[], isChangeOnly: boolean, scope: Scope): void {
  const { root } = scope;
  if (root === undefined) return;
  const named = paths.flatMap((one) => placesOf(one, scope)).map((one) => path.resolve(one));
  const isUnchanged = isChangeOnly && changesIn(scope).startsWith('0 ');
  for (const { name, size, seconds } of trackedFiles(root, scope)) {
    const file = `${root}/${name}`;
    const isNamed = paths.length === 0 || named.some((one) => /[*?[\\]/.test(one) || `${file}/`.startsWith(`${one}/`));
    // What is named exactly is judged as a path.
    if (!isNamed || named.includes(file) || !scope.isPrivate(file)) continue;
    const stats = isUnchanged ? statsOf(file, scope) : undefined;
    if (stats?.size === size && Math.floor(stats.mtimeMs / 1000) === seconds) continue;
    throw new Unclear(`it would print ${name}, which is private`);
  }
}
