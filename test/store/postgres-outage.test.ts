import { scriptedModel } from '@treadle/core/testing';
import { postgresStore } from '@treadle/store';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { tcpProxy, type TcpProxy } from './chaos/tcp-proxy.ts';
import { entry } from './entries.ts';
import { canMount, startPostgres, withClient, type PostgresServer } from './postgres-server.ts';

/*
 * What becomes of a store while its database does not work, and after that: a pause with an error that says so. The store tries again
 * for a short time only, so that the tests do not wait.
 */
const RETRY_MS = 400;

let server: PostgresServer;
let proxy: TcpProxy;
/** The URL of the database through the proxy. */
let url: string;

beforeAll(async () => {
  server = await startPostgres({
    settings: ['fsync=off', 'full_page_writes=off', 'autovacuum=off', 'min_wal_size=32MB', 'max_wal_size=32MB'],
    ...(canMount && { megabytes: 160 }),
  });
  proxy = await tcpProxy(() => Number(new URL(server.url()).port));
  const through = new URL(server.url());
  through.port = String(proxy.port);
  url = through.href;
});
afterAll(async () => {
  await server.thaw().catch(() => {});
  await proxy[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const sql = (text: string): Promise<unknown> => withClient(server.url(), (client) => client.query(text));

async function setting(line: string): Promise<void> {
  await sql(`ALTER SYSTEM SET ${line}`);
  await sql('SELECT pg_reload_conf()');
  // Sessions read it before their next statement.
}

/** Fills the disk, in smaller and smaller steps. What it writes is not logged, because the log needs space too. */
async function fill(): Promise<void> {
  await sql('CREATE UNLOGGED TABLE IF NOT EXISTS ballast (text text)');
  await sql('ALTER TABLE ballast ALTER COLUMN text SET STORAGE PLAIN');
  for (const rows of [4_096, 512, 64, 8, 1]) {
    for (let isFull = false; !isFull;) {
      isFull = await sql(`INSERT INTO ballast SELECT repeat('x', 8000) FROM generate_series(1, ${rows})`).then(
        () => false,
        () => true,
      );
    }
  }
}

interface Outage {
  readonly name: string;
  readonly begin: () => Promise<unknown>;
  readonly end: () => Promise<unknown>;
  /** What the command says. */
  readonly says: RegExp;
  readonly canRead?: true;
  /** Small things can still be written. */
  readonly hasRoom?: true;
  readonly isSlow?: true;
}

const OUTAGES: readonly Outage[] = [
  { name: 'stopped', begin: () => server.stop(), end: () => server.start(), says: /cannot be reached: .*retry/ },
  {
    name: 'read-only',
    begin: () => setting('default_transaction_read_only = on'),
    end: () =>
      withClient(server.url(), async (client) => {
        await client.query('SET default_transaction_read_only = off');
        await client.query('ALTER SYSTEM RESET default_transaction_read_only');
        await client.query('SELECT pg_reload_conf()');
      }),
    says: /cannot be written: the server is read-only\. Connect to the primary server\./,
    canRead: true,
  },
  { name: 'frozen', isSlow: true, begin: () => server.freeze(), end: () => server.thaw(), says: /cannot be reached: / },
  {
    name: 'silent',
    isSlow: true,
    begin: async () => proxy.hold(true),
    end: async () => proxy.hold(false),
    says: /cannot be reached: /,
  },
  ...(canMount
    ? [
        {
          name: 'full',
          begin: fill,
          end: () => sql('DROP TABLE ballast'),
          says: /cannot grow: .*Free some space/,
          canRead: true,
          hasRoom: true,
        } as const,
      ]
    : []),
];

/** `npm run test:long` sets it. The others wait for answers that do not come. */
const isLong = process.env['TREADLE_CASES'] !== undefined;

describe.each(OUTAGES.filter(({ isSlow }) => isLong || !isSlow))(
  'a database that is $name',
  ({ begin, end, says, canRead, hasRoom }) => {
    test('is a pause for the clients of a server, and works again by itself', async () => {
      const store = await postgresStore(url, { retryMs: RETRY_MS, connections: 3 });
      onTestFinished(() => store.close());
      const model = scriptedModel(['One.', 'Two.', 'Three.', 'Four.']);
      await using http = await startInProcess(model, { store });
      const headers = { 'idempotency-key': `outage-${Math.random()}` };
      const { id } = (await http.send('POST', '/v1/responses', { input: 'Hi' })).body;
      const lease = await store.acquire(`before ${id}`);
      await begin();
      // More than the tables have room for.
      const LONG = Array.from({ length: 40_000 }, () => Math.random().toString(36)).join('');
      for (const [path, body] of [
        ['/v1/responses', { input: LONG }],
        ['/v1/responses', { input: LONG, background: true }],
        ['/v1/chat', { message: LONG }],
      ] as const) {
        const answer = await fetch(http.url + path, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...(path === '/v1/responses' && headers) },
          body: JSON.stringify(body),
        });
        const seen = [path, answer.status, answer.headers.get('retry-after'), await answer.json()];
        expect(seen).toEqual([path, 503, '5', { error: expect.objectContaining({ code: 'store_unavailable' }) }]);
      }
      if (!canRead) expect(await http.send('GET', `/v1/responses/${id}`)).toMatchObject({ status: 503 });
      else expect(await http.get(id)).toMatchObject({ status: 'completed' });
      if (!hasRoom) expect(await http.send('GET', '/readyz')).toMatchObject({ status: 503 });
      if (!hasRoom) await expect(store.acquire('another')).rejects.toThrow(says);
      await expect(store.append('another', [entry(0, LONG)])).rejects.toThrow(says);
      await end();
      const again = await http.send('POST', '/v1/responses', { input: 'Hi again' }, headers);
      expect(again).toMatchObject({ status: 200, body: { status: 'completed' } });
      expect(await http.get(id)).toMatchObject({ status: 'completed', output: [{ content: [{ text: 'One.' }] }] });
      expect(await http.send('GET', '/readyz')).toMatchObject({ status: 200 });
      await lease.release();
    });
  },
);

test('a command says that the database does not work', async () => {
  const stopped = new URL(url);
  stopped.port = '1';
  const printed = await command(['runs', 'list', '--store', stopped.href], process.cwd());
  expect(printed).toMatchObject({ code: 2, stdout: '' });
  expect(printed.stderr).toMatch(
    /^treadle: The store postgres:.* cannot be reached: .*Check that PostgreSQL runs there/,
  );
  expect(printed.stderr).not.toContain('secret');
});
