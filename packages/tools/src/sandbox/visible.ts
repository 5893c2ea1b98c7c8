import { readdirSync, type Dirent } from 'node:fs';
import { basename, delimiter, dirname, isAbsolute, join, resolve, sep } from 'node:path';
import { compileGlob, matchesGlob, privatePaths, type PolicyRules } from '@treadle/core/policy';
import type { Mask } from './engine.ts';
import { folderCache, type FolderCache } from './folder-cache.ts';
import { entriesOf, exists, isLink, isWithin, linkOf, lstatOf, realOf, textOf } from './lookups.ts';
import { trustedFiles, worktreeOf } from './repositories.ts';

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

/** Where a system has settings and secrets of its services. The rest of it is programs. */
const SETTINGS = ['/etc', '/usr/local/etc', '/opt'];
/** Deeper there are only programs and their parts, which may be many. */
const MAX_SETTINGS_DEPTH = 4;

/**
 * What of the system this process may read as the owner or by its groups, and others may not. Programs have no capabilities, so
 * all else is unreadable for them.
 */
export function ownFiles(folders: readonly string[] = SETTINGS): readonly Mask[] {
  const user = process.geteuid?.();
  if (user === undefined) return [];
  const groups = new Set([process.getegid!(), ...process.getgroups!()]);
  const found: Mask[] = [];
  const walk = (path: string, depth: number): void => {
    for (const entry of entriesOf(path)) {
      const at = join(path, entry.name);
      const stats = entry.isSymbolicLink() ? undefined : lstatOf(at);
      if (!stats) continue;
      const { mode, uid, gid } = stats;
      const own = uid === user ? mode >> 6 : groups.has(gid) ? mode >> 3 : mode;
      const type = entry.isDirectory() ? 'folder' : 'file';
      // A folder can be listed or entered.
      const reading = type === 'folder' ? 0o5 : 0o4;
      if ((mode & reading) === 0 && (own & reading) !== 0) found.push({ path: at, type });
      else if ((mode & reading) !== 0 && type === 'folder' && depth < MAX_SETTINGS_DEPTH) walk(at, depth + 1);
    }
  };
  for (const folder of folders) walk(folder, 0);
  return found;
}

/** Folders of a home that hold one tool and all that it needs. */
const TOOLS =
  '.asdf .bun .cargo .deno .dotnet .fnm .ghcup .goenv .jenv .local/share/fnm .local/share/mise .n .nodenv .nvm .opam .pixi .pyenv .rbenv .rustup .rvm .sdkman .volta'.split(
    ' ',
  );
/** What a folder with programs has beside `bin`. Other folders may hold anything: keys, a project. */
const BESIDE_PROGRAMS = ['lib', 'lib64', 'libexec', 'share', 'include'];
/** In the folder of a runtime, which needs all of it: conda, Java, Go, Python, Node. */
const IN_RUNTIMES = ['conda-meta', 'lib/modules', 'pkg/tool', 'pyvenv.cfg', 'lib/node_modules/npm'];

/** What programs of PATH need, if it is not part of the system. */
export function toolFolders(path: string, { home, folder }: { home: string; folder: string }): readonly string[] {
  const found = new Set<string>();
  for (const entry of path.split(delimiter)) {
    if (!isAbsolute(entry) || !exists(entry) || [...systemFolders(), folder].some((top) => isWithin(top, entry)))
      continue;
    for (const tool of neededBy(resolve(entry), home)) {
      if (!isWithin(tool, home) && !isWithin(tool, folder) && tool !== '/') found.add(tool);
    }
  }
  // rustup has its programs in ~/.cargo/bin, and what they start beside it.
  if (found.has(join(home, '.cargo')) && exists(join(home, '.rustup'))) found.add(join(home, '.rustup'));
  return [...found];
}

