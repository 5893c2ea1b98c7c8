import { DatabaseSync } from 'node:sqlite';
import type { JournalEntry } from '@treadle/core';
import { expect, test, vi } from 'vitest';
import { entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { response } from '../../test/responses.ts';

// What holds on every store is in `test/journal/contract/runs.ts`. Here: the plans of statements and the transactions of SQLite.

// Creating ten thousand runs is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const STATUSES = [undefined, 'paused', 'completed', 'exhausted', 'failed', 'cancelled'] as const;

test('no statement scans a whole table of 10,000 runs', async () => {
  await using temp = tempStore();
  // Creates the store: migrations may scan.
  await temp.open().close();
  const prepare = vi.spyOn(DatabaseSync.prototype, 'prepare');
  const store = temp.open();
  await Promise.all(
    Array.from({ length: 10_000 }, (_, i) => {
      const principal = { subject: 's', tenant: `tenant ${i % 7}`, scopes: [] };
      const event = {
        type: 'run-started',
        at: i,
        runId: `run ${i}`,
        model: 'm',
        input: [],
        principal,
        session: `session ${i % 13}`,
        task: `task ${i % 17}`,
        labels: { team: `team ${i % 3}` },
        parent: { runId: `run ${i % 101}`, seq: 0 },
      };
      const first = { v: 1, seq: 0, event, issued: [] } as unknown as JournalEntry;
      return store.append(`run ${i}`, [
        first,
        { ...entry(1, '', STATUSES[i % 6]), event: { type: 'cancel-requested', at: i } },
      ]);
    }),
  );

  // Executes every statement of the store.
  for (const status of [undefined, ['running'], ['paused', 'failed']] as const) {
    for (const tenant of [undefined, 'tenant 3']) {
      for (const parent of [undefined, 'run 5']) {
        const found = await store.list({
          ...(status && { status }),
          ...(tenant && { tenant }),
          ...(parent && { parent }),
          before: 9_000,
          limit: 10,
        });
        expect(found.map(({ startedAt }) => startedAt)).toEqual(
          found.map(({ startedAt }) => startedAt).toSorted((a, b) => b - a),
        );
        expect(found).not.toEqual([]);
      }
    }
  }
  for (const tenant of [undefined, 'tenant 3']) {
    for (const facts of [{ session: 'session 4' }, { task: 'task 9' }, { labels: { team: 'team 1' } }]) {
      expect(await store.list({ ...(tenant && { tenant }), ...facts, limit: 10 })).toHaveLength(10);
    }
  }
  const lease = await store.acquire('run 6000');
  await store.append('run 6000', [entry(2)], lease);
  await lease.release();
  await store.read('run 6000');
  await store.writeSnapshot('run 6000', { seq: 3, state: {} });
  await store.readSnapshot('run 6000');
  const id = await store.blobs.put('run 6000', 'text');
  await store.blobs.read('run 6000', id, 0, 1);
  await store.delete('run 6000');
  await Promise.all(
    Array.from({ length: 1_000 }, (_, i) =>
      store.requests.create(response(`resp ${i}`, { runId: `none ${i}`, createdAt: i, updatedAt: i })),
    ),
  );
  await Promise.all(
    Array.from({ length: 900 }, (_, i) =>
      store.requests.finish(`resp ${i}`, { status: 'completed', response: {}, at: i }),
    ),
  );
  await store.requests.get('acme', 'resp 0');
  await store.requests.delete('acme', 'resp 0');
  expect(await store.requests.unfinished()).toHaveLength(100);
  expect(await store.requests.prune(500)).toBe(499);
  // Forks are pruned independently of the original run.
  const isOpen = (i: number): boolean => ['running', 'paused'].includes(STATUSES[i % 6] ?? 'running');
  const prunable = Array.from({ length: 3_000 }, (_, i) => i).filter((i) => !isOpen(i));
  expect(await store.prune(3_000)).toBe(prunable.length);

  const statements = new Set(
    prepare.mock.calls.map(([sql]) => sql).filter((sql) => /^\s*(SELECT|INSERT|UPDATE|DELETE)/.test(sql)),
  );
  const db = prepare.mock.contexts[0] as DatabaseSync;
  prepare.mockRestore();
  expect(statements.size).toBeGreaterThan(20);
  expect(db.prepare('SELECT * FROM leases').all()).toEqual([]);
  const plans = [...statements].flatMap((sql) =>
    db
      .prepare(`EXPLAIN QUERY PLAN ${sql}`)
      .all()
      .map(({ detail }) => ({ sql, detail: String(detail) })),
  );
  // Lists of all budgets, of all schedules and of all reservations that are not settled read all of them. The number of notices is limited, and so is
  // that of processes that are kept, and of the labels of a run. Only runs that are driven now have leases.
  const whole = [
    'SELECT name FROM budget_definitions ORDER BY name',
    'SELECT * FROM schedules ORDER BY tenant, name',
    'SELECT * FROM reservations ORDER BY id',
    'SELECT id FROM notices ORDER BY id DESC LIMIT 1 OFFSET ?',
    'SELECT run, keeper, processes FROM kept_processes',
    'SELECT run, token, host, pid, process_start, place, thread, since, expires_at FROM leases',
  ];
  expect(
    plans.filter(
      ({ sql, detail }) =>
        !whole.includes(sql) && /^SCAN (?!sqlite_schema|json_each|\(subquery)|TEMP B-TREE/.test(detail),
    ),
  ).toEqual([]);
});

test('prunes runs in transactions of bounded size', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const ended = (count: number): JournalEntry[] =>
    Array.from({ length: count }, (_, seq) => entry(seq, '', seq === count - 1 ? 'completed' : undefined));
  for (const [index, count] of [6_000, 6_000, 3_000, 12_000, 5].entries())
    await store.append(`run ${index}`, ended(count));
  await Promise.all(Array.from({ length: 205 }, (_, index) => store.append(`small ${index}`, ended(1))));
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  expect(await store.prune(Infinity)).toBe(210);
  const commits = exec.mock.calls.filter(([sql]) => sql === 'COMMIT').length;
  exec.mockRestore();
  expect(commits).toBeGreaterThanOrEqual(5);
  expect(commits).toBeLessThan(10);
  const raw = temp.raw();
  for (const table of ['runs', 'entries']) expect(raw.prepare(`SELECT * FROM ${table}`).all()).toEqual([]);
});

test('prunes responses in transactions of bounded size', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const ended = (count: number): JournalEntry[] =>
    Array.from({ length: count }, (_, seq) => entry(seq, '', seq === count - 1 ? 'completed' : undefined));
  const sizes = [6_000, 6_000, 3_000, 12_000, 5, ...Array.from({ length: 205 }, () => 1)];
  await Promise.all(
    sizes.flatMap((count, i) => [
      store.requests.create(response(`resp ${i}`, { status: 'completed' })),
      store.append(`resp ${i}`, ended(count)),
    ]),
  );
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  expect(await store.requests.prune(Infinity)).toBe(210);
  const commits = exec.mock.calls.filter(([sql]) => sql === 'COMMIT').length;
  exec.mockRestore();
  expect(commits).toBeGreaterThanOrEqual(5);
  expect(commits).toBeLessThan(10);
  const raw = temp.raw();
  for (const table of ['runs', 'entries', 'requests']) expect(raw.prepare(`SELECT * FROM ${table}`).all()).toEqual([]);
});
