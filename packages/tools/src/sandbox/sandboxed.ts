import { execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync, realpathSync } from 'node:fs';
import { homedir, totalmem } from 'node:os';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import type { PolicyRules } from '@treadle/core/policy';
import { programEnvironment } from '../local/environment.ts';
import { folderFor } from '../local/exec.ts';
import type { ExecRequest, Execution, Ops } from '../ops.ts';
import { checkedAfterwards, isUntouched } from './afterwards.ts';
import { blockedText } from './blocked.ts';
import { PROXY_PORT, type Box, type BoxLimits, type Engine, type Mask, type PromiseName } from './engine.ts';
import { trustedFolders } from './engines.ts';
import { folderCache } from './folder-cache.ts';
import { startProxy, type HostCheck } from './proxy.ts';
import { guardReserve } from './reserve-guard.ts';
import { openRooms, type OpenRoom, type Rooms } from './rooms.ts';
import { exists, inheritedDescriptors, isLink, isWithin } from './lookups.ts';
import {
  hostSockets,
  maskFor,
  ownPaths,
  privateFiles,
  ownFiles,
  scanFolder,
  systemFolders,
  toolFolders,
  toolSecrets,
  type FolderFacts,
  type Scan,
} from './visible.ts';

export interface SandboxOptions {
  /** What the probe has seen to hold. Default: what the engine is made to keep. */
  readonly promises?: readonly PromiseName[];
  /** Which files are private besides the default ones, and which are not: `private` of the rules of a policy. */
  readonly private?: PolicyRules['private'];
  /** Private files of the folder that programs may read, and files outside of it. `~/` is the home folder. */
  readonly expose?: readonly string[];
  /** Folders that programs may read while these sources narrow their run, such as those of its skills. Without links. */
  readonly readable?: (narrowedBy: readonly string[]) => readonly string[];
  /** Files and folders that are read-only besides those that always are. */
  readonly protect?: readonly string[];
  /** Files and folders that cannot be read, such as the store. */
  readonly hide?: readonly string[];
  /** Says why a host may not be reached, or nothing. Absent: there is no network. */
  readonly hosts?: HostCheck;
  readonly limits?: Partial<BoxLimits>;
  /** The home folder of the user. Default: that of this process. */
  readonly home?: string;
  /** Variables besides the listed ones. */
  readonly env?: Readonly<Record<string, string>>;
}

const GIGABYTE = 1024 ** 3;

/** In a container it may be less than what the machine has. */
function memoryHere(): number {
  const most = process.constrainedMemory();
  return most > 0 ? Math.min(most, totalmem()) : totalmem();
}

/** Generous: they stop what runs away, and no build. */
const DEFAULT_LIMITS: BoxLimits = {
  cpuSeconds: 3_600,
  memoryBytes: Math.min(16 * GIGABYTE, Math.floor(totalmem() * 0.75)),
  fileBytes: 4 * GIGABYTE,
  processes: 4_096,
  reserveBytes: GIGABYTE,
  reserveFiles: 20_000,
  reserveMemoryBytes: Math.min(GIGABYTE, Math.floor(memoryHere() / 16)),
};

/** Variables that programs get. None of them usually holds a secret. */
const VARIABLES =
  /^(PATH|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|PAGER|GIT_(PAGER|EDITOR|TERMINAL_PROMPT|CONFIG_(COUNT|(KEY|VALUE)_\d+))|NO_COLOR|FORCE_COLOR|CI|NODE_ENV|DEBIAN_FRONTEND|SOURCE_DATE_EPOCH|JAVA_HOME|GOROOT|GOPATH|GOFLAGS|CARGO_HOME|RUSTUP_HOME|PYENV_ROOT|NVM_DIR|VIRTUAL_ENV|CONDA_PREFIX|UV_CACHE_DIR|PYTHON(UNBUFFERED|DONTWRITEBYTECODE|UTF8|HASHSEED))$/;

export function isListedVariable(name: string): boolean {
  return VARIABLES.test(name) || ADDED_VARIABLES.test(name);
}

