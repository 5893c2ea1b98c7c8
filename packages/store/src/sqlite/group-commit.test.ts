import { DatabaseSync } from 'node:sqlite';
import type { JournalEntry, TreadleError } from '@treadle/core';
import { afterEach, expect, test, vi } from 'vitest';
import { entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { groupCommit } from './group-commit.ts';
import { sqliteStore } from './store.ts';

afterEach(() => void vi.restoreAllMocks());

/** Returns a function that counts the write transactions since this call. */
function countCommits(): () => number {
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  const isWritten = ([sql]: readonly unknown[]): boolean => sql === 'BEGIN IMMEDIATE';
  return () => exec.mock.calls.filter(isWritten).length;
}

test('appends to a hundred runs share one transaction', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const count = countCommits();
  const runs = Array.from({ length: 100 }, (_, i) => `run ${i}`);
  await Promise.all(runs.map((runId) => store.append(runId, [entry(0)])));
  expect(count()).toBe(1);
  await Promise.all(
    runs.map(async (runId) => {
      for (let seq = 1; seq <= 20; seq++) await store.append(runId, [entry(seq)]);
    }),
  );
  expect(count()).toBe(21);
  expect(await store.list({ limit: 200 })).toHaveLength(100);
});

test('leases, snapshots and blobs share one transaction', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  const count = countCommits();
  const writes = [store.acquire('b'), store.blobs.put('a', 'text'), store.writeSnapshot('a', { seq: 1, state: 1 })];
  await Promise.all([...writes, store.append('a', [entry(1)]), store.delete('c')]);
  expect(count()).toBe(1);
});

test('a resolved append is visible to other connections', async () => {
  await using temp = tempStore();
  const raw = (temp.open(), temp.raw());
  const store = temp.open();
  const stored = raw.prepare('SELECT count(*) AS n FROM entries');
  for (let seq = 0; seq < 5; seq++) {
    const added = store.append('a', [entry(seq)]);
    expect(stored.get()).toEqual({ n: seq });
    await added;
    expect(stored.get()).toEqual({ n: seq + 1 });
  }
});

test('a write that fails rejects alone', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const lost = await store.acquire('lost');
  await lost.release();
  const invalid = { ...entry(0), event: { ...entry(0).event, at: Number.NaN } } as JournalEntry;
  const unserializable = { ...entry(0), digest: 1n } as unknown as JournalEntry;
  await store.append('a', [entry(0)]);
  const count = countCommits();
  const settled = await Promise.allSettled([
    store.append('a', [entry(1)]),
    store.append('lost', [entry(0)], lost),
    store.append('a', [entry(7)]),
    store.append('invalid', [entry(0), entry(1), { ...invalid, seq: 2 }]),
    store.append('unserializable', [unserializable]),
    store.append('a', [entry(2)]),
    store.append('b', [entry(0)]),
  ]);
  expect(count()).toBe(1);
  expect(settled.map((one) => (one.status === 'rejected' ? (one.reason.code ?? one.reason.name) : 'written'))).toEqual([
    'written',
    'lease-lost',
    'run-exists',
    'store-failed',
    'TypeError',
    'written',
    'written',
  ]);
  expect(await store.read('a')).toEqual([entry(0), entry(1), entry(2)]);
  expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual(['a', 'b']);
});

test('a failed transaction rejects all its writes, and the next one succeeds', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec').mockImplementation(function (this: DatabaseSync, sql) {
    if (sql === 'COMMIT') throw Object.assign(new Error('disk I/O error'), { errcode: 1034 });
    this.prepare(sql).run();
  });
  const settled = await Promise.allSettled([
    store.append('a', [entry(1)]),
    store.append('a', [entry(1)]),
    store.append('b', [entry(0)]),
    store.acquire('c'),
  ]);
  expect(settled.map((one) => one.status === 'rejected' && one.reason.code)).toEqual(Array(4).fill('store-failed'));
  exec.mockRestore();
  expect(await store.read('a')).toEqual([entry(0)]);
  expect(await store.read('b')).toEqual([]);
  await store.append('a', [entry(1)]);
  await store.append('b', [entry(0)]);
  await (await store.acquire('c')).release();
});

