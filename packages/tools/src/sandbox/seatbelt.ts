import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ExecRequest } from '../ops.ts';
import { limitScript, type Box, type Engine, type PromiseName } from './engine.ts';
import { isWithin } from './lookups.ts';

/*
 * Seatbelt: the sandbox of macOS, by `sandbox-exec` with a profile.
 *
 * 1. What the profile does not name is refused. Of several rules that match, the last one decides.
 * 2. A rule names a path, and not a file. So a folder that leads to a protected or masked file cannot be renamed, and hard
 *    links cannot be made at all.
 * 3. Nothing is mounted: /tmp and the home folder are those of the room by their variables, and the real ones are refused.
 * 4. Programs have no network, not even with one another. There is no namespace of processes either, so a process that hides
 *    may stay, and the memory of a process is not limited.
 */

const PROMISED: readonly PromiseName[] = [
  'network',
  'root',
  'protected',
  'private',
  'home',
  'processes',
  'devices',
  'setuid',
  'namespaces',
  'sockets',
  'terminal',
  'tmp',
  'count',
  'file-size',
  'cpu',
  'disk',
  'environment',
];

export function seatbelt({ program, version }: { readonly program: string; readonly version: string }): Engine {
  return {
    name: 'seatbelt',
    program,
    version,
    promises: PROMISED,
    wrap(request, box) {
      const profile = join(box.room.scratch, 'profile.sb');
      writeFileSync(profile, seatbeltProfile(box));
      const files = box.files.map(({ from, variable }) => [variable, from]);
      const argv = [program, '-f', profile, '/bin/sh', '-c', limitScript(box.limits), 'sh', ...request.argv];
      return {
        ...request,
        argv: argv as unknown as ExecRequest['argv'],
        env: { HOME: box.room.home, TMPDIR: box.room.tmp, ...Object.fromEntries(files), ...request.env },
      };
    },
  };
}

/** Real places: the kernel compares paths after it has followed links, and /etc is one. */
const SYSTEM =
  '/usr /bin /sbin /System /Library /Applications /opt /nix/store /private/etc /private/var/db/dyld /private/var/db/timezone /private/var/select'.split(
    ' ',
  );
const DEVICES = '/dev/null /dev/zero /dev/random /dev/urandom'.split(' ');

/** Users, groups, time and the log. Not the keychain, the clipboard, or what opens programs. */
const SERVICES = [
  'com.apple.system.opendirectoryd.libinfo',
  'com.apple.system.opendirectoryd.membership',
  'com.apple.system.notification_center',
  'com.apple.system.logger',
  'com.apple.logd',
];

const BASE = [
  '(version 1)',
  '(deny default)',
  '(allow process-exec process-fork)',
  '(allow process-info* (target same-sandbox))',
  '(allow signal (target same-sandbox))',
  '(allow ipc-posix-sem)',
  '(allow sysctl-read (sysctl-name-prefix "hw.") (sysctl-name-prefix "machdep.cpu.") (sysctl-name-prefix "kern.os")',
  '  (sysctl-name "kern.argmax") (sysctl-name "kern.hostname") (sysctl-name "kern.maxfilesperproc")',
  '  (sysctl-name "kern.ngroups") (sysctl-name "kern.secure_kernel") (sysctl-name "kern.usrstack64")',
  '  (sysctl-name "kern.version") (sysctl-name "sysctl.proc_cputype") (sysctl-name "vm.loadavg"))',
  // Needed to walk to what may be read. It tells that a folder exists, and not what is in it.
  '(allow file-read-metadata (vnode-type DIRECTORY))',
  '(allow file-read* (literal "/") (literal "/dev"))',
];

/** The profile of a box: what it refuses inside the working folder comes after what it allows there. */
export function seatbeltProfile(box: Box): string {
  const { folder, room, protected: kept } = box;
  const writable = [folder, ...box.writable, room.tmp, room.home];
  const masked = box.masked.map(({ path }) => path);
  const files = box.files.map(({ from }) => from);
  const tops = [folder, ...box.writable];
  const fixed = new Set([...box.pinned, ...tops, ...[...kept, ...masked].flatMap((path) => foldersAbove(path, tops))]);
  return [
    ...BASE,
    `(allow mach-lookup ${SERVICES.map((name) => `(global-name ${textOf(name)})`).join(' ')})`,
    rule('allow file-read*', 'subpath', [...SYSTEM, ...box.readable, ...writable, ...files, '/dev/fd']),
    rule('allow file-read* file-write* file-ioctl', 'literal', DEVICES),
    rule('allow file-write*', 'subpath', writable),
    rule('deny file-write*', 'subpath', kept),
    rule('deny file-read* file-write*', 'subpath', masked),
    rule('deny file-write-unlink', 'literal', [...fixed]),
    '',
  ].join('\n');
}

function foldersAbove(path: string, tops: readonly string[]): readonly string[] {
  const above = dirname(path);
  return tops.some((top) => isWithin(top, above) && above !== top) ? [above, ...foldersAbove(above, tops)] : [];
}

/** A rule without a filter would be about everything, so there is none for no paths. */
function rule(start: string, filter: 'subpath' | 'literal', paths: readonly string[]): string {
  if (paths.length === 0) return '';
  return `(${start}\n${paths.map((path) => `  (${filter} ${textOf(path)})`).join('\n')})`;
}

/** A string of the profile language. Characters that it has no certain spelling for are refused. */
function textOf(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (/[\0-\t\v-\x1f\x7f]/.test(text)) throw new Error(`A sandbox of macOS cannot name ${JSON.stringify(text)}.`);
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;
}
