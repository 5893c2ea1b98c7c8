import { execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { installedEngine } from '@treadle/tools/sandbox';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { needs, uses } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';

/*
 * The units of deploy/ restrict the service, and its sandbox needs namespaces. systemd does not run here, so a process gets the
 * restrictions that matter to them in the way in which systemd makes them: mounts, a filter of system calls, and no rights.
 */

const root = join(import.meta.dirname, '../..');
const NOBODY = 65_534;

/** The paths that a restriction replaces or makes read-only. A new /proc cannot be mounted where parts of the old one are covered. */
const COVERED: Readonly<Record<string, string>> = {
  ProtectKernelTunables: 'mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys',
  ProtectKernelLogs: 'mount --bind /dev/null /proc/kmsg',
  ProtectHostname:
    'mount --bind /proc/sys/kernel/hostname /proc/sys/kernel/hostname && mount -o remount,bind,ro /proc/sys/kernel/hostname',
  ProtectControlGroups: 'mount --bind /sys/fs/cgroup /sys/fs/cgroup && mount -o remount,bind,ro /sys/fs/cgroup',
};

/** Refuses sockets of other families than 1 (unix), 2 and 10 (internet) and those given, as RestrictAddressFamilies does. */
const FILTER = `
import ctypes, os, struct, sys
allowed = [1, 2, 10] + ([16] if 'AF_NETLINK' in sys.argv[1].split() else [])
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
SOCKET = {'x86_64': 41, 'aarch64': 198}[os.uname().machine]
n = len(allowed)
code = [(LOAD, 0, 0, 0), (EQUAL, 0, n + 2, SOCKET), (LOAD, 0, 0, 16)]
code += [(EQUAL, n - i, 0, family) for i, family in enumerate(allowed)]
code += [(RETURN, 0, 0, 0x00050000 | 97), (RETURN, 0, 0, 0x7fff0000)]
data = b''.join(struct.pack('HBBI', *one) for one in code)
buffer = ctypes.create_string_buffer(data, len(data))
class Program(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execvp(sys.argv[2], sys.argv[2:])
`;

const PROBE = `
import { DEFAULT_REQUIRED, findEngine } from '@treadle/tools/sandbox';
const { found } = await findEngine(DEFAULT_REQUIRED, ['bubblewrap']);
console.log(JSON.stringify(found ? found.probe.kept : []));
`;

const canRun =
  uses('root, to mount and to become a plain user', process.getuid?.() === 0) &&
  needs('bubblewrap', installedEngine('bubblewrap') !== undefined);

describe.runIf(canRun)('the sandbox of a service', () => {
  let home: string;
  let lastCache = 0;
  beforeAll(() => {
    home = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-unit-')));
    for (const name of ['', 'tmp']) {
      mkdirSync(join(home, name), { recursive: true });
      chownSync(join(home, name), NOBODY, NOBODY);
    }
  });
  afterAll(() => rmSync(home, { recursive: true, force: true }));

  /** The promises that bubblewrap keeps. */
  function kept(unit: string): readonly string[] {
    const set = new Map([...unit.matchAll(/^(\w+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]));
    const mounts = Object.entries(COVERED).flatMap(([name, mount]) => (set.get(name) === 'yes' ? [mount] : []));
    const families = set.get('RestrictAddressFamilies');
    const filter = families === undefined ? [] : ['python3', '-c', FILTER, families];
    const plain = ['--reuid=65534', '--regid=65534', '--clear-groups', '--inh-caps=-all', '--bounding-set=-all'];
    const become = ['setpriv', ...plain, ...(set.get('NoNewPrivileges') === 'yes' ? ['--no-new-privs'] : [])];
    const node = [process.execPath, '--conditions=treadle-source', '--input-type=module', '-e', PROBE];
    const script = ['mount --make-rprivate /', ...mounts, 'exec "$@"'].join(' && ');
    const text = execFileSync('unshare', ['--mount', 'sh', '-c', script, 'sh', ...filter, ...become, ...node], {
      cwd: root,
      // What was seen without the restrictions is not true with them.
      env: { ...PROCESS_ENV, XDG_CACHE_HOME: join(home, `cache-${++lastCache}`), TMPDIR: join(home, 'tmp') },
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return JSON.parse(text) as readonly string[];
  }

  it.each(['treadle', 'treadle-edge'])('works with the restrictions of %s.service', (name) => {
    const unit = readFileSync(join(root, `deploy/${name}.service`), 'utf8');
    const without = kept('');
    expect(without.length).toBeGreaterThan(10);
    expect(kept(unit)).toEqual(without);
  });

  it.each([
    'ProtectKernelTunables=yes',
    'ProtectKernelLogs=yes',
    'ProtectHostname=yes',
    'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX',
  ])('does not work with %s, which systemd has too', (line) => {
    expect(kept(line)).toEqual([]);
  });
});
