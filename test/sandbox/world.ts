import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { local, type Ops } from '@treadle/tools';
import type { Attack } from './attack.ts';

const SECRET = 'sk-attack-secret';

/** Less than the attacks take. */
export const ATTACK_LIMITS = { memoryBytes: 256 * 1024 ** 2, fileBytes: 10_000_000, processes: 100 };

/** What attacks are aimed at: files, processes and servers of the host. */
export interface World {
  readonly folder: string;
  readonly outside: string;
  readonly home: string;
  /** In names of files that are not below these folders. */
  readonly mark: string;
  readonly variables: Readonly<Record<string, string>>;
  /** Whether `sleep "$SLEEP"` and this digit runs on the host. */
  isRunning(digit: number): boolean;
  /** The letter of its state. */
  victimState(): string | undefined;
  victimNice(): number | undefined;
  modeOf(name: string): number;
  yearOf(name: string): number;
  close(): Promise<void>;
}

export async function openWorld(): Promise<World> {
  const top = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-attacks-')));
  const mark = `treadle-attack-${randomBytes(6).toString('hex')}`;
  const [folder, outside, home] = ['folder', 'outside', `home-${mark}`].map((name) => join(top, name)) as [
    string,
    string,
    string,
  ];
  const write = (path: string, text = SECRET): void => {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${text}\n`);
  };
  for (const name of [
    '.ssh/id_ed25519',
    '.aws/credentials',
    '.bash_history',
    '.config/gh/hosts.yml',
    '.netrc',
    '.npmrc',
  ]) {
    write(join(home, name));
  }
  write(join(home, '.bashrc'), '');
  for (const name of ['secret', 'project/.env', 'treadle.db']) write(join(outside, name));
  for (const name of ['hard', 'opened', 'deleted', 'mode']) write(join(outside, name), 'plain');
  for (const name of [
    '.env',
    'config/.env.production',
    'config/secrets.json',
    'certs/server.key',
    'certs/server.pem',
    '.npmrc',
    'terraform.tfstate',
    '.treadle/treadle.db',
    '.docker/config.json',
    'settings/password.txt',
    'odd/a[1].key',
    'odd/b  c.key',
    'odd/.env ',
  ]) {
    write(join(folder, name));
  }
  write(join(folder, 'odd/a1.key'), 'plain');
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync('settings/password.txt', join(folder, '.pgpass'));
  for (const git of ['.git', 'nested/.git', '.git/modules/sub', '.git/modules/a/b', '.git/modules/sub/modules/inner']) {
    for (const name of ['HEAD', 'config', 'objects/x', 'refs/x', 'hooks/applypatch-msg.sample'])
      write(join(folder, git, name), '');
    write(join(folder, git, 'HEAD'), 'ref: refs/heads/main');
  }
  write(join(folder, '.git', 'hooks', 'pre-commit'), '#!/bin/sh');
  write(
    join(folder, 'nested', '.git', 'config'),
    '[core] hooksPath = .husky/_\n[include]\n\tpath = ../settings # ours',
  );
  write(join(folder, 'nested', '.husky', 'pre-commit'), 'npm test');
  write(join(folder, 'nested', 'settings'), '[user]\n\tname = Me');
  write(join(folder, '.git', 'worktrees', 'other', 'commondir'), '../..');
  write(join(folder, 'docs', 'instructions.md'), 'Instructions.');
  write(join(folder, 'AGENTS.md'), 'Instructions.');
  write(join(folder, 'treadle.toml'), '');
  write(join(folder, '.agents', 'skills', 'one', 'SKILL.md'), 'A skill.');
  write(join(folder, 'plain.txt'), 'plain');
  symlinkSync(outside, join(folder, 'leads-out'));
  symlinkSync('../later/remotes', join(folder, '.git', 'remotes'));
  for (const place of ['/tmp', '/var/tmp', '/dev/shm']) writeFileSync(join(place, mark), SECRET);

  const servers: Server[] = [];
  const listen = async (...where: unknown[]): Promise<AddressInfo | string | null> => {
    const server = createServer((socket) => socket.on('error', () => {}).end());
    servers.push(server);
    await new Promise<void>((done, fail) =>
      (server.once('error', fail).listen as (...args: unknown[]) => unknown).call(server, ...where, done),
    );
    return server.address();
  };
  const port = async (...where: unknown[]): Promise<string> => String(((await listen(...where)) as AddressInfo).port);
  const udp = createSocket('udp4', (_, { port: from, address }) => udp.send('pong', from, address));
  await new Promise<void>((done) => udp.bind(0, '127.0.0.1', done));
  await listen(join(folder, 'agent.sock'));
  await listen(join(outside, 'docker.sock'));
  await listen(`\0${mark}`);
  // Years, and a number that no other run has.
  const sleep = String(randomInt(1e9, 1e10));
  const victims = [0, 1, 2].map((digit) =>
    spawn('sleep', [`${sleep}${digit}`], {
      stdio: 'ignore',
      cwd: outside,
      env: { ...process.env, TOKEN_OF_ANOTHER: SECRET },
    }),
  );
  const sharedKey = String(randomInt(1, 2 ** 31));
  shareMemory(sharedKey, `libc.memset(libc.shmat(libc.shmget(key, 1, 0o1600), None, 0), ${SHARED_BYTE}, 1)`);
  const address =
    Object.values(networkInterfaces())
      .flat()
      .find((one) => one && !one.internal && one.family === 'IPv4')?.address ?? '127.0.0.1';
  const variables = {
    OUTSIDE: outside,
    MARK: mark,
    HOST_PID: String(process.pid),
    HOST_PID_NS: readlinkSync('/proc/self/ns/pid'),
    VICTIM_PID: String(victims[0]!.pid),
    VICTIM_KILL: String(victims[1]!.pid),
    VICTIM_NICE: String(victims[2]!.pid),
    SLEEP: sleep,
    SHARED_KEY: sharedKey,
    SHARED_BYTE: String(SHARED_BYTE),
    PORT: await port(0, '127.0.0.1'),
    PORT6: await port(0, '::1').catch(() => '1'),
    PORT_ALL: await port(0, '0.0.0.0'),
    UDP_PORT: String(udp.address().port),
    ADDRESS: address,
    SETUID_PROGRAM: setuidProgram(),
  };
  return {
    folder,
    outside,
    home,
    mark,
    variables,
    isRunning: (digit) => runningSleeps().has(`${sleep}${digit}`),
    victimState: () => statOf(victims[0]!)?.[0],
    victimNice: () => Number(statOf(victims[2]!)?.[16]),
    modeOf: (name) => statSync(join(outside, name)).mode & 0o777,
    yearOf: (name) => statSync(join(outside, name)).mtime.getFullYear(),
    async close() {
      for (const [seconds, pid] of runningSleeps()) if (seconds.startsWith(sleep)) process.kill(pid, 'SIGKILL');
      for (const server of servers) server.close();
      udp.close();
      shareMemory(sharedKey, 'libc.shmctl(libc.shmget(key, 0, 0), 0, None)');
      for (const place of ['/tmp', '/var/tmp', '/dev/shm']) {
        for (const end of ['', '-written']) rmSync(join(place, mark + end), { force: true });
      }
      chmodSync(top, 0o700);
      rmSync(top, { recursive: true, force: true });
    },
  };
}

const SHARED_BYTE = 83;

/** Node does not know shared memory. */
function shareMemory(key: string, code: string): void {
  const lines = ['import ctypes', 'libc = ctypes.CDLL(None)', 'libc.shmat.restype = ctypes.c_void_p', `key = ${key}`];
  const memset = 'libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]';
  execFileSync('/usr/bin/python3', ['-c', [...lines, memset, code].join('\n')]);
}

/** One that everybody can read. */
function setuidProgram(): string {
  const found = readdirSync('/usr/bin')
    .map((name) => join('/usr/bin', name))
    .find((path) => ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o4004) === 0o4004);
  return found ?? '/usr/bin/su';
}

/** Their pids by their numbers. */
function runningSleeps(): ReadonlyMap<string, number> {
  return new Map(
    readdirSync('/proc').flatMap((pid) => {
      try {
        const [program, seconds] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        const isEnded = /^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
        return program === 'sleep' && seconds !== undefined && !isEnded ? [[seconds, Number(pid)] as const] : [];
      } catch {
        return [];
      }
    }),
  );
}

/** The fields of /proc after the name of the program. */
function statOf({ pid }: ChildProcess): readonly string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/** Runs all attacks in one program, and returns the names of those that have worked. */
export async function runAttacks(attacks: readonly Attack[], world: World, ops: Ops): Promise<ReadonlySet<string>> {
  const shell = attacks.flatMap(({ sh }, index) =>
    sh === undefined ? [] : [`echo "@@ ${index}"\n( ${sh}\n) 2>/dev/null </dev/null`],
  );
  const python = attacks.flatMap(({ py }, index) =>
    py === undefined ? [] : [`attack(${index}, ${JSON.stringify(py)})`],
  );
  writeFileSync(join(world.folder, 'attack.py'), `${PYTHON}\n${python.join('\n')}`);
  const script = `${shell.join('\n')}\n/usr/bin/python3 attack.py\necho "@@ end"`;
  const execution = await ops.exec.start({ argv: ['bash', '--norc', '-c', script], env: world.variables });
  try {
    let text = '';
    let errors = '';
    for await (const { stream, bytes } of execution.output) {
      if (stream === 'stdout') text += Buffer.from(bytes).toString();
      else errors += Buffer.from(bytes).toString();
    }
    await execution.exit;
    if (!text.includes('@@ end')) throw new Error(`The attacks did not run to their end: ${errors || text}`);
    // Processes of a namespace end a moment after its first one.
    for (
      let tries = 0;
      tries < 20 && attacks.some(({ promise, worked }) => promise === 'tree' && worked?.(world));
      tries++
    ) {
      await new Promise((done) => setTimeout(done, 10));
    }
    const sections = new Map(
      text.split('@@ ').map((section) => [Number(section.split('\n', 1)[0]), section.includes('WORKED')] as const),
    );
    const names = attacks.filter(({ worked }, index) => (worked ? worked(world) : sections.get(index) === true));
    return new Set(names.map(({ name }) => name));
  } finally {
    await execution.kill();
  }
}

const PYTHON = `
import ctypes, errno, fcntl, os, platform, re, signal, socket, stat, struct, sys, termios, time
libc = ctypes.CDLL(None, use_errno=True)
def attack(index, code):
    print('@@', index, flush=True)
    pid = os.fork()
    if pid == 0:
        signal.alarm(15)
        try: exec(code, globals())
        except BaseException as error: print(type(error).__name__, error, file=sys.stderr)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
`;

/** Programs without a sandbox, as the shell tool runs them. */
export function bare({ folder, home }: World): Ops {
  const { ATTACK_PASSPHRASE_OF_THE_SERVER: _, ...env } = process.env;
  return local(folder, {
    env: { ...(env as Record<string, string>), HOME: home, ATTACK_PASSPHRASE_OF_THE_SERVER: SECRET },
  });
}
