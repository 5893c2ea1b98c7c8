import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { entries, entry, response, startedWith } from './entries.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase } from './shared-postgres.ts';
import type { PostgresStore } from '@treadle/store';

/* A read of several statements, between which another process changes what is read. */

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());
afterEach(() => database.clear());

/** Performs `sql` when `read` waits for this table, which is after its first statement. */
async function readDuring<T>(table: string, sql: string, read: () => Promise<T>): Promise<T> {
  return withClient(database.url, async (client) => {
    await client.query(`BEGIN; LOCK TABLE treadle.${table} IN ACCESS EXCLUSIVE MODE`);
    const reading = read();
    await vi.waitFor(async () => {
      const { rowCount } = await client.query(
        `SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'treadle.${table}'::regclass`,
      );
      expect(rowCount).toBe(1);
    });
    await client.query(`${sql}; COMMIT`);
    return reading;
  });
}

const LONG = 'A long text. '.repeat(100);
const DELETE_RUN = `SELECT treadle.remove_run(f.id, f.run) FROM treadle.family_of('a') f`;

const rename = (from: string, to: string): string =>
  ['heads', 'runs'].map((table) => `UPDATE treadle.${table} SET run = '${to}' WHERE run = '${from}'`).join('; ');

async function withRun(): Promise<PostgresStore> {
  const store = await database.open();
  await store.append('a', [startedWith([{ role: 'user', content: [{ type: 'text', text: LONG }] }]), entry(1, LONG)]);
  return store;
}

test.each([
  ['read', (store: PostgresStore) => store.read('a')],
  ['readPage', (store: PostgresStore) => store.readPage('a', 0)],
  ['readPage of the end', (store: PostgresStore) => store.readPage('a', 1)],
] as const)('a run that is deleted while it is read is empty, and not damaged: %s', async (_, read) => {
  const store = await withRun();
  expect(await readDuring('texts', DELETE_RUN, () => read(store))).toEqual([]);
});

test.each([1, 700])(
  'a run that is replaced while it is read, by one with the same id and %i entries, is read again',
  async (count) => {
    const store = await database.open();
    const others = Array.from({ length: count }, (_, seq) => entry(seq, `other ${seq}`));
    await store.append('a', others);
    await withClient(database.url, (client) => client.query(rename('a', 'later')));
    await store.append('a', entries(600));
    const replace = `${DELETE_RUN}; ${rename('later', 'a')}`;
    expect(await readDuring('entries', replace, () => store.read('a'))).toEqual(others);
  },
);

test('a response that is deleted while it is read does not exist, and is not damaged', async () => {
  const store = await database.open();
  await store.requests.create(response('q', { request: { LONG } }));
  const read = (): Promise<unknown> => store.requests.get('acme', 'q');
  expect(await readDuring('texts', `SELECT treadle.remove_with_runs('q')`, read)).toBeUndefined();
});

test('a long result that is deleted while it is read does not exist, and is not damaged', async () => {
  const store = await withRun();
  const id = await store.blobs.put('a', LONG);
  const read = (): Promise<unknown> => store.blobs.read('a', id, 0, Infinity);
  expect(await readDuring('blob_parts', DELETE_RUN, read)).toBeUndefined();
});

test('a conversation that is deleted while it is read has no responses', async () => {
  const { conversations } = await database.open();
  await conversations.create({ id: 'c', tenant: 'acme', title: '', createdAt: 1 });
  await conversations.extend('c', { response: 'one', text: '', at: 1 });
  await conversations.extend('c', { response: 'two', head: 'one', text: '', at: 2 });
  const remove = `UPDATE treadle.conversations SET is_deleted = true; DELETE FROM treadle.conversation_parts WHERE place = 2`;
  const found = await readDuring('conversation_parts', remove, () => conversations.responses('c'));
  expect(found).toEqual([]);
});

test('a reservation that is settled while the usage of its budget is read is counted once', async () => {
  const { budgets } = await database.open();
  await budgets.setLimits('team', { tokens: 100 });
  const about = { runId: 'a', effect: 'call-tool', name: 't', context: undefined } as const;
  const ledger = budgets.ledger(['team']);
  await ledger.reserve('a/1', { tokens: 1 }, about);
  await ledger.settle('a/1', { tokens: 1 });
  await ledger.reserve('a/2', { tokens: 7 }, about);
  const settle = 'UPDATE treadle.budget_usage SET tokens = tokens + 7; DELETE FROM treadle.reservations';
  const { settled, reserved } = (await readDuring('reservations', settle, () => budgets.get('team')))!;
  expect(settled.tokens + reserved.tokens).toBe(8);
});
