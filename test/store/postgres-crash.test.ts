import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { entry, entries } from './entries.ts';
import { startPostgres, withClient, type PostgresServer } from './postgres-server.ts';
import { postgresStore, type PostgresOptions, type PostgresStore } from '@treadle/store';

/*
 * A server of its own, whose crashes lose what is not on the disk. The process that writes its log is stopped, so that only commits that
 * wait for the disk are on it.
 */
let server: PostgresServer;
const opened: PostgresStore[] = [];

beforeAll(async () => {
  server = await startPostgres({ settings: ['autovacuum=off'] });
});
afterAll(async () => {
  await Promise.all(opened.map((store) => store.close()));
  await server[Symbol.asyncDispose]();
});

async function open(options: PostgresOptions = {}): Promise<PostgresStore> {
  const store = await postgresStore(server.url(), { connections: 4, ...options });
  opened.push(store);
  return store;
}

/** Only commits that wait for the disk write to it from now on. */
async function stopLogWriter(): Promise<void> {
  const { rows } = await withClient(server.url(), (client) =>
    client.query<{ readonly pid: number }>(`SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'`),
  );
  process.kill(rows[0]!.pid, 'SIGSTOP');
}

async function crash(): Promise<void> {
  await server.kill();
  await server.start();
}

test('a lease is durable when it is acquired, so no token is given twice after a crash of the database', async () => {
  const [one, other] = [await open({ leaseTtlMs: 60_000 }), await open()];
  const lease = await one.acquire('kept');
  await crash();
  await expect(other.acquire('kept')).rejects.toMatchObject({ code: 'run-driven' });
  const next = await other.acquire('next');
  expect(next.token).toBeGreaterThan(lease.token);
  await one.append('kept', [entry(0)], lease);
  expect(await other.read('kept')).toEqual([entry(0)]);
  await lease.release();
});

test('entries that were written and not durable are lost in a crash: the driver is told, and the run can be resumed', async () => {
  const store = await open({ leaseTtlMs: 60_000 });
  const lease = await store.acquire('lost');
  await stopLogWriter();
  await store.append('lost', [entry(0)], lease);
  await store.append('lost', [entry(1)], lease, 'written');
  await crash();
  await expect(store.append('lost', [entry(2)], lease)).rejects.toMatchObject({
    code: 'lease-lost',
    message: expect.stringContaining('has lost the entries 1 to 1 of run "lost"'),
  });
  await lease.release();
  const again = await store.acquire('lost');
  expect(await store.read('lost')).toEqual([entry(0)]);
  await store.append('lost', [entry(1, 'again')], again);
  expect(await store.read('lost')).toEqual([entry(0), entry(1, 'again')]);
  await again.release();
});

test('what is durable waits for the disk although the database does not wait by default', async () => {
  const set = (setting: string): Promise<unknown> =>
    withClient(server.url(), (client) => client.query(`ALTER DATABASE postgres ${setting}`));
  await set('SET synchronous_commit = off');
  const store = await open({ leaseTtlMs: 60_000 });
  await stopLogWriter();
  const lease = await store.acquire('waits');
  await store.append('waits', [entry(0)], lease);
  await store.conversations.create({ id: 'waits', tenant: 'acme', title: '', createdAt: 1 });
  await crash();
  await set('RESET synchronous_commit');
  expect(await store.read('waits')).toEqual([entry(0)]);
  expect(await store.conversations.get('acme', 'waits')).toBeDefined();
  await store.append('waits', [entry(1)], lease);
  await lease.release();
});

test('what was read is durable after durable(), whoever wrote it', async () => {
  const [one, other] = [await open(), await open()];
  await stopLogWriter();
  await one.append('shown', [entry(0)], undefined, 'written');
  expect(await other.read('shown')).toEqual([entry(0)]);
  await other.durable();
  await crash();
  expect(await other.read('shown')).toEqual([entry(0)]);
});

