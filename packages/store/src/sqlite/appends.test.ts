import { DatabaseSync } from 'node:sqlite';
import { replay, runLoop, systemClock, tool, type JournalEntry } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import type { SqliteStore } from './store.ts';

// What holds on every store is in `test/store/contract/appends.ts`. Here: when entries are accepted, by a clock that stands still, and
// failures of the file.

/** A store whose clock for short times stands still, and a run that it has just acquired. No lease is renewed meanwhile. */
async function acquired(temp: TempStore) {
  let now = 1_000;
  const store = temp.open({ clock: { ...systemClock, monotonic: () => now }, leaseTtlMs: 1_000_000 });
  const lease = await store.acquire('a');
  let commits = 0;
  store.onCommit(() => void commits++);
  const accept = (...added: readonly JournalEntry[]) => store.append('a', added, lease, 'accepted');
  return { store, lease, accept, commits: () => commits, pass: (ms: number) => void (now += ms) };
}

/** How many entries another connection sees. */
function counter(temp: TempStore): () => unknown {
  const count = temp.raw().prepare('SELECT count(*) AS n FROM entries');
  return () => count.get()?.['n'];
}

function nextCommit(store: SqliteStore): Promise<void> {
  return new Promise((resolve) => store.onCommit(() => resolve()));
}

test('entries are accepted for 5 ms after a write of their run, and committed with the next write', async () => {
  await using temp = tempStore();
  const { store, lease, accept, commits, pass } = await acquired(temp);
  const stored = counter(temp);
  expect(accept(entry(0))).toBeUndefined();
  pass(4.9);
  expect(accept(entry(1), entry(2))).toBeUndefined();
  expect([stored(), commits()]).toEqual([0, 0]);
  await store.append('a', [entry(3)], lease);
  expect([stored(), commits()]).toEqual([4, 1]);
  expect(accept(entry(4))).toBeUndefined();
  pass(5);
  await expect(accept(entry(5))).resolves.toBeUndefined();
  expect([stored(), commits()]).toEqual([6, 2]);
  expect(await store.read('a')).toEqual(entries(6));
});

test('a write of accepted entries does not prolong the time: what takes 5 ms longer than the last wait is written', async () => {
  await using temp = tempStore();
  const { store, accept, pass } = await acquired(temp);
  const stored = counter(temp);
  pass(4.9);
  expect(accept(entry(0))).toBeUndefined();
  expect(await store.read('a')).toHaveLength(1);
  pass(0.2);
  await expect(accept(entry(1))).resolves.toBeUndefined();
  expect(stored()).toBe(2);
});

test('accepted entries are committed soon, without another write', async () => {
  await using temp = tempStore();
  const { store, accept } = await acquired(temp);
  const stored = counter(temp);
  const committed = nextCommit(store);
  expect(accept(entry(0))).toBeUndefined();
  await committed;
  expect(stored()).toBe(1);
});

test('entries of a run that has no lease, or was not written lately, are written before the append resolves', async () => {
  await using temp = tempStore();
  const { store, pass } = await acquired(temp);
  const stored = counter(temp);
  await expect(store.append('b', [entry(0)], undefined, 'accepted')).resolves.toBeUndefined();
  await expect(store.append('b', [entry(1)], undefined, 'accepted')).resolves.toBeUndefined();
  expect(stored()).toBe(2);
  const lease = await store.acquire('c');
  pass(5);
  await expect(store.append('c', [entry(0)], lease, 'accepted')).resolves.toBeUndefined();
  expect(stored()).toBe(3);
});

test('a run whose accepted entries cannot be committed stops, calls nothing that acts, and can be resumed', async () => {
  await using temp = tempStore();
  const opening = vi.spyOn(DatabaseSync.prototype, 'exec');
  const store = temp.open({ clock: { ...systemClock, monotonic: () => 1_000 } });
  const db = opening.mock.contexts[0] as DatabaseSync;
  opening.mockRestore();
  const failCommit = (): void => {
    const exec = vi.spyOn(db, 'exec').mockImplementation((sql) => {
      if (sql !== 'COMMIT') return DatabaseSync.prototype.exec.call(db, sql);
      exec.mockRestore();
      throw Object.assign(new Error('database or disk is full'), { errcode: 13 });
    });
  };
  let calls = 0;
  const pay = tool({ name: 'pay', description: 'Pays', execute: () => ++calls });
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => void failCommit() });
  const [looking, paying] = [{ calls: [{ name: 'look' }] }, { calls: [{ name: 'pay' }] }];
  const run = { tools: [pay, look], journal: store, runId: 'a', input: 'Go.', resume: 'auto' } as const;
  const failed = runLoop({ ...run, model: scriptedModel([looking, paying]) });
  await expect(failed).rejects.toMatchObject({ code: 'store-full' });
  expect([calls, await store.list(), await store.isDriven('a')]).toEqual([0, [], false]);
  const { outcome } = await runLoop({ ...run, model: scriptedModel([paying, 'Done.']) });
  expect([calls, outcome]).toEqual([1, { type: 'completed' }]);
  expect(replay(await store.read('a'))).toMatchObject({ type: 'replayed' });
});

test('nothing more is accepted while another process writes', async () => {
  await using temp = tempStore();
  const { store, accept } = await acquired(temp);
  const other = temp.raw();
  other.exec('BEGIN IMMEDIATE');
  expect(accept(entry(0))).toBeUndefined();
  const list = store.list();
  await new Promise(setImmediate);
  const waiting = accept(entry(1));
  expect(waiting).toBeInstanceOf(Promise);
  other.exec('COMMIT');
  await waiting;
  await list;
  expect(await store.read('a')).toEqual(entries(2));
});

test('only so much is accepted as can be written at once', async () => {
  await using temp = tempStore();
  const { store, accept } = await acquired(temp);
  const [large, next] = [entry(0, 'x'.repeat(60_000)), entry(1, 'y'.repeat(60_000))];
  expect(accept(large)).toBeUndefined();
  expect(accept(next)).toBeUndefined();
  await expect(accept(entry(2))).resolves.toBeUndefined();
  expect(await store.read('a')).toEqual([large, next, entry(2)]);
});

test('a run that never waits lets the event loop turn', async () => {
  await using temp = tempStore();
  let now = 0;
  const store = temp.open({ clock: { ...systemClock, monotonic: () => (now += 0.1) } });
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'seen' });
  const calls = Array.from({ length: 100 }, (_, turn) => ({ calls: [{ name: 'look', arguments: { turn } }] }));
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  const model = scriptedModel([...calls, 'Done.']);
  const { outcome, runId } = await runLoop({ model, tools: [look], input: 'Look.', journal: store, maxTurns: 200 });
  isDone = true;
  expect(outcome).toEqual({ type: 'completed' });
  expect(await store.read(runId)).toHaveLength(202);
  expect(turns).toBeGreaterThan(3);
});
