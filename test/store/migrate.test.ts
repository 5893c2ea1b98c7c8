import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { fillStore, readFullStore, readLaterTables } from './full-store.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase, type TestDatabase } from './shared-postgres.ts';
import { migrateStore, openStore } from '@treadle/store';

let database: TestDatabase;
let folder: string;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());
beforeEach(async () => {
  await withClient(database.url, (client) => client.query('DROP SCHEMA IF EXISTS treadle CASCADE'));
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-migrate-'));
  return () => rmSync(folder, { recursive: true });
});
const file = (name: string): string => `sqlite:${path.join(folder, name)}`;

async function using<T>(url: string, work: (store: Awaited<ReturnType<typeof openStore>>) => Promise<T>): Promise<T> {
  const store = await openStore(url);
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

test('copies everything to PostgreSQL and back', async () => {
  await using(file('a.db'), (store) => fillStore(store));
  const report = await migrateStore(file('a.db'), database.url);
  expect(report).toMatchObject({ isContinued: false, parts: { requests: { rows: 3 }, conversations: { rows: 3 } } });
  for (const [part, { rows }] of Object.entries(report.parts)) expect([part, rows > 0]).toEqual([part, true]);
  const runs = await using(file('a.db'), (store) => store.list({ limit: Infinity }));
  expect(report.parts['runs']!.rows).toBe(runs.length);
  const back = await migrateStore(database.url, file('b.db'));
  expect(back.parts).toEqual(report.parts);
  const [first, second, third] = [
    await using(file('a.db'), (store) => readFullStore(store)),
    await using(database.url, (store) => readFullStore(store)),
    await using(file('b.db'), (store) => readFullStore(store)),
  ];
  expect(second).toEqual(first);
  expect(third).toEqual(first);
  const later = await using(file('a.db'), (store) => readLaterTables(store));
  for (const part of Object.values(later as object)) expect(part).not.toEqual([]);
  for (const url of [database.url, file('b.db')])
    expect(await using(url, (store) => readLaterTables(store))).toEqual(later);
});

test('goes on where it was stopped, at any point, and nobody opens the target before', async () => {
  await using(file('a.db'), async (store) => {
    for (const time of ['', ' 2']) await fillStore(store, time);
  });
  const expected = await using(file('a.db'), (store) => readFullStore(store));
  for (const [from, to] of [
    [file('a.db'), database.url],
    [database.url, file('b.db')],
  ] as const) {
    // After one batch, two batches, …: it is interrupted while it copies and while it compares.
    let report: Awaited<ReturnType<typeof migrateStore>> | undefined;
    for (let most = 1; report === undefined; most *= 2) {
      const stop = new AbortController();
      let batches = 0;
      const onProgress = (): void => {
        if (++batches >= most) stop.abort(new Error('stopped'));
      };
      report = await migrateStore(from, to, { onProgress, signal: stop.signal }).catch((error: Error) => {
        expect(error.message).toBe('stopped');
        return undefined;
      });
      if (!report) await expect(openStore(to)).rejects.toMatchObject({ code: 'store-locked' });
    }
    expect(report.isContinued).toBe(true);
    expect(await using(to, (store) => readFullStore(store))).toEqual(expected);
  }
});

test('waits for a connection that is about to leave', async () => {
  await using(file('a.db'), (store) => fillStore(store));
  let report: ReturnType<typeof migrateStore> | undefined;
  await withClient(`${database.url}?application_name=treadle`, async (leaving) => {
    await leaving.query('SELECT 1');
    report = migrateStore(file('a.db'), database.url);
    const hasLooked = (): Promise<number | null> =>
      withClient(database.url, async (client) => {
        const looks = `application_name LIKE 'treadle migrate%' AND query LIKE '%client_addr%'`;
        return (await client.query(`SELECT 1 FROM pg_stat_activity WHERE ${looks}`)).rowCount;
      });
    await expect.poll(hasLooked).toBe(1);
  });
  expect(await report).toMatchObject({ isContinued: false });
});

test('refuses a store that is in use, a target that is not empty, and another source', async () => {
  await using(file('a.db'), (store) => fillStore(store));
  const locked = (message: RegExp) => ({ code: 'store-locked', message: expect.stringMatching(message) });
  await using(file('a.db'), async () => {
    await expect(migrateStore(file('a.db'), database.url)).rejects.toMatchObject(locked(/open in another process/));
  });
  await using(database.url, async () => {
    await expect(migrateStore(file('a.db'), database.url)).rejects.toMatchObject(locked(/in use/));
    await expect(migrateStore(database.url, file('b.db'))).rejects.toMatchObject(locked(/in use/));
  });
  await using(`${database.url}?application_name=mine`, async () => {
    await expect(migrateStore(file('a.db'), database.url)).rejects.toMatchObject(locked(/in use/));
  });
  // It was not marked, and can be used.
  await using(database.url, (store) => store.secretKey('cursors'));
  await expect(migrateStore(file('a.db'), database.url)).rejects.toMatchObject(locked(/not empty: it has secret keys/));
  await expect(migrateStore(file('none.db'), database.url)).rejects.toMatchObject({ code: 'store-failed' });
  await expect(migrateStore(file('a.db'), file('a.db'))).rejects.toMatchObject(locked(/./));
  await using(file('c.db'), (store) => store.secretKey('x'));
  const stop = AbortSignal.abort(new Error('stopped'));
  await expect(migrateStore(file('a.db'), file('d.db'), { signal: stop })).rejects.toThrow('stopped');
  await expect(migrateStore(file('c.db'), file('d.db'))).rejects.toMatchObject(locked(/being filled from .*a\.db/));
});

test('finds what was changed since it was copied, and does not open the target', async () => {
  await using(file('a.db'), (store) => fillStore(store));
  const stop = new AbortController();
  const stopped = migrateStore(file('a.db'), database.url, {
    onProgress: ({ step }) => step === 'verify' && stop.abort(new Error('stopped')),
    signal: stop.signal,
  });
  await expect(stopped).rejects.toThrow('stopped');
  await using(file('a.db'), (store) => store.conversations.rename('acme', 'conv', 'Another title'));
  await expect(migrateStore(file('a.db'), database.url)).rejects.toMatchObject({
    code: 'store-failed',
    message: expect.stringContaining('differs from its source in conversations, at conv'),
  });
  await expect(openStore(database.url)).rejects.toMatchObject({ code: 'store-locked' });
});

test('gives out higher tokens than the source did, and continues its numbers', async () => {
  await using(file('a.db'), (store) => fillStore(store));
  const [token, notice] = await using(file('a.db'), async (store) => [
    (await store.acquire('next')).token,
    (await store.inbox.add('run', {})) as number,
  ]);
  await migrateStore(file('a.db'), database.url);
  await using(database.url, async (store) => {
    expect((await store.acquire('next')).token).toBeGreaterThan(token!);
    expect(await store.inbox.add('run', {})).toBeGreaterThan(notice!);
    await fillStore(store, ' later');
  });
  await migrateStore(database.url, file('b.db'));
  await using(file('b.db'), (store) => fillStore(store, ' last'));
});

/** What is not copied as rows: it follows from what the ports copy, or belongs to the processes that use a store. */
const BY_PORTS = {
  runs: 'id run status started_at updated_at ended_at entries model title folded_title tenant parent is_child wake_at recovered recovered_at session task labels label_pairs input_last input_at last_chain place',
  entries: 'run seq entry chain sum size',
  snapshots: 'run seq state sum',
  texts: 'id digest text',
  text_uses: 'kind user user_id text',
  messages: 'id digest previous depth text',
  blobs: 'id digest length media_type',
  blob_parts: 'blob part content is_text sum',
  blob_runs: 'run blob',
  requests:
    'id response run kind tenant status created_at updated_at expires_at previous request request_crc answer answer_crc request_size answer_size input_last input_at waits_at',
  conversation_parts: 'id conversation place response words',
  conversation_texts: 'text',
  store: 'version',
  leases: 'token run host pid process_start since expires_at place thread',
  heads: 'id run entries updated_at token nonce since holder',
  // The copy notes its runs itself. What was counted is copied.
  metric_notes: 'id run',
  // Follow from the rows.
  memory_words: 'owners words',
  memories: 'terms',
  memory_near: 'model memory vector',
  // Leases, and what clients have used within a minute, are not copied.
  quotas: 'id state valid_until',
  holders: 'id ttl_ms renewed_at losses host pid process_start place thread',
};

test('knows every table and column of both stores', async () => {
  const { TABLES, CONVERSATIONS } = (await import(
    new URL('../../packages/store/src/migrate/tables.ts', import.meta.url).href
  )) as { TABLES: readonly Table[]; CONVERSATIONS: Table };
  const known = new Set<string>();
  for (const { name, columns } of [...TABLES, CONVERSATIONS]) {
    for (const column of Object.keys(columns)) known.add(`${name}.${column}`);
  }
  for (const [name, columns] of Object.entries(BY_PORTS)) {
    for (const column of columns.split(' ')) known.add(`${name}.${column}`);
  }
  await using(file('a.db'), async () => {});
  await using(database.url, async () => {});
  const db = new DatabaseSync(path.join(folder, 'a.db'));
  const sqlite = db
    .prepare(
      `SELECT t.name || '.' || c.name AS name FROM pragma_table_list t, pragma_table_info(t.name) c
       WHERE t.type IN ('table', 'virtual') AND t.name NOT GLOB 'sqlite_*'`,
    )
    .all();
  db.close();
  const { rows: postgres } = await withClient(database.url, (client) =>
    client.query(
      `SELECT table_name || '.' || column_name AS name FROM information_schema.columns WHERE table_schema = 'treadle'`,
    ),
  );
  // Add a table to `TABLES`, or say here how it is copied.
  for (const { name } of [...sqlite, ...(postgres as { name: string }[])]) expect(known).toContain(name);
});

interface Table {
  readonly name: string;
  readonly columns: object;
}

test('checks a store in PostgreSQL, and finds what is damaged', async () => {
  await using(database.url, (store) => fillStore(store));
  const check = (): ReturnType<typeof command> => command(['store', 'check', '--store', database.url], folder);
  const intact = await check();
  // Entries that no loop has written cannot be replayed.
  expect(intact.stderr).toMatch(/^Checked 4 runs, 1,2\d\d entries, 2 long results, 3 responses: \d problems?\.\n$/);
  await withClient(database.url, (client) => client.query(`UPDATE treadle.snapshots SET state = '{}'`));
  expect((await check()).stdout).toMatch(/The snapshot of run "same" is damaged/);
  await withClient(database.url, (client) =>
    client.query(`
      UPDATE treadle.texts SET text = text || 'x';
      UPDATE treadle.blob_parts SET content = 'x';
      INSERT INTO treadle.entries VALUES (4711, 0, '{}', 0, 2);
    `),
  );
  const damaged = await check();
  expect(damaged.code).toBe(1);
  expect(damaged.stdout).toMatch(/The long result .* of run "run" is damaged/);
  expect(damaged.stdout).toMatch(/Response "resp_0" is damaged/);
  expect(damaged.stdout).toMatch(/Entry 0 of run "run" is damaged/);
  expect(damaged.stdout).toMatch(/not in the list of runs \(number 4711\)/);
});

test('the commands for files say what to use instead', async () => {
  for (const args of [
    ['backup', 'x.db'],
    ['restore', 'x.db'],
  ]) {
    const { code, stderr } = await command(['store', ...args, '--store', database.url], folder);
    expect([code, stderr]).toEqual([2, expect.stringContaining('such as pg_dump and pg_restore')]);
    expect(stderr).not.toContain('secret');
  }
  const { stdout } = await command(['store', 'migrate', '--help'], folder);
  expect(stdout).toContain('treadle store migrate');
});