test('what a read finds that takes long is durable after durable(), although somebody else called it meanwhile', async () => {
  const store = await open();
  await store.append('slow', [entry(0)]);
  await stopLogWriter();
  const reading = await withClient(server.url(), async (client) => {
    await client.query('SET synchronous_commit = off; BEGIN; LOCK TABLE treadle.runs IN ACCESS EXCLUSIVE MODE');
    await client.query(`UPDATE treadle.runs SET tenant = 'later' WHERE run = 'slow'`);
    const summaries = store.list({ runId: 'slow' });
    await vi.waitFor(async () => {
      const { rows } = await client.query('SELECT 1 FROM pg_locks WHERE NOT granted');
      expect(rows).toHaveLength(1);
    });
    await store.durable();
    await client.query('COMMIT');
    return { summaries };
  });
  expect(await reading.summaries).toMatchObject([{ tenant: 'later' }]);
  await store.durable();
  await crash();
  expect(await store.list({ runId: 'slow' })).toMatchObject([{ tenant: 'later' }]);
});

test('an append of no entries makes those before it durable', async () => {
  const store = await open();
  await stopLogWriter();
  await store.append('synced', [entry(0)], undefined, 'written');
  await store.append('synced', []);
  await crash();
  expect(await store.read('synced')).toEqual([entry(0)]);
});

