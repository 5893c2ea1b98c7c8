import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { entry, entries } from './entries.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase, type TestDatabase } from './shared-postgres.ts';
import { postgresStore, type PostgresStore } from '@treadle/store';

/* A store whose connections go through a pooler, which gives each transaction another session. */

const PROGRAM = '/usr/sbin/pgbouncer';
const cleanUp = new AsyncDisposableStack();
afterAll(() => cleanUp.disposeAsync());

let database: TestDatabase;
/** The database through the pooler. */
let url: string;

// Debian's package: `.ci/setup` installs it.
const hasPgBouncer = existsSync(PROGRAM);

beforeAll(async () => {
  if (!hasPgBouncer) return;
  database = cleanUp.use(await testDatabase());
  const { hostname, port, username, pathname } = new URL(database.url);
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-pgbouncer-'));
  cleanUp.defer(() => rmSync(folder, { recursive: true }));
  const isRoot = process.getuid?.() === 0;
  if (isRoot) chownSync(folder, 65_534, 65_534);
  const own = createServer().listen(0, '127.0.0.1');
  await once(own, 'listening');
  const pooled = (own.address() as AddressInfo).port;
  own.close();
  await once(own, 'close');
  const file = path.join(folder, 'pgbouncer.ini');
  writeFileSync(
    file,
    `[databases]\n* = host=${hostname} port=${port} user=${username}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = ${pooled}\n` +
      `auth_type = any\nunix_socket_dir =\npool_mode = transaction\ndefault_pool_size = 3\n` +
      `ignore_startup_parameters = extra_float_digits\n`,
  );
  const pooler = spawn(PROGRAM, [file], { stdio: 'ignore', ...(isRoot && { uid: 65_534, gid: 65_534 }) });
  cleanUp.defer(async () => {
    pooler.kill('SIGKILL');
    if (pooler.exitCode === null && pooler.signalCode === null) await once(pooler, 'exit');
  });
  while (!(await accepts(pooled)));
  url = `postgres://${username}:secret@127.0.0.1:${pooled}${pathname}`;
});

async function accepts(port: number): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1' });
  return once(socket, 'connect').then(
    () => socket.destroy() && true,
    () => false,
  );
}

async function open(): Promise<PostgresStore> {
  return cleanUp.adopt(await postgresStore(url, { connections: 6, leaseTtlMs: 60_000 }), (store) => store.close());
}

test.runIf(needs('PgBouncer', hasPgBouncer))(
  'a store works through PgBouncer, and is told of changes by looking for them',
  async () => {
    const [one, other] = [await open(), await open()];
    const names = Array.from({ length: 12 }, (_, index) => `run ${index}`);
    const all = entries(10);
    await Promise.all(
      names.map(async (name) => {
        const lease = await one.acquire(name);
        await expect(other.acquire(name)).rejects.toMatchObject({ code: 'run-driven' });
        for (const each of all) await one.append(name, [each], lease, each.seq % 2 ? 'written' : 'durable');
        await one.streams.append(`stream ${name}`, 1, [{ name }], lease);
        await lease.release();
      }),
    );
    for (const name of names) {
      expect(await other.read(name)).toEqual(all);
      expect(await other.streams.read(`stream ${name}`, 0)).toEqual([{ seq: 1, event: { name } }]);
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = other.watch('run 0', () => void other.read('run 0').then((read) => read.length === 11 && resolve()));
    await one.append('run 0', [entry(10)]);
    await promise;
    stop();
    // Locks belong to transactions, so none is left in a session that others use.
    const key = await one.secretKey('key');
    expect(await other.secretKey('key')).toEqual(key);
    await one.durable();
  },
);

test.runIf(needs('PgBouncer', hasPgBouncer))(
  'a database that does not wait for the disk by default is refused behind a pooler',
  async () => {
    // For sessions that begin after that.
    const set = (setting: string): Promise<unknown> =>
      withClient(database.url, async (client) => {
        await client.query(`ALTER DATABASE ${new URL(url).pathname.slice(1)} ${setting}`);
        await client.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
        );
      });
    await set('SET synchronous_commit = off');
    // Until PgBouncer has noticed that they are ended, it offers sessions that have the old setting, or fail.
    await expect
      .poll(() =>
        postgresStore(url).then(
          (store) => store.close(),
          (error: unknown) => error,
        ),
      )
      .toMatchObject({ code: 'store-failed', message: expect.stringContaining('ALTER ROLE') });
    await set('RESET synchronous_commit');
  },
);
