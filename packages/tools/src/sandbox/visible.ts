import { lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync, type Dirent, type Stats } from 'node:fs';
import { readFile, realpath, stat } from 'node:fs/promises';
import { delimiter, dirname, isAbsolute, join, resolve, sep } from 'node:path';
import { compileGlob, matchesGlob, privatePaths, type PolicyRules } from '@treadle/core/policy';
import type { Mask } from './engine.ts';
import { folderCache, type FolderCache } from './folder-cache.ts';

/*
 * What of the host a sandbox shows. Only what is listed here is visible: the system, the programs of PATH, and the working
 * folder without its private files.
 */

/** Programs, libraries and their settings. */
const SYSTEM = [
  '/usr',
  '/bin',
  '/sbin',
  '/lib',
  '/lib32',
  '/lib64',
  '/libx32',
  '/etc',
  '/opt',
  '/nix/store',
  '/gnu/store',
];

export function systemFolders(): readonly string[] {
  return SYSTEM.filter(exists);
}

/** What of the system only root may read. Needed if this process is root, because others cannot read it anyway. */
export function rootOnlyFiles(folder = '/etc'): readonly Mask[] {
  if (process.getuid?.() !== 0) return [];
  const found: Mask[] = [];
  const walk = (path: string): void => {
    for (const entry of entriesOf(path)) {
      const at = join(path, entry.name);
      if (entry.isSymbolicLink()) continue;
      const mode = modeOf(at);
      const type = entry.isDirectory() ? 'folder' : 'file';
      if ((mode & (type === 'folder' ? 0o005 : 0o004)) === 0) found.push({ path: at, type });
      else if (type === 'folder') walk(at);
    }
  };
  walk(folder);
  return found;
}

/** Folders of a home that never hold programs only. An entry of PATH inside of them is shown alone. */
const NOT_TOOLS = new Set(['.ssh', '.gnupg', '.aws', '.azure', '.kube', '.docker', '.config', '.local', '.cache']);

/**
 * The folders that programs of PATH need, if they are not part of the system. A folder of a home that begins with a dot, such
 * as ~/.nvm, belongs to a tool as a whole.
 */
export function toolFolders(path: string, { home, folder }: { home: string; folder: string }): readonly string[] {
  const found = new Set<string>();
  for (const entry of path.split(delimiter)) {
    if (!isAbsolute(entry) || !exists(entry) || [...systemFolders(), folder].some((top) => isWithin(top, entry)))
      continue;
    const tool = toolOf(resolve(entry), home);
    if (!isWithin(tool, home) && !isWithin(tool, folder) && tool !== '/') found.add(tool);
  }
  // rustup has its programs in ~/.cargo/bin, and what they start beside it.
  if (found.has(join(home, '.cargo')) && exists(join(home, '.rustup'))) found.add(join(home, '.rustup'));
  return [...found];
}

function toolOf(entry: string, home: string): string {
  const modules = entry.endsWith(`${sep}node_modules${sep}.bin`) ? dirname(entry) : undefined;
  if (modules !== undefined) return modules;
  if (!isWithin(home, entry))
    return /[\\/]s?bin$/.test(entry) && dirname(dirname(entry)) !== '/' ? dirname(entry) : entry;
  const [first = ''] = entry.slice(home.length + 1).split(sep);
  return first.startsWith('.') && !NOT_TOOLS.has(first) ? join(home, first) : entry;
}

/** Secrets in folders of tools, such as ~/.cargo/credentials.toml. */
export function toolSecrets(tools: readonly string[]): readonly Mask[] {
  const isPrivate = privateMatcher({ folder: '/', rules: {}, expose: [] });
  return tools.flatMap((tool) =>
    entriesOf(tool).flatMap((entry): readonly Mask[] => {
      const path = join(tool, entry.name);
      if (!isPrivate(path) && !/credential|token|auth/i.test(entry.name)) return [];
      return entry.isFile() ? [{ path, type: 'file' }] : [];
    }),
  );
}

/** Names of the working folder that decide what Treadle does. */
const OWN_NAMES = ['treadle.toml', '.agents'];
/** In a repository: what git runs, which programs it uses, and where it looks for both. */
const GIT_NAMES = ['hooks', 'config', 'config.worktree', 'commondir'];
const MAX_DEPTH = 40;

