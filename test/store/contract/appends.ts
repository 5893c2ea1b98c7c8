import { replay, runLoop, tool, type JournalEntry, type Lease } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { entries, entry, startedWith } from '../entries.ts';
import type { TempStores } from './temp-stores.ts';
import type { Store } from '@treadle/store';

/**
 * Entries that are only accepted. Whether they are depends on the time since the last write of their run, so nothing here does;
 * `append` may wait instead.
 */
export function appendsContract(tempStore: () => Promise<TempStores>): void {
  /** A run that was just acquired. */
  async function acquired(temp: TempStores) {
    const store = await temp.open();
    const lease = await store.acquire('a');
    const accept = (...added: readonly JournalEntry[]): Promise<void> => acceptWith(store, lease, added);
    return { store, lease, accept, other: await temp.open() };
  }

  async function acceptWith(store: Store, lease: Lease, added: readonly JournalEntry[]): Promise<void> {
    await store.append('a', added, lease, 'accepted');
  }

  test('are read by their own store at once, and from then on by others', async () => {
    await using temp = await tempStore();
    const { store, accept, other } = await acquired(temp);
    await accept(entry(0));
    expect((await store.list()).map(({ runId }) => runId)).toEqual(['a']);
    await accept(entry(1), entry(2));
    expect(await store.read('a')).toEqual(entries(3));
    expect(await other.read('a')).toEqual(entries(3));
  });

  test('are written soon, without another call', async () => {
    await using temp = await tempStore();
    const { accept, other } = await acquired(temp);
    const told = Promise.withResolvers<void>();
    other.watch('a', () => {
      void other.read('a').then(({ length }) => length > 0 && told.resolve());
    });
    await accept(entry(0));
    await told.promise;
  });

  test('are written by an append of no entries, a release, and closing the store', async () => {
    await using temp = await tempStore();
    const { store, lease, accept, other } = await acquired(temp);
    await accept(entry(0));
    await store.append('a', [], lease);
    expect(await other.read('a')).toEqual(entries(1));
    await accept(entry(1));
    await lease.release();
    expect(await other.read('a')).toEqual(entries(2));
    const next = await store.acquire('a');
    await acceptWith(store, next, [entry(2)]);
    await store.close();
    expect(await other.read('a')).toEqual(entries(3));
  });

  test('need a lease that was not released, and a store that is open', async () => {
    await using temp = await tempStore();
    const { store, lease, accept } = await acquired(temp);
    await accept(entry(0));
    const released = lease.release();
    await expect(accept(entry(1))).rejects.toMatchObject({ code: 'lease-lost' });
    await released;
    const next = await store.acquire('a');
    await store.close();
    await expect(acceptWith(store, next, [entry(1)])).rejects.toMatchObject({ code: 'store-failed' });
  });

  test('are written after what waits', async () => {
    await using temp = await tempStore();
    const { store, lease, accept } = await acquired(temp);
    const all = [
      accept(entry(0)),
      store.append('a', [entry(1)], lease),
      accept(entry(2)),
      store.append('a', [entry(3)], lease, 'written'),
      accept(entry(4)),
    ];
    await Promise.all(all);
    expect(await store.read('a')).toEqual(entries(5));
  });

  test('are written before what is stored for their run', async () => {
    await using temp = await tempStore();
    const { store, accept } = await acquired(temp);
    await Promise.all([accept(entry(0)), store.blobs.put('a', 'text')]);
    await Promise.all([accept(entry(1)), store.writeSnapshot('a', { seq: 2, state: {} })]);
    expect(await store.readSnapshot('a')).toEqual({ seq: 2, state: {} });
  });

  test('without a lease are written when the append resolves', async () => {
    await using temp = await tempStore();
    const { store, other } = await acquired(temp);
    await expect(store.append('b', [entry(0)], undefined, 'accepted')).resolves.toBeUndefined();
    expect(await other.read('b')).toEqual(entries(1));
  });

  test.each([
    ['are not the next ones', async () => entry(7), 'run-exists'],
    [
      'belong to a lease that was lost',
      async (other: Store) => (await other.releaseRun('a', { force: true }), entry(1)),
      'lease-lost',
    ],
  ] as const)('that %s stop their driver', async (_, prepare, code) => {
    await using temp = await tempStore();
    const { store, lease, accept, other } = await acquired(temp);
    await store.append('a', [entry(0)], lease);
    const added = await prepare(other);
    // Who has waited is told, and otherwise the lease is aborted.
    const failed = accept(added).then(
      () => lease.lost!.aborted || new Promise((resolve) => lease.lost!.addEventListener('abort', resolve)),
      (error: unknown) => error,
    );
    await expect(store.append('a', [entry(8)], lease)).rejects.toMatchObject({ code });
    await failed;
    await expect(accept(entry(9))).rejects.toMatchObject({ code });
    expect(await store.read('a')).toEqual([entry(0)]);
  });

  test.each(['accepted', 'durable'] as const)(
    'or not: after entries that are not the next ones, nothing else of their driver is written: %s',
    async (until) => {
      await using temp = await tempStore();
      const { store, lease } = await acquired(temp);
      await store.append('a', entries(2), lease);
      // A driver that starts the run although it exists: only its third entry has the next number.
      const started = (async () => store.append('a', entries(2), lease, until))().catch(() => {});
      await expect(store.append('a', [entry(2)], lease)).rejects.toMatchObject({ code: 'run-exists' });
      await started;
      expect(await store.read('a')).toEqual(entries(2));
    },
  );

  test('may be long', async () => {
    await using temp = await tempStore();
    const { store, accept } = await acquired(temp);
    const all = [entry(0, 'x'.repeat(60_000)), entry(1, 'y'.repeat(60_000)), entry(2)];
    await Promise.all(all.map((one) => accept(one)));
    expect(await store.read('a')).toEqual(all);
  });

  test('of a run that never waits are all stored, and replay', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'seen' });
    const calls = Array.from({ length: 30 }, (_, turn) => ({ calls: [{ name: 'look', arguments: { turn } }] }));
    const model = scriptedModel([...calls, 'Done.']);
    const { outcome, runId } = await runLoop({ model, tools: [look], input: 'Look.', journal: store, maxTurns: 40 });
    expect(outcome).toEqual({ type: 'completed' });
    const stored = await store.read(runId);
    expect(stored).toHaveLength(62);
    expect(replay(stored)).toMatchObject({ type: 'replayed' });
  });

  test('an append that fails rejects alone, whatever is appended to other runs at the same time', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const lost = await store.acquire('lost');
    await lost.release();
    const invalid = { ...entry(2), event: { ...entry(2).event, at: Number.NaN } } as JournalEntry;
    const unserializable = { ...entry(0), digest: 1n } as unknown as JournalEntry;
    await store.append('a', [entry(0)]);
    const settled = await Promise.allSettled([
      store.append('a', [entry(1)]),
      store.append('lost', [entry(0)], lost),
      store.append('a', [entry(7)]),
      store.append('invalid', [entry(0), entry(1), invalid]),
      store.append('unserializable', [unserializable]),
      store.append('a', [entry(2)]),
      store.append('b', [entry(0)]),
      store.append('part', [entry(0)]),
      store.append('part', [entry(1)]),
      store.append('part', [invalid]),
    ]);
    expect(
      settled.map((one) => (one.status === 'rejected' ? (one.reason.code ?? one.reason.name) : 'written')),
    ).toEqual([
      'written',
      'lease-lost',
      'run-exists',
      'store-failed',
      'TypeError',
      'written',
      'written',
      'written',
      'written',
      'store-failed',
    ]);
    expect(await store.read('a')).toEqual(entries(3));
    expect(await store.read('part')).toEqual(entries(2));
    expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual(['a', 'b', 'part']);
  });

  test('a driver whose entries could not be written writes nothing after them', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const lease = await store.acquire('a');
    const invalid = { ...entry(1), event: { ...entry(1).event, at: Number.NaN } } as JournalEntry;
    const settled = await Promise.allSettled([
      store.append('a', [entry(0)], lease),
      store.append('a', [invalid], lease),
      store.append('a', [entry(2)], lease),
      store.append('b', [entry(0)]),
    ]);
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected', 'fulfilled']);
    expect(await store.read('a')).toEqual([entry(0)]);
  });

  test('a model may have any name', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const first = startedWith([]);
    const odd = { ...first, event: { ...first.event, model: 'm \ud800 \0' } } as JournalEntry;
    await store.append('a', [odd]);
    expect(await store.read('a')).toEqual([odd]);
    expect(await store.list({ model: 'm \ufffd \0' })).toMatchObject([{ runId: 'a' }]);
  });
}