/** Those that the sandbox sets, and that shells, firejail and podman set by themselves. */
const ADDED_VARIABLES =
  /^(FIREJAIL_\w+|GIT_CONFIG_GLOBAL|DBUS_\w+_BUS_ADDRESS|container|HOSTNAME|PROMPT_COMMAND|Q(T|ML)_\w+|KDE_FORK_SLAVES|HOME|TMPDIR|PWD|OLDPWD|SHLVL|_|TREADLE_(BOX|PROCESS_\w+)|(HTTPS?|NO)_PROXY|(https?|no)_proxy|NODE_USE_ENV_PROXY)$/;

/** A scan is used for this many times as long as it took, and at least for this time. */
const SCAN_FACTOR = 10;
const SCAN_MS = 1_000;

/** The same files, and programs in a sandbox. Throws if the folder cannot be confined. */
export function sandboxed(ops: Ops, engine: Engine, options: SandboxOptions = {}): Ops {
  const folder = realpathSync(ops.files.folder);
  const home = realHome(options.home ?? homedir());
  if (folder === '/' || isWithin(folder, home)) {
    throw new Error(`A sandbox cannot protect ${home} if the working folder is ${folder}. Work in a folder below it.`);
  }
  const { exec } = ops;
  const state = lazyState(ops, engine, { folder, home, options });
  const own = ownPaths(folder, options.protect);
  const written = new Set<string>();
  ops.files.onChange?.((path) => own.filter((one) => isWithin(one, path)).forEach((one) => written.add(one)));
  const isOwn = (path: string): boolean => written.has(path);
  const running = new Set<ReadonlySet<string>>();

  async function start(request: ExecRequest): Promise<Execution> {
    const program = findProgram(request.argv[0]);
    const workdir = request.workdir === undefined ? folder : await folderFor(ops.files, request);
    const { rooms, proxy, base } = await state();
    const ending = request.room === undefined ? rooms.open() : undefined;
    const room = ending ?? rooms.get(request.room!.id);
    if (!room) throw new Error('The room of the run is closed.');
    try {
      const scan = await base.scan.kept();
      const more = await base.more(request);
      const alone = boxFor({ folder, workdir, home, room, rooms, scan, more, proxy, base });
      const isShared = request.room !== undefined || proxy !== undefined;
      const box = isShared ? { ...alone, joins: await room.keeper(alone) } : alone;
      const kept = new Set([...box.pinned, ...box.protected, ...box.masked.map(({ path }) => path)]);
      if (engine.checksMounts === undefined) demandKept(kept, running, [folder, ...box.writable]);
      running.add(kept);
      const { room: _, ...bare } = request;
      const wrapped = engine.wrap({ ...bare, argv: [program, ...request.argv.slice(1)] }, box);
      const started = exec.start({ ...wrapped, workdir, baseEnv: { ...base.env, ...rooms.mark } });
      started.catch(() => running.delete(kept));
      const execution = await started;
      room.uses(execution);
      void execution.exit.then(() => running.delete(kept));
      if (ending) void execution.exit.then(() => ending.close()).catch(() => {});
      const guarded = guardReserve(execution, [folder, room.tmp], base.limits);
      return checkedAfterwards(guarded, scan, {
        isLasting: request.writable === true,
        isOwn,
        scanAgain: base.scan.again,
      });
    } catch (error) {
      await ending?.close();
      throw error;
    }
  }

  return {
    files: ops.files,
    exec: {
      start,
      killMarked: (mark) => exec.killMarked(mark),
      ...(exec.markedProcess && { markedProcess: exec.markedProcess.bind(exec) }),
      get ripgrep() {
        return exec.ripgrep;
      },
      sandbox: {
        engine: engine.name,
        promises: promisesHere(engine, options),
        outside: exec,
        openRoom: async () => (await state()).rooms.open(),
        ...(options.readable && { readable: options.readable }),
        blocked: (output) => blockedText(output, { folder, hasNetwork: options.hosts !== undefined }),
      },
    },
  };
}

/**
 * Throws if a program runs that was started before something was kept at its place. It could put a link there while the engine looks for
 * it, which would show what the link leads to.
 */
function demandKept(
  kept: ReadonlySet<string>,
  running: ReadonlySet<ReadonlySet<string>>,
  tops: readonly string[],
): void {
  const isInside = (path: string): boolean => tops.some((top) => isWithin(top, path));
  const open = [...kept].find((path) => isInside(path) && [...running].some((one) => !one.has(path)));
  if (open === undefined) return;
  throw new Error(
    `The sandbox has to protect ${open}, which was created while another program ran. End what runs in the background and in sessions first.`,
  );
}

