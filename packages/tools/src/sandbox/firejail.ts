import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecRequest } from '../ops.ts';
import { quoted } from '../shell/session.ts';
import { END_FIRST_SCRIPT, limitScript, PROMISE_NAMES, type Box, type Engine } from './engine.ts';
import { inputOf, isWithin, ownsSystemFiles } from './lookups.ts';

/*
 * Firejail: a setuid program. Its root is that of the host, so everything that should not be seen is named here. It cannot
 * mount the folders of a room: each program has its own empty /tmp and home, and its own loopback.
 */

/** Folders at the top that firejail and every program need. */
const KEPT = new Set('bin dev etc lib lib32 lib64 libx32 opt proc run sbin tmp usr var nix gnu'.split(' '));

export function firejail({ program, version }: { readonly program: string; readonly version: string }): Engine {
  return {
    name: 'firejail',
    program,
    version,
    // Its filter of system calls does not look at arguments, so space can be taken without writing.
    promises: PROMISE_NAMES.filter((name) => !['hosts', 'loopback', 'terminal', 'setuid-files', 'disk'].includes(name)),
    // It takes few and short arguments, so the profile and a long command are files.
    wrap(request, box) {
      const profile = join(box.room.scratch, 'profile');
      writeFileSync(profile, boxProfile(box));
      const isLong =
        request.argv.some((argument) => argument.length >= MAX_ARGUMENT) || request.argv.length >= MAX_ARGUMENTS;
      const groupFd = box.group === undefined ? undefined : isLong ? 4 : 3;
      const input = inputOf(request);
      const limits = limitScript(box.limits, { groupFd, hasNoInput: input.endedInput });
      const descriptors = { ...input, ...(box.group !== undefined && { outputs: [box.group] }) };
      // It cannot mount a file at another place.
      const env = { ...Object.fromEntries(box.files.map(({ from, variable }) => [variable, from])), ...request.env };
      const start = [
        // Inside, /proc is read-only.
        ...(ownsSystemFiles() ? ['/bin/sh', '-c', `${END_FIRST_SCRIPT}; exec "$@"`, 'sh'] : []),
        program,
        '--quiet',
        '--deterministic-exit-code',
        '--deterministic-shutdown',
        `--profile=${profile}`,
        ...(groupFd === undefined ? [] : [`--keep-fd=${groupFd}`]),
      ];
      if (!isLong) {
        const argv = argvOf([...start, '--', '/bin/sh', '-c', limits, 'sh', ...request.argv]);
        return { ...request, env, argv, ...descriptors };
      }
      const command = join(box.room.scratch, 'command');
      writeFileSync(command, request.argv.map(quoted).join(' '));
      const read = `eval "set -- $(cat <&3)"; exec 3<&-; ${limits}`;
      return {
        ...request,
        env,
        argv: argvOf([...start, '--keep-fd=3', '--', '/bin/sh', '-c', read]),
        inputs: [command],
        ...descriptors,
      };
    },
  };
}

const MAX_ARGUMENT = 3_500;
const MAX_ARGUMENTS = 80;

function argvOf(argv: readonly string[]): ExecRequest['argv'] {
  return argv as unknown as ExecRequest['argv'];
}

/** Names of the keys of a user, whoever that is, and what root may read without capabilities. */
const KERNEL_SECRETS = ['/proc/keys', '/proc/timer_list', '/proc/kpageflags'];

/** System calls that its own list does not have. */
const REFUSED =
  'keyctl,add_key,request_key,ptrace,process_vm_readv,process_vm_writev,io_uring_setup,bpf,perf_event_open,userfaultfd,chroot,unshare,setns,syslog,clone3:ENOSYS,fallocate:EOPNOTSUPP';

const WALLS = [
  'net none',
  'caps.drop all',
  'nonewprivs',
  `seccomp ${REFUSED}`,
  // Calls of 32 bits have other numbers.
  'seccomp.block-secondary',
  'restrict-namespaces',
  // Root has it anyway.
  'ipc-namespace',
  'protocol unix,inet,inet6,netlink',
  'private-dev',
  'private-tmp',
  'dbus-user none',
  'dbus-system none',
];

function boxProfile(box: Box): string {
  const { folder, home, readable, writable } = box;
  const files = box.files.map(({ from }) => from);
  const others = [...files, ...readable.filter((path) => !KEPT.has(path.split('/')[1]!))];
  const shown = [folder, ...writable, ...others];
  const isShown = (path: string): boolean => shown.some((one) => isWithin(path, one));
  const hidden = [
    ...below('/').filter((path) => !KEPT.has(path.slice(1)) && !isShown(path) && !isWithin(path, home)),
    ...below('/run').filter((path) => path !== '/run/firejail' && !isShown(path)),
    ...below('/var').filter((path) => !isShown(path)),
    ...(isShown(home) ? [] : [home]),
  ];
  return [
    ...WALLS,
    ...lines('whitelist', shown),
    'read-only /',
    // What is shown in a folder that is hidden is a mount of its own, which the line before does not reach.
    ...lines('read-only', others),
    'read-only /dev',
    // Whoever owns the files in it could change their modes for the whole machine.
    ...(ownsSystemFiles() ? ['read-only /proc'] : []),
    'read-write /dev/shm',
    ...lines('read-write', [folder, ...writable]),
    // Both, because what is writable already would not become a mount of its own, which cannot be renamed.
    ...box.pinned.flatMap((path) => [...lines('read-only', [path]), ...lines('read-write', [path])]),
    ...lines('read-only', box.protected),
    ...lines('blacklist', [...box.masked.map(({ path }) => path), ...hidden, ...KERNEL_SECRETS]),
    '',
  ].join('\n');
}

function lines(command: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => `${command} ${textOf(path)}`);
}

/**
 * A path in a profile, where it is a pattern, and where several blanks become one. A line end would begin another line, so it is
 * refused. Firejail itself refuses some other characters.
 */
function textOf(path: string): string {
  if (/\p{Cc}/u.test(path)) throw new Error(`Firejail cannot name ${JSON.stringify(path)}. Rename it.`);
  return path.replaceAll(/[*?[]| (?= |$)/g, '[$&]');
}

/** What is in a folder, without links: what a link leads to is hidden at its own place. */
function below(folder: string): readonly string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => !entry.isSymbolicLink())
    .map(({ name }) => join(folder, name));
}
