import { existsSync, lstatSync, readlinkSync, realpathSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { ExecRequest } from '../ops.ts';
import {
  END_FIRST,
  limitScript,
  PROMISE_NAMES,
  PROXY_PORT,
  type Box,
  type Engine,
  type Keeper,
  type Mask,
  type PromiseName,
} from './engine.ts';
import { inputOf, isWithin, ownsSystemFiles } from './lookups.ts';
import { mountCheck, onlyChildOf, type Expected } from './mounts.ts';

/*
 * Bubblewrap: namespaces without privileges. The root is built from nothing, so what is not named does not exist.
 *
 * 1. bwrap gets the environment of the program, because the program can read that of bwrap in /proc/1/environ.
 * 2. Its first process is killed when bwrap ends, and bwrap when this process ends. All others are in the same namespace of
 *    processes, so the kernel kills them with it.
 * 3. A program that joins the network of its room does so before bwrap starts. The other namespaces are its own.
 * 4. It joins the mounts of the keeper too, which has only the folders that are needed: bwrap reads the list of all mounts after
 *    each one that it makes, so those of the host would cost more than its own. All but what programs may change is read-only there.
 * 5. The keeper has also masked what is private outside the working folder, and a program gets its masks with the folders that
 *    contain them. A mask is gone when its file is replaced, so each program masks again what the keeper shows.
 * 6. Whoever owns the files of the system could change their modes, so for root the devices and /proc are read-only.
 * 7. It finds all by names, in a folder that programs are changing. So a program waits until somebody has compared what was mounted.
 */

export interface BubblewrapFacts {
  readonly program: string;
  readonly version: string;
  /** It knows --disable-userns, since 0.8. */
  readonly disablesNamespaces: boolean;
  /** Joins the network of another process. Absent: each program has a network of its own. */
  readonly nsenter?: string | undefined;
  readonly socat?: string | undefined;
  /** Root needs both, to make devices read-only. */
  readonly unshare?: string | undefined;
  readonly mount?: string | undefined;
}

export function bubblewrap(facts: BubblewrapFacts): Engine {
  const { program, version, nsenter, socat } = facts;
  const isMade = (name: PromiseName): boolean =>
    (name !== 'hosts' || (nsenter !== undefined && socat !== undefined)) &&
    (name !== 'loopback' || nsenter !== undefined) &&
    (name !== 'devices' || devicesFixed(facts) !== undefined);
  return {
    name: 'bubblewrap',
    program,
    version,
    promises: PROMISE_NAMES.filter(isMade),
    checksMounts: true,
    wrap(request, box) {
      const inputs = [box.filter].filter((path) => path !== undefined);
      const outputs = [box.group].filter((path) => path !== undefined);
      const gateFd = 3 + inputs.length + outputs.length;
      const { joins, inherited = [] } = box;
      const shared = joins && joinsMounts(joins, box) ? joins : undefined;
      const options = boxOptions(box, facts, shared);
      const input = inputOf(request);
      const argv = [
        // The keeper has done it. Bubblewrap is the first process inside, so /proc/1/exe leads to it.
        ...(shared === undefined ? (devicesFixed(facts, program) ?? []) : []),
        ...(joins === undefined || nsenter === undefined ? [] : joinKeeper(nsenter, joins, shared !== undefined)),
        program,
        ...options,
        '--',
        shellFor(inherited),
        '-c',
        limitScript(box.limits, {
          groupFd: box.group === undefined ? undefined : gateFd - 1,
          gateFd,
          hasNoInput: input.endedInput,
          closes: inherited,
        }),
        'sh',
        ...request.argv,
      ];
      return {
        ...request,
        ...input,
        argv: argvOf(argv),
        inputs,
        outputs,
        gate: () => {
          const check = mountCheck(expectedMounts(options, box), [box.folder, ...box.writable]);
          return ({ pid }) => {
            const wrong = check(() => onlyChildOf(pid));
            if (wrong === undefined) endFirst(pid);
            return wrong && `[sandbox: not started, because something was replaced meanwhile: ${wrong}. Try again]`;
          };
        },
      };
    },
    ...(nsenter !== undefined && {
      keeper: (box) => ({
        argv: argvOf([
          ...(devicesFixed(facts) ?? []),
          program,
          ...KEEPER,
          // Bubblewrap builds its file tree on /tmp, so the folder must be there also if temporary files are elsewhere.
          ...topsOf(box, program, socat, '/tmp').flatMap(shown),
          ...changedIn(box).flatMap((path) => ['--bind', path, path]),
          // A new /dev would need a second user namespace, whose processes may not join the network.
          '--bind',
          '/proc',
          '/proc',
          '--dev-bind',
          '/dev',
          '/dev',
          ...masks(
            box,
            box.masked.filter((mask) => isOutside(mask, box)),
          ),
          '--',
          '/bin/sh',
          '-c',
          // The first line is its pid, which is the same outside.
          box.proxy === undefined
            ? 'echo $$; exec cat'
            : `echo $$; exec "$0" TCP-LISTEN:${PROXY_PORT},bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:"$1"`,
          ...(box.proxy === undefined ? [] : [socat ?? 'socat', box.proxy]),
        ]),
        writable: true,
      }),
    }),
  };
}

function argvOf(argv: readonly string[]): ExecRequest['argv'] {
  return argv as unknown as ExecRequest['argv'];
}

/** Not from PATH, which may name folders that programs can write. */
function shellFor(inherited: readonly number[]): string {
  if (inherited.length === 0) return '/bin/sh';
  const bash = ['/bin/bash', '/usr/bin/bash'].find((path) => existsSync(path));
  if (bash !== undefined) return bash;
  throw new Error(`Treadle was started with open descriptors (${inherited.join(', ')}), which only bash can close.`);
}

/** The keeper has masked some files before, at the same places. */
function expectedMounts(options: readonly string[], { masked, blank }: Box): Expected {
  const expected = new Map(masked.map(({ path, type }) => [path, { from: blank[type], isWritable: false }]));
  for (const [index, option] of options.entries()) {
    if (option !== '--bind' && option !== '--ro-bind') continue;
    const [from = '', at = ''] = options.slice(index + 1);
    expected.set(at, { from, isWritable: option === '--bind' });
  }
  return expected;
}

/**
 * Starts a program in mounts of its own, in which the devices are read-only, and the given files too: their owner could change their modes
 * for everybody. Bubblewrap cannot mount a device so. Empty: this user does not own them. Undefined: it cannot be done.
 */
function devicesFixed(
  { unshare, mount }: BubblewrapFacts,
  ...others: readonly string[]
): readonly string[] | undefined {
  if (!ownsSystemFiles()) return [];
  if (unshare === undefined || mount === undefined) return undefined;
  return [unshare, '--mount', '--propagation', 'slave', '/bin/sh', '-c', FIX, mount, '/dev', ...others, '--'];
}

const FIX = `while [ "$1" != -- ]; do
  "$0" --rbind "$1" "$1" && "$0" -o remount,bind,ro "$1" || { echo "sandbox: $1 could not be made read-only" >&2; exit 125; }
  shift
done; shift; exec "$@"`;

/** What a program cannot do by itself if /proc is read-only: the kernel ends it before others when memory is short. */
function endFirst(pid: number): void {
  if (!ownsSystemFiles()) return;
  try {
    writeFileSync(`/proc/${onlyChildOf(onlyChildOf(pid))}/oom_score_adj`, END_FIRST);
  } catch {
    // It has ended.
  }
}

const KEEPER = ['--unshare-user', '--unshare-net', '--die-with-parent', '--new-session'];

function joinKeeper(nsenter: string, { pid }: Keeper, hasMounts: boolean): readonly string[] {
  const mounts = hasMounts ? ['--mount'] : [];
  return [nsenter, '--target', String(pid), '--user', '--net', ...mounts, '--preserve-credentials', '--'];
}

/** The mounts of the host are used if something is needed that the keeper does not have, or that was replaced since. */
function joinsMounts(keeper: Keeper, box: Box): boolean {
  const has = new Set(topsOf(keeper.box));
  return topsOf(box).every((path) => has.has(path)) && changedIn(box).every((path) => isSame(keeper, path, path));
}

/** Whether the keeper has the same file or folder at a path as the host has at another. */
function isSame({ pid }: Keeper, path: string, here: string): boolean {
  try {
    const [seen, { dev, ino }] = [statSync(`/proc/${pid}/root${path}`), statSync(here)];
    return seen.dev === dev && seen.ino === ino;
  } catch {
    return false;
  }
}

/** What programs can write, apart from what is new for each. */
function changedIn({ folder, writable, room }: Box): readonly string[] {
  return [...new Set([folder, ...writable, room.tmp, room.home])];
}

function masks({ blank }: Box, masked: readonly Mask[]): readonly string[] {
  return masked.flatMap(({ path, type }) => ['--ro-bind', blank[type], path]);
}

/** Nothing that programs do replaces it. */
function isOutside({ path }: Mask, { folder, writable }: Box): boolean {
  return ![folder, ...writable].some((one) => isWithin(one, path));
}

/** What is not masked yet, by the keeper whose mounts are shared. */
function openMasks(box: Box, shared: Keeper | undefined): readonly Mask[] {
  const { masked, blank } = box;
  if (!shared) return masked;
  const isMasked = (mask: Mask): boolean => isOutside(mask, box) && isSame(shared, mask.path, blank[mask.type]);
  return masked.filter((mask) => !isMasked(mask));
}

/** The folders at the top of the file tree that contain what a box shows, and these programs. Links are followed. */
function topsOf({ folder, readable, writable, room }: Box, ...programs: (string | undefined)[]): readonly string[] {
  const paths = [...readable, folder, ...writable, room.tmp, ...programs.filter((path) => path !== undefined)];
  return [
    ...new Set(paths.flatMap((path) => [path, realpathSync.native(path)]).map((path) => `/${path.split('/')[1]!}`)),
  ];
}

/** What root may read in /proc without any capability. The kernel demands them for the rest of what others may not read. */
const KERNEL_SECRETS = ['/proc/timer_list', '/proc/kpageflags'];
/** Names of the keys of a user, whoever that is. */
const KEYS = '/proc/keys';

let kernelSecrets: readonly string[] | undefined;

function kernelOptions({ blank }: Box): readonly string[] {
  kernelSecrets ??= [KEYS, ...(process.getuid?.() === 0 ? KERNEL_SECRETS : [])].filter((path) => existsSync(path));
  return [
    ...kernelSecrets.flatMap((path) => ['--ro-bind', blank.file, path]),
    ...(ownsSystemFiles() ? ['--remount-ro', '/proc'] : []),
  ];
}

const SHM_BYTES = 256 * 1024 * 1024;

const NAMESPACES = ['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'];
const RIGHTS = ['--die-with-parent', '--new-session', '--cap-drop', 'ALL'];

function boxOptions(box: Box, { disablesNamespaces }: BubblewrapFacts, shared: Keeper | undefined): readonly string[] {
  const { folder, home, room, filter } = box;
  const seen = Map.groupBy(box.readable, (path) => (isSystem(path) ? 'system' : 'other'));
  return [
    NAMESPACES,
    // The filter refuses new namespaces too, and costs less.
    disablesNamespaces && filter === undefined ? ['--disable-userns'] : [],
    box.joins === undefined ? ['--unshare-net'] : [],
    RIGHTS,
    filter === undefined ? [] : ['--seccomp', '3'],
    ['--proc', '/proc', ...kernelOptions(box)],
    ['--dev', '/dev', '--size', String(SHM_BYTES), '--tmpfs', '/dev/shm', '--dir', '/run'],
    // After these, because they bring the masks of the keeper, and each mount takes longer the more there are.
    (seen.get('system') ?? []).flatMap(shown),
    ['--bind', room.tmp, '/tmp', '--symlink', '/tmp', '/var/tmp', '--bind', room.home, home],
    // Before anything that other programs can replace, because a place that does not exist is created.
    box.files.flatMap(({ from, to }) => ['--ro-bind', from, to]),
    (seen.get('other') ?? []).flatMap((path) => ['--ro-bind', path, path]),
    [folder, ...box.writable, ...box.pinned].flatMap((path) => ['--bind', path, path]),
    box.protected.flatMap((path) => ['--ro-bind', path, path]),
    masks(box, openMasks(box, shared)),
    // Both are in memory, and nothing limits what a program writes there.
    ['--remount-ro', '/dev', '--remount-ro', '/', '--chdir', box.workdir],
  ].flat();
}

/** At the top of the file tree, where it may be a link such as /bin. */
function isSystem(path: string): boolean {
  return dirname(path) === '/';
}

function isLink(path: string): boolean {
  return lstatSync(path).isSymbolicLink();
}

function shown(path: string): readonly string[] {
  return isLink(path) ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path];
}