test('performs writes in the order of the calls, at once on flush', async () => {
  const db = new DatabaseSync(':memory:');
  const { write, flush } = groupCommit(db, {
    defer: setImmediate,
    busyTimeoutMs: 0,
    sync() {},
    toStoreError: (error) => error as never,
  });
  const order: string[] = [];
  const first = write(() => order.push('first'));
  const second = write(() => order.push('second'));
  flush();
  expect(order).toEqual(['first', 'second']);
  expect(await Promise.all([first, second])).toEqual([1, 2]);
  flush();
  db.close();
});

test('large writes are performed in turns of the event loop of their own, in order', async () => {
  const db = new DatabaseSync(':memory:');
  const deferred: (() => void)[] = [];
  const commit = groupCommit(db, {
    defer: (act) => void deferred.push(act),
    busyTimeoutMs: 0,
    sync() {},
    toStoreError: (error) => error as never,
  });
  const order: string[] = [];
  const write = (name: string, chars?: number): Promise<number> =>
    commit.write(() => order.push(name), 'durable', chars);
  const all = [
    write('small'),
    write('large', 1_000_000),
    write('next', 600_000),
    write('together', 600_000),
    write('last'),
  ];
  const turns: string[][] = [];
  for (let act = deferred.shift(); act; act = deferred.shift()) {
    act();
    turns.push(order.splice(0));
  }
  expect(turns).toEqual([['small', 'large'], ['next', 'together'], ['last']]);
  await Promise.all(all);
  const more = [write('one', 1_000_000), write('two', 1_000_000)];
  commit.flush();
  expect(order).toEqual(['one', 'two']);
  await Promise.all(more);
  db.close();
});

test('closing the store writes pending appends first', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const added = [store.append('a', [entry(0)]), store.append('a', [entry(1)])];
  await store.close();
  await Promise.all(added);
  expect(await temp.open().read('a')).toEqual([entry(0), entry(1)]);
});

test('every method of a closed store rejects with an error that says so', async () => {
  const store = sqliteStore(':memory:');
  await store.append('a', [entry(0)]);
  await store.close();
  const calls = [
    store.append('a', [entry(1)]),
    store.read('a'),
    store.acquire('a'),
    store.list(),
    store.delete('a'),
    store.prune(0),
    store.readSnapshot('a'),
    store.writeSnapshot('a', { seq: 1, state: 1 }),
    store.blobs.put('a', 'text'),
    store.blobs.read('a', 'id', 0, 1),
  ];
  for (const settled of await Promise.allSettled(calls)) {
    expect(settled).toMatchObject({ status: 'rejected', reason: { code: 'store-failed' } });
    expect(String((settled as PromiseRejectedResult).reason)).toContain('The store :memory: is closed. Open it again.');
  }
});

test('writes that arrive while a commit is due share its turn of the event loop, also if accepted ones are due', async () => {
  using db = new DatabaseSync(':memory:');
  const turns: (() => void)[] = [];
  const timers: (() => void)[] = [];
  const { write, accept } = groupCommit(db, {
    defer: (act, ms) => void (ms === undefined ? turns : timers).push(act),
    sync: () => {},
    busyTimeoutMs: 0,
    toStoreError: (error) => error as TreadleError,
  });
  const done: string[] = [];
  accept(
    () => void done.push('accepted'),
    () => expect.unreachable(),
    1,
  );
  const first = write(() => void done.push('first'));
  timers.shift()!();
  const second = write(() => void done.push('second'));
  expect([turns.length, timers.length]).toEqual([1, 0]);
  turns.shift()!();
  await Promise.all([first, second]);
  expect(done).toEqual(['accepted', 'first', 'second']);
  // And the next ones get a turn of their own.
  const third = write(() => void done.push('third'));
  expect(turns).toHaveLength(1);
  turns.shift()!();
  await third;
  accept(
    () => void done.push('last'),
    () => expect.unreachable(),
    1,
  );
  timers.shift()!();
  expect(done).toEqual(['accepted', 'first', 'second', 'third', 'last']);
});
