import type { JournalEntry, Parent } from '@treadle/core';
import { expect, test } from 'vitest';
import { entry, startedWith } from '../entries.ts';
import type { TempStores } from './temp-stores.ts';

export function noticesContract(tempStore: () => Promise<TempStores>): void {
  const ENDS = ['paused', 'completed'] as const;
  /** The first entry of a run. */
  function startEntry(runId: string, parent?: Parent): JournalEntry {
    const first = startedWith([], runId);
    return parent ? { ...first, event: { ...first.event, parent } as JournalEntry['event'] } : first;
  }

  function entryAt(at: number): JournalEntry {
    const last = entry(1, '', 'completed');
    return { ...last, event: { ...last.event, at } };
  }

  const take = { now: 5_000, until: 6_000, limit: 10 };

  test('a run that gets a wanted status has one notice for it, stored with the entry', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('before', [startEntry('before'), entry(1, '', 'completed')]);
    store.notices.enable(ENDS);
    await store.append('run', [startEntry('run')]);
    await store.append('run', [entry(1, '', 'paused')]);
    // An answer that leaves another one open.
    await store.append('run', [entry(2, '', 'paused')]);
    await store.append('run', [entry(3), entry(4, '', 'paused')]);
    await store.append('run', [entry(5, '', 'completed')]);
    await store.append('failed', [startEntry('failed'), entry(1, '', 'failed')]);
    expect(await store.notices.take(take)).toEqual(
      [
        { seq: 1, status: 'paused' },
        { seq: 4, status: 'paused' },
        { seq: 5, status: 'completed' },
      ].map((notice, index) => ({ id: index + 1, runId: 'run', at: 1_000 + notice.seq, attempts: 1, ...notice })),
    );
  });

  test('child runs have no notices, and forks do', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    store.notices.enable(ENDS);
    const child = startEntry('child', { runId: 'run', effect: 't1.tool.0' } as Parent);
    await store.append('child', [child, entry(1, '', 'paused')]);
    await store.append('child', [entry(2, '', 'completed')]);
    await store.append('fork', [startEntry('fork', { runId: 'run', seq: 3 } as Parent)]);
    await store.append('fork', [entry(1, '', 'completed')]);
    expect(await store.notices.take(take)).toMatchObject([{ runId: 'fork', seq: 1 }]);
  });

  test('a notice that was taken is not given to others until its time, and remains until it is removed', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    one.notices.enable(ENDS);
    for (const run of ['a', 'b', 'c']) {
      await one.append(run, [startEntry(run), entry(1, '', 'completed')]);
    }
    const [a, b] = await one.notices.take({ ...take, limit: 2 });
    expect([a, b]).toMatchObject([{ runId: 'a' }, { runId: 'b' }]);
    const [c, ...more] = await other.notices.take(take);
    expect([c, more]).toMatchObject([{ runId: 'c', attempts: 1 }, []]);
    await other.notices.remove(c!.id);
    await one.notices.postpone(a!.id, 9_000);
    expect(await other.notices.nextDue()).toBe(6_000);
    expect(await other.notices.take({ ...take, now: 6_000, until: 7_000 })).toMatchObject([
      { runId: 'b', attempts: 2 },
    ]);
    expect(await other.notices.take({ ...take, now: 9_000, until: 9_500 })).toMatchObject([
      { id: a!.id },
      { id: b!.id },
    ]);
    await one.notices.remove(a!.id);
    await one.notices.remove(b!.id);
    expect(await one.notices.nextDue()).toBeUndefined();
  });

  test('listeners of notices and of all runs are told of those of other stores', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    one.notices.enable(ENDS);
    const told = new Promise<void>((resolve) => void other.notices.watch(resolve));
    const changed = new Promise<void>((resolve) => void other.watchRuns(resolve));
    await one.append('run', [startEntry('run'), entry(1, '', 'completed')]);
    await Promise.all([told, changed]);
  });

  test('old notices are deleted, and all but the newest', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    store.notices.enable(ENDS);
    for (let at = 1; at <= 5; at++) {
      await store.append(`${at}`, [startEntry(`${at}`), entryAt(at)]);
    }
    expect(await store.notices.prune(2, 10)).toBe(1);
    expect(await store.notices.prune(0, 2)).toBe(2);
    expect(await store.notices.take(take)).toMatchObject([{ runId: '4' }, { runId: '5' }]);
  });
}