function neededBy(entry: string, home: string): readonly string[] {
  const tool = TOOLS.map((name) => join(home, name)).find((one) => isWithin(one, entry));
  if (tool !== undefined) return [tool];
  const parent = dirname(entry);
  if (entry.endsWith(`${sep}node_modules${sep}.bin`)) return [parent];
  if (!/[\\/]s?bin$/.test(entry) || dirname(parent) === '/') return [entry];
  if (IN_RUNTIMES.some((name) => exists(join(parent, name)))) return [parent];
  return [entry, ...BESIDE_PROGRAMS.map((name) => join(parent, name)).filter(exists)];
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
/** Names that it reads, and that people and other programs create too. */
const INSTRUCTIONS = ['AGENTS.md', '.claude/skills'];
/** Bytes. What is in a folder with a longer one may have no path that can be used. */
const MAX_PATH = 2_000;
/** Others have their turn while folders are looked through. */
const SLICE_MS = 5;

/** What decides what Treadle does in the working folder, and the given paths. */
export function ownPaths(folder: string, others: readonly string[] = []): readonly string[] {
  return [...[...OWN_NAMES, ...INSTRUCTIONS].map((name) => join(folder, name)), ...others];
}

export interface Scan {
  /** The folders that programs can write. */
  readonly tops: readonly string[];
  readonly masked: readonly Mask[];
  /** Exist, and become read-only. */
  readonly protected: readonly string[];
  /** Do not exist now, and must not come into existence. */
  readonly absent: readonly string[];
  /** The same for what people create at any time: only a program that ends soon is known to be the one that did. */
  readonly absentInstructions: readonly string[];
  /** Links on the way to what is protected, which must stay as they are. */
  readonly links: readonly { readonly path: string; readonly to: string }[];
  /** All repositories, and what of them is protected or absent. One that comes into existence may have plain settings only. */
  readonly repositories: readonly string[];
  readonly trusted: ReadonlySet<string>;
  /** Folders that cannot be renamed, because something in them is protected or masked. */
  readonly pinned: readonly string[];
  /** The repository of a worktree. */
  readonly writable: readonly string[];
  /** Folders that this process cannot look into. They are masked. */
  readonly closed: readonly string[];
  /** Folders that cannot be looked into by their path: it is too long, or no text. The last name has a character for each byte. */
  readonly unnamed: readonly string[];
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
  /** `core.hooksPath` of the user's own settings. */
  readonly userHooks?: string | undefined;
}

/** What a scan has to know about one folder. */
export interface FolderFacts {
  readonly masked: readonly Mask[];
  /** Links with a private name. */
  readonly links: readonly string[];
  readonly repositories: readonly string[];
  readonly folders: readonly string[];
  readonly isClosed?: true;
  readonly unnamed?: readonly string[];
}

/**
 * Looks through the working folder. Links are not followed, and in node_modules only repositories are looked for. `cache`: what an earlier scan with
 * the same options has found.
 */
export async function scanFolder(options: ScanOptions, cache: FolderCache<FolderFacts> = folderCache()): Promise<Scan> {
  const { folder } = options;
  const { masked, repositories: found, closed, unnamed } = await walkFolder(options, cache);
  const repositories = found.filter((git) => git !== folder);
  const isMasked = (path: string): boolean => masked.some((mask) => isWithin(mask.path, path));
  // Nothing can be mounted inside a folder that is masked.
  for (const path of options.hide) if (isWithin(folder, path) && !isMasked(path)) masked.push(...maskFor(path));
  const instructions = INSTRUCTIONS.map((name) => join(folder, name));
  const wanted = new Set(ownPaths(folder, options.protect));
  const writable: string[] = [];
  const pinned = new Set<string>();
  for (const git of repositories) {
    const isFile = lstatOf(git)?.isFile() === true;
    const places = isFile && dirname(git) === folder ? worktreeOf(git) : isFile ? [] : [git];
    if (isFile) wanted.add(git);
    else if (!isMasked(git)) pinned.add(git);
    if (isFile) writable.push(...places.slice(0, 1));
    for (const place of places)
      for (const path of trustedFiles(place, { ...options, top: dirname(git) })) wanted.add(path);
  }
  // Files of the working folder can make it a repository too, if `.git` is damaged.
  wanted.add(join(folder, 'HEAD'));
  const tops = [folder, ...writable];
  const isInside = (path: string): boolean => tops.some((top) => path !== top && isWithin(top, path));
  const visible = [...wanted].filter((path) => isInside(path) && !isMasked(path));
  const present = visible.flatMap((path) => realOf(path) ?? []).filter((path) => isInside(path) && !isMasked(path));
  // Elsewhere a file may not be private any more.
  for (const path of [...present, ...masked.map((mask) => mask.path)]) {
    for (let at = dirname(path); at !== folder && isWithin(folder, at); at = dirname(at)) pinned.add(at);
  }
  // A link that leads to nothing yet.
  const targets = visible.flatMap((path) => (isLink(path) && realOf(path) === undefined ? targetsOf(path) : []));
  const ways = new Set(visible.flatMap((path) => wayTo(path, tops)));
  return {
    tops,
    masked,
    protected: [...new Set(present)],
    absent: [...visible.filter((path) => !instructions.includes(path)), ...targets, join(folder, '.treadle')].filter(
      (path) => isMissing(path) && isInside(path),
    ),
    absentInstructions: instructions.filter(isMissing),
    links: [...ways].filter(isLink).map((path) => ({ path, to: linkOf(path)! })),
    repositories,
    trusted: wanted,
    pinned: [...pinned].filter((path) => !isLink(path)).toSorted(),
    writable,
    closed,
    unnamed,
  };
}

/** What programs may not see of a folder that they may read. */
export async function privateFiles(options: MatcherOptions, cache: FolderCache<FolderFacts>): Promise<readonly Mask[]> {
  const { masked, repositories } = await walkFolder({ ...options, readable: options.folder }, cache);
  return [...masked, ...repositories.flatMap(maskFor)];
}

interface Walked {
  readonly masked: Mask[];
  readonly repositories: readonly string[];
  readonly closed: readonly string[];
  readonly unnamed: readonly string[];
}

async function walkFolder(
  options: MatcherOptions & { readonly readable?: string },
  cache: FolderCache<FolderFacts>,
): Promise<Walked> {
  const isPrivate = privateMatcher(options);
  const walked = {
    masked: [] as Mask[],
    repositories: [] as string[],
    closed: [] as string[],
    unnamed: [] as string[],
  };
  const { masked, repositories, closed, unnamed } = walked;
  const links: string[] = [];
  const isLong = (one: string): boolean => Buffer.byteLength(one) - Buffer.byteLength(options.folder) > MAX_PATH;
  const open = [{ path: options.folder, isDependency: false }];
  let sliceEnd = performance.now() + SLICE_MS;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { path, isDependency } = next;
    if (performance.now() > sliceEnd) {
      await new Promise((done) => setImmediate(done));
      sliceEnd = performance.now() + SLICE_MS;
    }
    const found = cache(path, (entries) => folderFacts(path, entries, isDependency ? () => false : isPrivate));
    masked.push(...found.masked);
    links.push(...found.links);
    repositories.push(...found.repositories);
    unnamed.push(...(found.unnamed ?? []));
    if (found.isClosed) closed.push(path);
    for (const one of found.folders)
      if (isLong(one)) {
        unnamed.push(join(path, Buffer.from(basename(one)).toString('latin1')));
        // Nobody knows what is in it.
        masked.push({ path: one, type: 'folder' });
      } else open.push({ path: one, isDependency: isDependency || basename(one) === 'node_modules' });
  }
  // What they lead to would be read by their names.
  for (const link of links) {
    const real = realOf(link);
    if (real !== undefined && real !== options.folder && isWithin(options.folder, real)) masked.push(...maskFor(real));
  }
  return { ...walked, masked: withoutInner(masked) };
}