export interface Scan {
  readonly masked: readonly Mask[];
  /** Exist, and become read-only. */
  readonly protected: readonly string[];
  /** Do not exist now, and must not come into existence. */
  readonly absent: readonly string[];
  /** Folders that cannot be renamed, because something in them is protected. */
  readonly pinned: readonly string[];
  /** The repository of a worktree. */
  readonly writable: readonly string[];
}

export interface ScanOptions {
  readonly folder: string;
  /** What `~/` stands for in globs. Absent: those name nothing. */
  readonly home?: string;
  /** Which paths are private, besides the default ones. */
  readonly rules: Pick<PolicyRules, 'private'>;
  /** Paths relative to the folder, or absolute, that are not masked. */
  readonly expose: readonly string[];
  /** Paths that are read-only besides those of Treadle, and files that cannot be read besides private ones. */
  readonly protect: readonly string[];
  readonly hide: readonly string[];
}

/** What a scan has to know about one folder. */
export interface FolderFacts {
  readonly masked: readonly Mask[];
  readonly repositories: readonly string[];
  readonly folders: readonly string[];
}

/**
 * Looks through the working folder. Links are not followed, and node_modules is not entered. `cache`: what an earlier scan with
 * the same options has found.
 */
export async function scanFolder(options: ScanOptions, cache: FolderCache<FolderFacts> = folderCache()): Promise<Scan> {
  const { folder } = options;
  const isPrivate = privateMatcher(options);
  const masked: Mask[] = [];
  const repositories: string[] = [];
  const walk = async (path: string, depth: number): Promise<void> => {
    const found = await cache(path, (entries) => folderFacts(path, entries, isPrivate));
    masked.push(...found.masked);
    repositories.push(...found.repositories);
    if (depth < MAX_DEPTH) await Promise.all(found.folders.map((one) => walk(one, depth + 1)));
  };
  await walk(folder, 0);
  const isMasked = (path: string): boolean => masked.some((mask) => isWithin(mask.path, path));
  // Nothing can be mounted inside a folder that is masked.
  for (const path of options.hide) if (isWithin(folder, path) && !isMasked(path)) masked.push(...maskFor(path));
  const wanted = new Set([...OWN_NAMES.map((name) => join(folder, name)), ...options.protect]);
  const writable: string[] = [];
  const pinned = new Set<string>();
  for (const git of repositories) {
    const isLink = lstatOf(git)?.isFile() === true;
    const places = isLink && dirname(git) === folder ? await worktreeOf(git) : isLink ? [] : [git];
    if (isLink) wanted.add(git);
    else pinned.add(git);
    if (isLink) writable.push(...places.slice(0, 1));
    for (const place of places) for (const name of GIT_NAMES) wanted.add(join(place, name));
    for (const { name } of entriesOf(join(places[0] ?? git, 'worktrees')))
      wanted.add(join(places[0] ?? git, 'worktrees', name, 'commondir'));
    for (const modules of submodules(places[0])) for (const name of GIT_NAMES) wanted.add(join(modules, name));
  }
  const visible = [...wanted].filter(
    (path) => [folder, ...writable].some((top) => isWithin(top, path)) && !isMasked(path),
  );
  const present = visible.filter((path) => lstatOf(path)?.isSymbolicLink() === false);
  for (const path of present) {
    for (let at = dirname(path); at !== folder && isWithin(folder, at); at = dirname(at)) pinned.add(at);
  }
  return {
    masked,
    protected: present,
    absent: [
      ...visible.filter((path) => !lstatOf(path)),
      ...(exists(join(folder, '.treadle')) ? [] : [join(folder, '.treadle')]),
    ],
    pinned: [...pinned].toSorted(),
    writable,
  };
}

function folderFacts(path: string, entries: readonly Dirent[], isPrivate: (path: string) => boolean): FolderFacts {
  const [masked, repositories, folders]: [Mask[], string[], string[]] = [[], [], []];
  for (const entry of entries) {
    const at = join(path, entry.name);
    if (entry.name === '.git') repositories.push(at);
    else if (entry.isDirectory()) {
      if (isPrivate(join(at, 'x'))) masked.push({ path: at, type: 'folder' });
      else if (entry.name !== 'node_modules') folders.push(at);
    } else if (entry.isFile() && isPrivate(at)) masked.push({ path: at, type: 'file' });
  }
  return { masked, repositories, folders };
}

