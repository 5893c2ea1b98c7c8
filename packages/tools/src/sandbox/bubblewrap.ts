import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { dirname } from 'node:path';
import type { ExecRequest } from '../ops.ts';
import { limitScript, PROMISE_NAMES, PROXY_PORT, type Box, type Engine, type PromiseName } from './engine.ts';

/*
 * Bubblewrap: namespaces without privileges. The root is built from nothing, so what is not named does not exist.
 *
 * 1. bwrap gets the environment of the program, because the program can read that of bwrap in /proc/1/environ.
 * 2. Its first process is killed when bwrap ends, and bwrap when this process ends. All others are in the same namespace of
 *    processes, so the kernel kills them with it.
 * 3. A program that joins the network of its room does so before bwrap starts. The other namespaces are its own.
 */

export interface BubblewrapFacts {
  readonly program: string;
  readonly version: string;
  /** It knows --disable-userns, since 0.8. */
  readonly disablesNamespaces: boolean;
  /** Joins the network of another process. Absent: each program has a network of its own. */
  readonly nsenter?: string | undefined;
  readonly socat?: string | undefined;
}

export function bubblewrap(facts: BubblewrapFacts): Engine {
  const { program, version, nsenter, socat } = facts;
  const isMade = (name: PromiseName): boolean =>
    (name !== 'hosts' || (nsenter !== undefined && socat !== undefined)) &&
    (name !== 'loopback' || nsenter !== undefined);
  return {
    name: 'bubblewrap',
    program,
    version,
    promises: PROMISE_NAMES.filter(isMade),
    wrap(request, box) {
      const join = box.joins === undefined || nsenter === undefined ? [] : joinNetwork(nsenter, box.joins);
      const argv = [
        ...join,
        program,
        ...boxOptions(box, facts),
        '--',
        '/bin/sh',
        '-c',
        limitScript(box.limits, box.group === undefined ? undefined : box.filter === undefined ? 3 : 4),
        'sh',
        ...request.argv,
      ];
      return {
        ...request,
        argv: argv as unknown as ExecRequest['argv'],
        ...(box.filter !== undefined && { inputs: [box.filter] }),
        ...(box.group !== undefined && { outputs: [box.group] }),
      };
    },
    ...(nsenter !== undefined && {
      keeper: ({ proxy }) => ({
        argv: [
          program,
          // A new /dev would need a second user namespace, whose processes may not join the network.
          ...KEEPER,
          // The first line is its pid, which is the same outside.
          proxy === undefined
            ? 'echo $$; exec cat'
            : `echo $$; exec "$0" TCP-LISTEN:${PROXY_PORT},bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:"$1"`,
          ...(proxy === undefined ? [] : [socat ?? 'socat', proxy]),
        ],
        writable: true,
      }),
    }),
  };
}

const KEEPER =
  '--unshare-user --unshare-net --die-with-parent --new-session --ro-bind / / --dev-bind /dev /dev -- /bin/sh -c'.split(
    ' ',
  );

function joinNetwork(nsenter: string, pid: number): readonly string[] {
  return [nsenter, '--target', String(pid), '--user', '--net', '--preserve-credentials', '--'];
}

/**
 * What the owner root may change or read in /proc without any capability. Bubblewrap covers it only if it can be written as a
 * folder.
 */
const KERNEL_FILES = ['/proc/sys', '/proc/sysrq-trigger', '/proc/mtrr', '/proc/acpi', '/proc/scsi', '/proc/fs'];
const KERNEL_SECRETS = ['/proc/kcore', '/proc/kmsg', '/proc/keys', '/proc/timer_list', '/proc/kpageflags'];

function kernelOptions({ blank }: Box): readonly string[] {
  if (process.getuid?.() !== 0) return [];
  const over = (paths: readonly string[], from?: string): readonly string[] =>
    paths.flatMap((path) => (existsSync(path) ? ['--ro-bind', from ?? path, path] : []));
  return [...over(KERNEL_FILES), ...over(KERNEL_SECRETS, blank.file)];
}

const SHM_BYTES = 256 * 1024 * 1024;

const NAMESPACES = ['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'];
const RIGHTS = ['--die-with-parent', '--new-session', '--cap-drop', 'ALL'];

function boxOptions(box: Box, { disablesNamespaces }: BubblewrapFacts): readonly string[] {
  const { folder, home, room, blank, filter } = box;
  const seen = Map.groupBy(box.readable, (path) => (isSystem(path) ? 'system' : 'other'));
  return [
    NAMESPACES,
    // The filter refuses new namespaces too, and costs less.
    disablesNamespaces && filter === undefined ? ['--disable-userns'] : [],
    box.joins === undefined ? ['--unshare-net'] : [],
    RIGHTS,
    filter === undefined ? [] : ['--seccomp', '3'],
    (seen.get('system') ?? []).flatMap(shown),
    ['--proc', '/proc', ...kernelOptions(box)],
    ['--dev', '/dev', '--size', String(SHM_BYTES), '--tmpfs', '/dev/shm', '--dir', '/run'],
    ['--bind', room.tmp, '/tmp', '--symlink', '/tmp', '/var/tmp', '--bind', room.home, home],
    (seen.get('other') ?? []).flatMap((path) => ['--ro-bind', path, path]),
    [folder, ...box.writable, ...box.pinned].flatMap((path) => ['--bind', path, path]),
    box.protected.flatMap((path) => ['--ro-bind', path, path]),
    box.masked.flatMap(({ path, type }) => ['--ro-bind', blank[type], path]),
    box.files.flatMap(({ from, to }) => ['--ro-bind', from, to]),
    ['--remount-ro', '/', '--chdir', box.workdir],
  ].flat();
}

/** At the top of the file tree, where it may be a link such as /bin. */
function isSystem(path: string): boolean {
  return dirname(path) === '/';
}

function shown(path: string): readonly string[] {
  return lstatSync(path).isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path];
}