/** Nothing can be mounted in a folder that is masked. */
function withoutInner(masked: readonly Mask[]): Mask[] {
  const folders = new Set(masked.flatMap(({ path, type }) => (type === 'folder' ? path : [])));
  const isInner = (path: string): boolean =>
    dirname(path) !== path && (folders.has(dirname(path)) || isInner(dirname(path)));
  return [...new Map(masked.map((mask) => [mask.path, mask])).values()].filter(({ path }) => !isInner(path));
}

/** Where a link leads, step by step, as far as that exists. */
function targetsOf(path: string, depth = 10): readonly string[] {
  const named = depth === 0 ? undefined : linkOf(path);
  if (named === undefined) return [];
  const target = resolve(realOf(dirname(path)) ?? dirname(path), named);
  return [target, ...targetsOf(target, depth - 1)];
}

function isMissing(path: string): boolean {
  return !exists(path);
}

/** The path and the folders above it, below the one of the folders that it is in. */
export function wayTo(path: string, tops: readonly string[]): readonly string[] {
  const way: string[] = [];
  for (let at = path; !tops.includes(at) && dirname(at) !== at; at = dirname(at)) way.push(at);
  return way;
}

function folderFacts(
  path: string,
  entries: readonly Dirent[] | undefined,
  isPrivate: (path: string) => boolean,
): FolderFacts {
  // A program could open it later.
  if (!entries) return { masked: [{ path, type: 'folder' }], links: [], repositories: [], folders: [], isClosed: true };
  const [masked, links, repositories, folders]: [Mask[], string[], string[], string[]] = [[], [], [], []];
  const unnamed = entries.some(({ name }) => name.includes('\ufffd')) ? foldersWithoutText(path) : [];
  const names = new Set(entries.map(({ name }) => name));
  // A bare repository. Git also looks for the other two where `commondir` says.
  if (names.has('HEAD') && (names.has('commondir') || (names.has('objects') && names.has('refs'))))
    repositories.push(path);
  for (const entry of entries) {
    const at = join(path, entry.name);
    if (entry.name === '.git') repositories.push(at);
    else if (entry.isDirectory()) {
      // Also if it is masked: a program that has created it may have put a repository there.
      if (isPrivate(join(at, 'x'))) masked.push({ path: at, type: 'folder' });
      folders.push(at);
    } else if (entry.isSymbolicLink()) {
      if (isPrivate(at) || isPrivate(join(at, 'x'))) links.push(at);
    } else if (entry.isFile() && isPrivate(at)) masked.push({ path: at, type: 'file' });
  }
  return { masked, links, repositories, folders, ...(unnamed.length > 0 && { unnamed }) };
}