/** Programs have no network, or reach allowed hosts: one of the two promises holds. */
function promisesHere(engine: Engine, { promises = engine.promises, hosts }: SandboxOptions): readonly PromiseName[] {
  const other = hosts && engine.promises.includes('hosts') ? 'network' : 'hosts';
  return promises.filter((name) => name !== other);
}

interface Place {
  readonly folder: string;
  readonly home: string;
  readonly options: SandboxOptions;
}

interface Base {
  readonly readable: readonly string[];
  readonly masked: readonly Mask[];
  readonly env: Readonly<Record<string, string>>;
  readonly limits: BoxLimits;
  readonly inherited: readonly number[];
  readonly scan: Scans;
  /** What a program sees besides the others, and what of it is private. */
  more(request: ExecRequest): Promise<Pick<Box, 'readable' | 'masked'>>;
}

interface State {
  readonly rooms: Rooms;
  readonly proxy: string | undefined;
  readonly base: Base;
}

/** Made at the first program: most processes that have tools never start one. */
function lazyState({ exec }: Ops, engine: Engine, place: Place): () => Promise<State> {
  let made: Promise<State> | undefined;
  const make = async (): Promise<State> => {
    const { hosts, limits } = place.options;
    const { processes } = { ...DEFAULT_LIMITS, ...limits };
    const git = userGit();
    const rooms = openRooms(exec, engine, { gitConfig: git.config, processes });
    const proxy = hosts && engine.promises.includes('hosts') ? rooms.proxySocket : undefined;
    if (proxy !== undefined) await startProxy(proxy, hosts!);
    return { rooms, proxy, base: baseOf(place, { hasProxy: proxy !== undefined, userHooks: git.hooksPath }) };
  };
  return () => (made ??= make());
}

function baseOf(
  { folder, home, options }: Place,
  { hasProxy, userHooks }: { readonly hasProxy: boolean; readonly userHooks: string | undefined },
): Base {
  const given = programEnvironment(process.env);
  const tools = toolFolders(given.PATH ?? '', { home, folder });
  const expose = (options.expose ?? []).map((path) => (path.startsWith('~/') ? join(home, path.slice(2)) : path));
  const outside = expose.filter((path) => isAbsolute(path) && !isWithin(folder, path) && exists(path));
  const { protect = [], hide = [] } = options;
  const rules = options.private ? { private: options.private } : {};
  const folders = folderCache<FolderFacts>();
  const kept = Object.entries(given).filter(([name]) => VARIABLES.test(name));
  return {
    readable: [...systemFolders(), ...tools, ...outside],
    masked: [...ownFiles(), ...toolSecrets(tools)].filter(({ path }) => !outside.includes(path)),
    env: {
      ...Object.fromEntries(kept),
      HOME: home,
      TMPDIR: '/tmp',
      ...(hasProxy && proxyVariables()),
      ...options.env,
    },
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    inherited: inheritedDescriptors(),
    scan: keptScan(() => scanFolder({ folder, home, rules, expose, protect, hide, userHooks }, folders)),
    async more({ narrowedBy, reads = [] }) {
      const active = narrowedBy ? (options.readable?.(narrowedBy) ?? []) : [];
      const isShown = (path: string): boolean => !isWithin(folder, path) && isWithoutLinks(path);
      const shown = active.filter(isShown);
      const hidden = shown.map((path) => privateFiles({ folder: path, home, rules, expose }, folders));
      return { readable: [...shown, ...reads.filter(isShown)], masked: (await Promise.all(hidden)).flat() };
    },
  };
}

/** A link that has taken the place of a folder would show something else. */
function isWithoutLinks(path: string): boolean {
  try {
    return realpathSync(path) === path;
  } catch {
    return false;
  }
}

interface Scans {
  /** Looking through a large folder takes longer than most commands, so the last result is used for a while. */
  readonly kept: () => Promise<Scan>;
  readonly again: () => Promise<Scan>;
}