test('connections that are cut under load lose and repeat nothing', async () => {
  const store = await open({ leaseTtlMs: 60_000 });
  const names = Array.from({ length: 10 }, (_, index) => `cut ${index}`);
  const all = entries(60);
  let isDone = false;
  const cutting = (async () => {
    for (; !isDone; await setTimeout(15)) {
      await withClient(server.url(), (client) =>
        client.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'treadle' AND random() < 0.5`,
        ),
      );
    }
  })();
  await Promise.all(
    names.map(async (name) => {
      const lease = await store.acquire(name);
      for (const [index, one] of all.entries())
        await store.append(name, [one], lease, index % 2 ? 'written' : 'durable');
      await lease.release();
    }),
  );
  isDone = true;
  await cutting;
  for (const name of names) expect(await store.read(name)).toEqual(all);
});

test('a lease that is not renewed is taken over by the clock of the database, and its driver can write nothing', async () => {
  const [frozen, other] = [await open({ leaseTtlMs: 60_000 }), await open()];
  const lease = await frozen.acquire('frozen');
  await frozen.append('frozen', [entry(0)], lease);
  // As if the process had been stopped: its renewals do not reach the database.
  await withClient(server.url(), (client) =>
    client.query(`UPDATE treadle.holders SET renewed_at = renewed_at - 60000`),
  );
  const next = await other.acquire('frozen');
  expect(next).toMatchObject({ takenOver: true });
  await expect(frozen.append('frozen', [entry(1)], lease)).rejects.toMatchObject({ code: 'lease-lost' });
  await other.append('frozen', [entry(1)], next);
  expect(await other.list({ runId: 'frozen' })).toMatchObject([{ recovered: { times: 1 } }]);
  await next.release();
});

test('all leases of a store are renewed by one row', async () => {
  const store = await open({ leaseTtlMs: 600 });
  const leases = await Promise.all(['r1', 'r2', 'r3'].map((runId) => store.acquire(runId)));
  const rows = async (): Promise<readonly (readonly unknown[])[]> =>
    withClient(server.url(), async (client) => [
      (await client.query(`SELECT run, xmin FROM treadle.heads WHERE run IN ('r1', 'r2', 'r3') ORDER BY run`)).rows,
      (await client.query('SELECT renewed_at FROM treadle.holders WHERE ttl_ms = 600')).rows,
    ]);
  const [heads, holders] = await rows();
  await vi.waitUntil(async () => JSON.stringify((await rows())[1]) !== JSON.stringify(holders), { timeout: 10_000 });
  expect((await rows())[0]).toEqual(heads);
  for (const lease of leases) await lease.release();
  await store.close();
  expect((await rows())[1]).toEqual([]);
});

test('a store whose renewal was late finds which of its leases others have taken', async () => {
  const ttlMs = 600_000;
  const [late, other] = [await open({ leaseTtlMs: ttlMs }), await open()];
  const [taken, kept] = [await late.acquire('taken'), await late.acquire('kept late')];
  await withClient(server.url(), (client) =>
    client.query('UPDATE treadle.holders SET renewed_at = renewed_at - 2 * ttl_ms WHERE ttl_ms = $1', [ttlMs]),
  );
  const next = await other.acquire('taken');
  expect(taken.lost!.aborted).toBe(false);
  // By the clock of its process, the store has to renew before the next effect.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ttlMs - 1_000 });
  try {
    await kept.confirm!();
  } finally {
    vi.useRealTimers();
  }
  expect(taken.lost!.reason).toMatchObject({ code: 'lease-lost' });
  expect(kept.lost!.aborted).toBe(false);
  await expect(other.acquire('kept late')).rejects.toMatchObject({ code: 'run-driven' });
  await Promise.all([next.release(), kept.release()]);
});

test('a store whose lease was ended by force is told at its next renewal', async () => {
  const [store, other] = [await open({ leaseTtlMs: 600 }), await open()];
  const lease = await store.acquire('forced');
  const lost = new Promise((resolve) => lease.lost!.addEventListener('abort', resolve));
  expect(await other.releaseRun('forced', { force: true })).toBe(true);
  await lost;
  await (await other.acquire('forced')).release();
});

test('a store that cannot reach the database stops its drivers before others can take over', async () => {
  const store = await open({ leaseTtlMs: 1_000, retryMs: 200 });
  const lease = await store.acquire('cut off');
  const lost = new Promise((resolve) => lease.lost!.addEventListener('abort', resolve));
  await server.kill();
  await lost;
  expect(lease.lost!.reason).toMatchObject({ code: 'lease-lost' });
  await expect(store.read('cut off')).rejects.toMatchObject({ code: 'store-failed' });
  await server.start();
  expect(await store.read('cut off')).toEqual([]);
});

test('a release that cannot reach the database does not reject, and its store can acquire the run again', async () => {
  const [store, other] = [await open({ leaseTtlMs: 60_000 }), await open()];
  const lease = await store.acquire('released');
  await store.append('released', [entry(0)], lease);
  await server.kill();
  await lease.release();
  await server.start();
  await expect(other.acquire('released')).rejects.toMatchObject({ code: 'run-driven' });
  const again = await store.acquire('released');
  expect([again.takenOver, again.token > lease.token]).toEqual([undefined, true]);
  await expect(store.append('released', [entry(1)], lease)).rejects.toMatchObject({ code: 'lease-lost' });
  await store.append('released', [entry(1)], again);
  expect(await other.list({ runId: 'released', recovered: true })).toEqual([]);
  await again.release();
  await (await other.acquire('released')).release();
});

test('other processes are notified of entries', async () => {
  const store = await open();
  const client = new pg.Client({ connectionString: server.url() });
  await client.connect();
  await client.query('LISTEN treadle_changes');
  const notified = once(client, 'notification');
  await store.append('told', [entry(0)]);
  expect(await notified).toMatchObject([{ channel: 'treadle_changes' }]);
  await client.end();
});

test('a call is counted for the rates although the connection is lost in the commit, because twice does no harm', async () => {
  const store = await open();
  await withClient(server.url(), (client) =>
    client.query(`
      CREATE SEQUENCE cuts;
      CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF nextval('cuts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$;
      CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON treadle.rates DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cut()`),
  );
  expect(await store.rates.add('send', 1, 1, 10)).toEqual([]);
  await withClient(server.url(), (client) => client.query('DROP FUNCTION cut CASCADE; DROP SEQUENCE cuts'));
});

test('an append that is sent again after its connection was lost is not taken for written if its lease is lost', async () => {
  const [store, other] = [await open({ leaseTtlMs: 60_000 }), await open()];
  const lease = await store.acquire('resent');
  await store.append('resent', [entry(0)], lease);
  await withClient(server.url(), (client) =>
    client.query(`
      UPDATE treadle.holders SET renewed_at = renewed_at - 60000;
      CREATE SEQUENCE cuts;
      CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF nextval('cuts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$`),
  );
  const next = await other.acquire('resent');
  await withClient(server.url(), (client) =>
    client.query(`CREATE TRIGGER cut BEFORE UPDATE ON treadle.heads FOR EACH STATEMENT EXECUTE FUNCTION cut()`),
  );
  await expect(store.append('resent', [entry(1)], lease)).rejects.toMatchObject({ code: 'lease-lost' });
  const { rows } = await withClient(server.url(), (client) => client.query('SELECT last_value FROM cuts'));
  expect(Number(rows[0]!.last_value)).toBeGreaterThan(1);
  await withClient(server.url(), (client) => client.query('DROP FUNCTION cut CASCADE; DROP SEQUENCE cuts'));
  await other.append('resent', [entry(1, 'other')], next);
  expect(await other.read('resent')).toEqual([entry(0), entry(1, 'other')]);
  await next.release();
});

test('of a write whose connection is lost in its commit nobody says whether it was written, and it is not repeated', async () => {
  const store = await open();
  await withClient(server.url(), (client) =>
    client.query(`
      CREATE SEQUENCE cuts;
      CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF nextval('cuts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$;
      CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON treadle.inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cut()`),
  );
  await expect(store.inbox.add('run', {})).rejects.toMatchObject({
    code: 'store-failed',
    message: expect.stringContaining('so it may have been written or not. Read it again.'),
  });
  expect(await store.inbox.open()).toEqual([]);
  await withClient(server.url(), (client) => client.query('DROP FUNCTION cut CASCADE; DROP SEQUENCE cuts'));
  await store.inbox.add('run', {});
  expect(await store.inbox.open()).toHaveLength(1);
});

test('an append whose commit was ended while it waited for a standby waits for it again', async () => {
  const store = await open({ leaseTtlMs: 60_000 });
  const lease = await store.acquire('standby');
  await withClient(server.url(), async (client) => {
    await client.query('SET synchronous_commit = local');
    await client.query(`ALTER SYSTEM SET synchronous_standby_names = 'missing'`);
    const settled: string[] = [];
    let appended: Promise<unknown> | undefined;
    try {
      await client.query('SELECT pg_reload_conf()');
      await untilCommitsWait(client);
      appended = Promise.resolve(store.append('standby', [entry(0)], lease)).then(() => settled.push('append'));
      const first = await untilWaiting(client, 'append_entries');
      await client.query('SELECT pg_terminate_backend($1)', [first]);
      await untilWaiting(client, 'make_durable');
      expect(settled).toEqual([]);
    } finally {
      await client.query('ALTER SYSTEM RESET synchronous_standby_names');
      await client.query('SELECT pg_reload_conf()');
    }
    await appended;
  });
  expect(await store.read('standby')).toEqual([entry(0)]);
  await lease.release();
});

/**
 * Resolves when every process of PostgreSQL has read its changed settings, some time after it was told to. A connection that is made
 * with the new setting shows that all were told; the process that writes checkpoints then decides whether commits wait.
 */
async function untilCommitsWait(client: pg.Client): Promise<void> {
  const probe = 'one that may wait';
  await vi.waitUntil(
    () =>
      withClient(server.url(), async (other) => {
        const { rows } = await other.query(`SELECT current_setting('synchronous_standby_names') AS names`);
        return rows[0]!.names === 'missing';
      }),
    { timeout: 30_000, interval: 10 },
  );
  const other = new pg.Client({ connectionString: server.url() });
  other.on('error', () => {});
  await other.connect();
  let waits = false;
  const commits = (async () => {
    while (!waits) await other.query(`SELECT pg_logical_emit_message(true, 'test', '${probe}')`);
  })().catch(() => {});
  const pid = await untilWaiting(client, probe);
  waits = true;
  await client.query('SELECT pg_terminate_backend($1)', [pid]);
  await commits;
  await other.end();
}

/** Resolves to the connection whose statement contains `text`, when its commit waits for a standby. */
function untilWaiting(client: pg.Client, text: string): Promise<number> {
  return vi.waitUntil(
    async () => {
      const { rows } = await client.query<{ readonly pid: number }>(
        `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND position($1 IN query) > 0`,
        [text],
      );
      return rows[0]?.pid;
    },
    { timeout: 30_000, interval: 10 },
  );
}