/** A worktree names the folder of its repository, and that one names the worktree. Only then is it shown. */
async function worktreeOf(git: string): Promise<readonly string[]> {
  try {
    const named = /^gitdir: (.+)$/m.exec(await readFile(git, 'utf8'))?.[1];
    if (named === undefined) return [];
    const own = await realpath(resolve(dirname(git), named));
    const back = await realpath(resolve(own, (await readFile(join(own, 'gitdir'), 'utf8')).trim()));
    if (back !== (await realpath(git))) return [];
    const common = await realpath(resolve(own, (await readFile(join(own, 'commondir'), 'utf8')).trim()));
    return (await stat(join(common, 'objects'))).isDirectory() && isWithin(common, own) ? [common, own] : [];
  } catch {
    return [];
  }
}

function submodules(git: string | undefined): readonly string[] {
  if (git === undefined) return [];
  const walk = (path: string, depth: number): readonly string[] =>
    exists(join(path, 'HEAD'))
      ? [path]
      : depth === 0
        ? []
        : entriesOf(path).flatMap((entry) => (entry.isDirectory() ? walk(join(path, entry.name), depth - 1) : []));
  return entriesOf(join(git, 'modules')).flatMap((entry) =>
    entry.isDirectory() ? walk(join(git, 'modules', entry.name), 3) : [],
  );
}

/** What has to be readable for git itself. */
const GIT_NEEDS = /(^|\/)\.git(\/|$)/;

/** The same paths are private for the policy. */
function privateMatcher({
  folder,
  home,
  rules,
  expose,
}: Pick<ScanOptions, 'folder' | 'home' | 'rules' | 'expose'>): (path: string) => boolean {
  const privateGlob = privatePaths(rules, { folder, ...(home !== undefined && { home }) });
  const shown = expose.map((text) => compileGlob(resolve(folder, text)));
  return (path) => {
    if (GIT_NEEDS.test(path) || privateGlob({ path }) === undefined) return false;
    return !shown.some((glob) => matchesGlob(glob, path.split(sep)) || glob.text === dirname(path));
  };
}

/** Seven fields, the last of which is padded, and the name. */
const SOCKET_LINE = /^[\da-f]+: (?:\S+ ){5} *\d+ (.+)$/;

/**
 * Sockets below the given folders that programs outside listen on. A program that was started in a folder may have given a
 * relative name, so each is looked for in the working folders of all processes.
 */
export function hostSockets(tops: readonly string[], table: string = textOf('/proc/net/unix')): readonly string[] {
  const names = table
    .split('\n')
    .flatMap((line) => SOCKET_LINE.exec(line)?.[1] ?? [])
    .filter((name) => !name.startsWith('@'));
  if (names.length === 0) return [];
  let folders: readonly string[] | undefined;
  const found = new Set<string>();
  for (const name of new Set(names)) {
    folders ??= isAbsolute(name) ? folders : workingFolders();
    for (const path of isAbsolute(name) ? [name] : folders!.map((at) => join(at, name))) {
      const real = realOf(path);
      if (real !== undefined && tops.some((top) => isWithin(top, real)) && lstatOf(real)?.isSocket()) found.add(real);
    }
  }
  return [...found];
}

function workingFolders(): readonly string[] {
  const pids = entriesOf('/proc').filter(({ name }) => /^\d+$/.test(name));
  return [...new Set(pids.flatMap(({ name }) => linkOf(`/proc/${name}/cwd`) ?? []))];
}

export function isWithin(top: string, path: string): boolean {
  return path === top || path.startsWith(top.endsWith(sep) ? top : top + sep);
}

export function exists(path: string): boolean {
  return lstatOf(path) !== undefined;
}

export function maskFor(path: string): readonly Mask[] {
  const found = lstatOf(path);
  if (!found || found.isSymbolicLink()) return [];
  return [{ path, type: found.isDirectory() ? 'folder' : 'file' }];
}

function lstatOf(path: string): Stats | undefined {
  return orElse(() => lstatSync(path, { throwIfNoEntry: false }), undefined);
}

function modeOf(path: string): number {
  return lstatOf(path)?.mode ?? 0;
}

function entriesOf(folder: string): readonly Dirent[] {
  return orElse(() => readdirSync(folder, { withFileTypes: true }), []);
}

function textOf(file: string): string {
  return orElse(() => readFileSync(file, 'utf8'), '');
}

function linkOf(path: string): string | undefined {
  return orElse(() => readlinkSync(path), undefined);
}

function realOf(path: string): string | undefined {
  return orElse(() => realpathSync(path), undefined);
}

function orElse<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