function keptScan(scan: () => Promise<Scan>): Scans {
  let last: Promise<Scan> | undefined;
  let validTo = 0;
  const again = (): Promise<Scan> => {
    const startedAt = performance.now();
    validTo = Infinity;
    last = scan().finally(() => {
      const tookMs = performance.now() - startedAt;
      validTo = performance.now() + Math.max(SCAN_MS, tookMs * SCAN_FACTOR);
    });
    return last;
  };
  const kept = async (): Promise<Scan> => {
    const known = last;
    return known && performance.now() < validTo && isUntouched(await known) ? known : again();
  };
  return { kept, again };
}

function boxFor({
  folder,
  workdir,
  home,
  room,
  rooms,
  scan,
  more,
  proxy,
  base,
}: {
  readonly folder: string;
  readonly workdir: string;
  readonly home: string;
  readonly room: OpenRoom;
  readonly rooms: Rooms;
  readonly scan: Scan;
  readonly more: Pick<Box, 'readable' | 'masked'>;
  readonly proxy: string | undefined;
  readonly base: Base;
}): Box {
  // What was there at the scan may be gone, and what is mounted has to exist.
  const present = (path: string): boolean => exists(path) && !isLink(path);
  const readable = [...base.readable, ...more.readable];
  // A socket in a folder that is read-only can be connected to.
  const sockets = hostSockets([folder, ...scan.writable, ...readable]).flatMap(maskFor);
  return {
    folder,
    workdir,
    home,
    readable,
    writable: scan.writable.filter(present),
    pinned: scan.pinned.filter(present),
    protected: scan.protected.filter(present),
    masked: [...base.masked, ...scan.masked, ...more.masked, ...sockets].filter(({ path }) => present(path)),
    room,
    blank: rooms.blank,
    files: [{ from: rooms.gitConfig, to: join(home, '.gitconfig'), variable: 'GIT_CONFIG_GLOBAL' }],
    proxy,
    limits: base.limits,
    filter: rooms.filter,
    group: rooms.group,
    inherited: base.inherited,
  };
}

/** As the system would find it. Missing programs are reported before the sandbox starts, as they are without it. */
function findProgram(name: string): string {
  if (name.includes('/')) return resolve(name) === name || !existsSync(name) ? name : resolve(name);
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    try {
      if (!isAbsolute(folder)) continue;
      accessSync(join(folder, name), constants.X_OK);
      return name;
    } catch {
      continue;
    }
  }
  throw Object.assign(new Error(`spawn ${name} ENOENT`), { code: 'ENOENT', path: name });
}

/** Settings of the user that change what git records, and name no program. */
const GIT_SETTINGS =
  /^(user\.(name|email)|init\.defaultbranch|core\.(autocrlf|eol|safecrlf)|pull\.(rebase|ff)|push\.default|merge\.conflictstyle)$/;

interface UserGit {
  /** The settings that programs get. */
  readonly config: string;
  /** Hooks of all repositories of the user may be in a folder of each. */
  readonly hooksPath: string | undefined;
}

function userGit(): UserGit {
  let listed: string;
  try {
    const env = { ...process.env, PATH: trustedFolders().join(delimiter) };
    listed = execFileSync('git', ['config', '--list', '-z'], { encoding: 'utf8', stdio: 'pipe', cwd: '/', env });
  } catch {
    listed = '';
  }
  const settings = listed.split('\0').map((entry) => {
    const [key = '', ...value] = entry.split('\n');
    return { key, value: value.join(' ') };
  });
  const lines = settings.flatMap(({ key, value }) => {
    if (!GIT_SETTINGS.test(key)) return [];
    const [section, name] = key.split('.');
    return [`[${section}]`, `\t${name} = ${JSON.stringify(value)}`];
  });
  return {
    // Its owner may be unknown inside.
    config: [...lines, '[safe]', '\tdirectory = *', ''].join('\n'),
    hooksPath: settings.findLast(({ key }) => key === 'core.hookspath')?.value,
  };
}

function proxyVariables(): Readonly<Record<string, string>> {
  const url = `http://127.0.0.1:${PROXY_PORT}`;
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'];
  const direct = 'localhost,127.0.0.1,::1';
  return {
    ...Object.fromEntries(names.map((name) => [name, url])),
    NO_PROXY: direct,
    no_proxy: direct,
    NODE_USE_ENV_PROXY: '1',
  };
}

function realHome(home: string): string {
  try {
    return realpathSync(home);
  } catch {
    return resolve(home);
  }
}
