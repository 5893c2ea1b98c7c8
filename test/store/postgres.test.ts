import type { Lease } from '@treadle/core';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { storeContract } from './contract/store.ts';
import { HOLDERS, type Hosts, type TempStores } from './contract/temp-stores.ts';
import { entry } from './entries.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase } from './shared-postgres.ts';
import { checkPostgresStore, type PostgresStore } from '@treadle/store';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());

async function query(sql: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  return withClient(database.url, async (client) => {
    await client.query('SET search_path = treadle');
    return (await client.query<Record<string, unknown>>(sql)).rows;
  });
}

/** The next renewal would be later than the test ends. */
async function hosts(): Promise<Hosts> {
  const [here, there, frozen] = await Promise.all(
    [HOLDERS.here, HOLDERS.there, HOLDERS.frozen].map((holder) => database.open({ holder, leaseTtlMs: 600_000 })),
  );
  return {
    here: here!,
    there: there!,
    frozen: frozen!,
    pass: async () => void (await query(`UPDATE holders SET renewed_at = renewed_at - ttl_ms WHERE host = 'frozen'`)),
  };
}

async function tempStore(): Promise<TempStores> {
  return {
    open: database.open,
    hosts,
    exec: async (sql) => void (await query(sql)),
    async keepResponse(id) {
      await query(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON requests FOR EACH ROW WHEN (old.response = '${id}') EXECUTE FUNCTION keep()`);
      return async () => void (await query('DROP FUNCTION keep CASCADE'));
    },
    count: async (table) => Number((await query(`SELECT count(*) AS n FROM ${table}`))[0]!['n']),
    check: () => checkPostgresStore(database.url),
    [Symbol.asyncDispose]: () => database.clear(),
  };
}

storeContract('PostgreSQL', tempStore, CASES);

test('the lease of another machine with the same name is kept until it expires', async () => {
  const one = await database.open({
    holder: { host: 'box', pid: 7, startedAt: 'boot-1 70', place: 'boot-1' },
    leaseTtlMs: 600_000,
  });
  const other = await database.open({ holder: { host: 'box', pid: 7, startedAt: 'boot-2 70', place: 'boot-2' } });
  const unknown = await database.open({ holder: { host: 'box', pid: 2 ** 22 + 1 } });
  const lease = await one.acquire('a');
  for (const store of [other, unknown]) {
    expect(await store.isDriven('a')).toBe(true);
    await expect(store.acquire('a')).rejects.toMatchObject({ code: 'run-driven' });
    await expect(store.append('a', [entry(0)])).rejects.toMatchObject({ code: 'run-driven' });
  }
  await one.append('a', [entry(0)], lease);
  await lease.release();
  await database.clear();
});

test('a lease whose token is given again, as after a restore to the past, can neither write nor be released', async () => {
  const [before, after] = [await database.open(), await database.open()];
  const old = await before.acquire('a');
  await before.append('a', [entry(0)], old);
  await query(`UPDATE heads SET token = NULL, nonce = NULL`);
  await query(`SELECT setval('lease_tokens', ${old.token}, false)`);
  const lease = await after.acquire('a');
  expect(lease.token).toBe(old.token);
  await expect(before.append('a', [entry(1)], old)).rejects.toMatchObject({ code: 'lease-lost' });
  await expect(before.streams.append('s', 1, [{}], old)).rejects.toMatchObject({ code: 'lease-lost' });
  await old.release();
  await after.append('a', [entry(1)], lease);
  await after.streams.append('s', 1, [{}], lease);
  await lease.release();
  await database.clear();
});

test('leases that are acquired in a transaction that conflicts with another one are given', async () => {
  const store = await database.open({ leaseTtlMs: 600_000 });
  await query(`
    CREATE SEQUENCE conflicts;
    CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN IF nextval('conflicts') = 1 THEN RAISE 'deadlock detected' USING ERRCODE = 'deadlock_detected'; END IF; RETURN NULL; END $$;
    CREATE TRIGGER conflict BEFORE INSERT ON heads FOR EACH STATEMENT EXECUTE FUNCTION conflict()`);
  try {
    const leases = await Promise.all(['a', 'b'].map((runId) => store.acquire(runId)));
    await Promise.all(leases.map((lease) => store.append(lease.runId, [entry(0)], lease)));
    await Promise.all(leases.map((lease) => lease.release()));
  } finally {
    await query('DROP FUNCTION conflict CASCADE; DROP SEQUENCE conflicts');
    await database.clear();
  }
});

test.each([-1, 1])('the clock of the database decides whether a lease has expired: %i hours later', async (hours) => {
  const now = async (offset: number): Promise<unknown> =>
    query(`CREATE OR REPLACE FUNCTION now_ms() RETURNS float8 LANGUAGE sql VOLATILE AS
      $$ SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 + ${offset} $$`);
  await now(hours * 3_600_000);
  try {
    const [one, other] = [
      await database.open({ holder: HOLDERS.here, leaseTtlMs: 600_000 }),
      await database.open({ holder: HOLDERS.there }),
    ];
    const lease = await one.acquire('a');
    await one.append('a', [entry(0)], lease);
    expect(await other.isDriven('a')).toBe(true);
    await expect(other.acquire('a')).rejects.toMatchObject({ code: 'run-driven' });
    await expect(other.delete('a')).rejects.toMatchObject({ code: 'run-driven' });
    await now(hours * 3_600_000 + 601_000);
    expect(await other.isDriven('a')).toBe(false);
    const next = await other.acquire('a');
    await expect(one.append('a', [entry(1)], lease)).rejects.toMatchObject({ code: 'lease-lost' });
    await next.release();
  } finally {
    await database.clear();
    await now(0);
  }
});

describe('what was accepted is written before another port of its run', () => {
  // So that no time passes since the lease was acquired, and entries are accepted.
  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
  afterEach(() => void vi.useRealTimers());

  test.each<[string, (store: PostgresStore, lease: Lease) => Promise<unknown>]>([
    ['reads it', (store) => store.read('a')],
    ['reads a page', (store) => store.readPage('a', 0)],
    ['lists it', (store) => store.list()],
    ['counts its bytes', (store) => store.sizeOf('a')],
    ['searches it', (store) => store.entriesWith('a', 'effect', 'x')],
    ['stores a long result', (store) => store.blobs.put('a', 'long')],
    ['lists long results', (store) => store.blobs.list('a')],
    ['stores a snapshot', (store) => store.writeSnapshot('a', { seq: 1, state: {} })],
    ['reads a snapshot', (store) => store.readSnapshot('a')],
    ['looks for what is undriven', (store) => store.requests.undriven(0)],
    ['marks its request', (store) => store.requests.markWaiting('a')],
    ['finishes its request', (store) => store.requests.finish('a', { status: 'completed', response: {}, at: 1 })],
    ['appends to its stream', (store, lease) => store.streams.append('a', 1, [{}], lease)],
    ['takes notices', (store) => store.notices.take({ now: 9e12, until: 9e12, limit: 9 })],
    ['sends a request to its driver', (store) => store.inbox.add('a', {})],
    ['tells what is durable', async (store) => (await store.list({ runId: 'other' }), store.durable())],
    ['appends nothing', (store, lease) => Promise.resolve(store.append('a', [], lease))],
    ['releases it', (_, lease) => lease.release()],
    ['releases it by force', (store) => store.releaseRun('a', { force: true })],
  ])('%s', async (_, use) => {
    const [store, other] = [await database.open(), await database.open()];
    const lease = await store.acquire('a');
    expect(store.append('a', [entry(0)], lease, 'accepted')).toBeUndefined();
    await use(store, lease);
    expect(await other.read('a')).toEqual([entry(0)]);
    await lease.release();
    await database.clear();
  });
});
