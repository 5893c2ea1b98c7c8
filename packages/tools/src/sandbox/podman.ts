import { lstatSync, mkdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ExecRequest } from '../ops.ts';
import { END_FIRST, limitScript, PROMISE_NAMES, type Box, type BoxLimits, type Engine } from './engine.ts';
import { inputOf, ownsSystemFiles } from './lookups.ts';
import { ociFilter } from './seccomp.ts';

/*
 * Podman: a container without an image. Its root is an empty folder into which everything is mounted that bubblewrap shows.
 *
 * 1. The container is no child of podman, and stays if podman is killed. Its first process has the marks in its environment,
 *    by which it is found and killed, and the kernel kills all others with it. It is a shell that waits, because a program that
 *    became the first process could change its environment.
 * 2. Podman gets the environment of the program, and passes it on.
 * 3. Each program has its own network, so nothing is shared in a room but files.
 */

export interface PodmanFacts {
  readonly program: string;
  readonly version: string;
  /** Options for the control groups of this machine. */
  readonly options: readonly string[];
}

export function podman({ program, version, options }: PodmanFacts): Engine {
  return {
    name: 'podman',
    program,
    version,
    promises: PROMISE_NAMES.filter((name) => !['hosts', 'loopback'].includes(name)),
    wrap(request, box) {
      const { scratch } = box.room;
      const filter = join(scratch, 'seccomp.json');
      writeFileSync(filter, ociFilter());
      const input = inputOf(request);
      const argv = [
        program,
        ...options,
        // Nothing of it is kept.
        '--events-backend=none',
        'run',
        ...RUN,
        ...limitOptions(box.limits),
        `--security-opt=seccomp=${filter}`,
        `--pids-limit=${box.limits.processes}`,
        ...(request.writable === true ? ['--interactive'] : []),
        ...mountOptions(box),
        `--workdir=${box.workdir}`,
        '--rootfs',
        emptyRoot(scratch, box),
        ...waitingShell(input.endedInput),
        '/bin/sh',
        '-c',
        limitScript(box.limits, { hasNoInput: input.endedInput }),
        'sh',
        ...request.argv,
      ];
      return { ...request, ...input, argv: argv as unknown as ExecRequest['argv'] };
    },
  };
}

/** The first process of the container. */
function waitingShell(hasNoInput: boolean): readonly string[] {
  return ['/bin/sh', '-c', `${hasNoInput ? 'exec </dev/null; ' : ''}"$@"; exit $?`, 'sh'];
}

const RUN = [
  '--rm',
  '--log-driver=none',
  '--network=none',
  '--read-only',
  '--read-only-tmpfs=false',
  '--no-hosts',
  '--no-healthcheck',
  '--passwd=false',
  '--env-host',
  '--unsetenv=HOSTNAME',
  '--cap-drop=all',
  '--security-opt=no-new-privileges',
  '--security-opt=mask=/sys:/proc/kmsg:/proc/kpageflags:/proc/mtrr:/proc/fs',
  '--shm-size=256m',
  ...(process.getuid?.() === 0 ? [] : ['--userns=keep-id']),
  // Whoever owns the files in /proc could change their modes for the whole machine.
  ...(ownsSystemFiles() ? ['--security-opt=proc-opts=ro,nosuid,nodev,noexec', `--oom-score-adj=${END_FIRST}`] : []),
];

/** Podman would raise these two, which is forbidden in some containers. */
function limitOptions({ processes }: BoxLimits): readonly string[] {
  const files = /^Max open files\s+\d+\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? '1024';
  return [`--ulimit=nofile=${files}:${files}`, `--ulimit=nproc=${processes}:${processes}`];
}

function mountOptions(box: Box): readonly string[] {
  const { folder, home, room, blank } = box;
  // By their places: podman refuses a second mount at the same one.
  const mounts = new Map<string, { readonly from: string; readonly isWritable: boolean }>();
  const show = (path: string, from = path): unknown => mounts.set(path, { from, isWritable: false });
  const open = (path: string, from = path): unknown => mounts.set(path, { from, isWritable: true });
  for (const path of box.readable) if (!isLink(path)) show(path);
  open('/tmp', room.tmp);
  open(home, room.home);
  for (const path of [folder, ...box.writable, ...box.pinned]) open(path);
  for (const path of box.protected) show(path);
  for (const { path, type } of box.masked) show(path, blank[type]);
  for (const { from, to } of box.files) show(to, from);
  return [...mounts].map(([to, { from, isWritable }]) => {
    const unclear = [from, to].find((path) => /[,"\n\\]/.test(path));
    if (unclear !== undefined) throw new Error(`Podman cannot mount ${JSON.stringify(unclear)}.`);
    return `--mount=type=bind,source=${from},destination=${to},readonly=${String(!isWritable)}`;
  });
}

/** Podman makes the places of mounts in it. Links at the top are kept, such as /bin. */
function emptyRoot(scratch: string, { readable }: Box): string {
  const root = join(scratch, 'root');
  mkdirSync(join(root, 'var'), { recursive: true });
  symlinkSync('/tmp', join(root, 'var', 'tmp'));
  for (const path of readable) {
    if (dirname(path) === '/' && isLink(path)) symlinkSync(readlinkSync(path), join(root, path));
  }
  return root;
}

function isLink(path: string): boolean {
  return lstatSync(path).isSymbolicLink();
}