/** Bytes that are no text become the sign U+FFFD, so a path with that leads to nothing. */
function foldersWithoutText(path: string): readonly string[] {
  return readdirSync(path, { encoding: 'buffer', withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !Buffer.from(entry.name.toString()).equals(entry.name))
    .map(({ name }) => join(path, name.toString('latin1')));
}

/** What has to be readable for git itself. */
const GIT_NEEDS = /(^|\/)\.git(\/|$)/;

type MatcherOptions = Pick<ScanOptions, 'folder' | 'home' | 'rules' | 'expose'>;

/** The same paths are private for the policy. `readable`: the folder, if it is one that the run may read. */
function privateMatcher({
  folder,
  home,
  rules,
  expose,
  readable,
}: MatcherOptions & { readonly readable?: string }): (path: string) => boolean {
  const privateGlob = privatePaths(rules, { folder, ...(home !== undefined && { home }) });
  const shown = expose.map((text) => compileGlob(resolve(folder, text)));
  return (path) => {
    const facts = { path, ...(readable !== undefined && { readable }) };
    if (GIT_NEEDS.test(path) || privateGlob(facts) === undefined) return false;
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

export function maskFor(path: string): readonly Mask[] {
  const found = lstatOf(path);
  if (!found || found.isSymbolicLink()) return [];
  return [{ path, type: found.isDirectory() ? 'folder' : 'file' }];
}
