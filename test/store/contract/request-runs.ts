import type { JournalEntry } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { entries, entry, response } from '../entries.ts';
import { DEAD, type TempStores } from './temp-stores.ts';

/** Requests with their runs, and those of several processes. */
export function requestRunsContract(tempStore: () => Promise<TempStores>): void {
  const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });
  const DONE = { status: 'completed', response: { output: ['Four.'] }, at: 2_000 } as const;

  /** The first entry of a child run, or of a fork. */
  function startedFor(
    runId: string,
    status?: JournalEntry['status'],
    origin: object = { effect: 't1.tool.0' },
  ): JournalEntry {
    const event = { type: 'run-started', at: 1_000, model: 'm', input: [], parent: { runId, ...origin } };
    return { ...entry(0, '', status), event: event as unknown as JournalEntry['event'] };
  }

  describe('a response and its run', () => {
    test('are deleted together, with the child runs and all that is stored for them', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      for (const id of ['resp', 'other']) {
        await store.requests.create(response(id));
        await store.append(id, entries(3));
        await store.append(`${id}.t1.tool.0`, [startedFor(id)]);
        await store.append(`${id}.t1.tool.0.t2.tool.1`, [startedFor(`${id}.t1.tool.0`)]);
        await store.append(`${id}.what-if`, [startedFor(id, undefined, { seq: 0 })]);
        await store.writeSnapshot(id, { seq: 1, state: {} });
        await store.blobs.put(`${id}.t1.tool.0`, `long of ${id}`);
      }
      expect(await store.requests.delete('acme', 'resp')).toBe(true);
      expect(await store.requests.delete('acme', 'resp')).toBe(false);
      expect(await store.requests.get('acme', 'resp')).toBeUndefined();
      expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual([
        'other',
        'other.t1.tool.0',
        'other.t1.tool.0.t2.tool.1',
        'other.what-if',
        'resp.what-if',
      ]);
      for (const table of ['requests', 'snapshots', 'blobs', 'blob_parts', 'blob_runs']) {
        expect(await temp.count(table)).toBe(1);
      }
    });

    test.each(['delete', 'prune'] as const)(
      'are deleted without forks by %s, whatever the forks are called, also if an entry is damaged',
      async (how) => {
        await using temp = await tempStore();
        const store = await temp.open();
        const forked = (runId: string): JournalEntry => startedFor(runId, 'completed', { seq: 0 });
        await store.requests.create(response('resp', { status: 'completed' }));
        await store.append('resp', [entry(0, '', 'completed')]);
        await store.append('resp.t1', [forked('resp')]);
        await store.append('resp.t1.t2.tool.0', [startedFor('resp.t1', 'completed')]);
        await store.append('resp.t1.tool.0', [startedFor('resp', 'completed')]);
        await store.append('resp.t1.tool.0.what-if', [forked('resp.t1.tool.0')]);
        await temp.exec(
          `UPDATE entries SET entry = '{' WHERE run = (SELECT id FROM runs WHERE run = 'resp.t1.tool.0')`,
        );
        await expect(store.read('resp.t1.tool.0')).rejects.toEqual(code('journal-damaged'));
        if (how === 'delete') expect(await store.requests.delete('acme', 'resp')).toBe(true);
        else expect(await store.requests.prune(Infinity)).toBe(1);
        const remaining = (await store.list()).map(({ runId }) => runId);
        expect(remaining.toSorted()).toEqual(['resp.t1', 'resp.t1.t2.tool.0', 'resp.t1.tool.0.what-if']);
      },
    );

    test('are not deleted partially when the deletion fails', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp'));
      await store.append('resp', entries(3));
      const kept = await temp.keepResponse('resp');
      await expect(store.requests.delete('acme', 'resp')).rejects.toMatchObject({ code: 'store-failed' });
      expect(await store.read('resp')).toHaveLength(3);
      await kept();
      expect(await store.requests.delete('acme', 'resp')).toBe(true);
      expect(await store.read('resp')).toEqual([]);
    });

    test('can be deleted, pruned and expire when their driver is dead', async () => {
      await using temp = await tempStore();
      const dead = await temp.open({ holder: DEAD });
      const store = await temp.open();
      for (const id of ['one', 'two', 'three']) {
        await dead.requests.create(response(id, { status: 'failed', ...(id === 'two' && { expiresAt: 5_000 }) }));
        await dead.append(id, [entry(0)], await dead.acquire(id));
      }
      expect(await store.requests.delete('acme', 'one')).toBe(true);
      expect(await store.requests.pruneExpired(5_000)).toBe(1);
      expect(await store.requests.prune(Infinity)).toBe(1);
      expect(await store.list()).toEqual([]);
    });
  });

  test('a response that has paused is reopened once, by one of those who try', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    await one.requests.create(response('resp', { status: 'requires_action', response: { paused: true } }));
    const reopening = { from: 'requires_action', response: { open: true }, at: 3_000 };
    const both = await Promise.all([one, other].map(({ requests }) => requests.reopen('resp', reopening)));
    expect(both.toSorted()).toEqual([false, true]);
    expect(await other.requests.get('acme', 'resp')).toMatchObject({ status: 'in_progress', response: { open: true } });
    expect(await one.requests.reopen('none', reopening)).toBe(false);
  });

  describe('prune', () => {
    test('deletes more than one batch and skips driven responses', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      const ids = Array.from({ length: 130 }, (_, i) => `resp ${i}`);
      await Promise.all(ids.map((id) => store.requests.create(response(id, { status: 'completed' }))));
      await Promise.all(ids.slice(0, 20).map((id) => store.acquire(id)));
      expect(await store.requests.prune(5_000)).toBe(110);
      expect(await temp.count('requests')).toBe(20);
    });

    test('compares the time of the last update', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp'));
      await store.append('resp', [entry(0, '', 'completed')]);
      await store.requests.finish('resp', { ...DONE, at: 7_000 });
      expect(await store.requests.prune(7_000)).toBe(0);
      expect(await store.requests.prune(7_001)).toBe(1);
    });
  });

  test('of several processes that create the same response, or one with the same key, one does', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open(), await temp.open()];
    for (let round = 0; round < 5; round++) {
      const key = { key: `k${round}`, digest: 'sha', expiresAt: 5_000 };
      for (const create of [
        ({ requests }: (typeof stores)[0]) => requests.create(response(`same ${round}`)),
        ({ requests }: (typeof stores)[0], index: number) => requests.create(response(`${round}.${index}`), key),
      ]) {
        const created = await Promise.allSettled(stores.map(create));
        const refused = created.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
        expect(refused).toEqual([code('run-exists'), code('run-exists')]);
      }
    }
    expect(await stores[0]!.requests.unfinished()).toHaveLength(10);
  });

  test('of two processes that finish a response at once, one does, and one that deletes it leaves nothing', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const ending = (output: string) => ({ ...DONE, response: { output: output.repeat(600) } });
    for (let round = 0; round < 5; round++) {
      const id = `resp ${round}`;
      await one.requests.create(response(id));
      const finished = await Promise.all([
        one.requests.finish(id, ending('one ')),
        other.requests.finish(id, ending('two ')),
      ]);
      expect(finished.toSorted()).toEqual([false, true]);
      const winner = ending(finished[0] ? 'one ' : 'two ');
      expect(await other.requests.get('acme', id)).toMatchObject({ response: winner.response });
      const again = { ...ending('three '), from: DONE.status, status: 'failed' };
      const [isChanged, isDeleted] = await Promise.all([
        one.requests.finish(id, again),
        other.requests.delete('acme', id),
      ]);
      expect([typeof isChanged, isDeleted]).toEqual(['boolean', true]);
      expect(await one.requests.get('acme', id)).toBeUndefined();
      expect([await temp.count('texts'), await temp.count('text_uses')]).toEqual([0, 0]);
    }
  });

  test('every method of a closed store rejects with an error that says so', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.close();
    const { requests } = store;
    for (const call of [
      () => requests.create(response('resp')),
      () => requests.finish('resp', DONE),
      () => requests.get('acme', 'resp'),
      () => requests.delete('acme', 'resp'),
      () => requests.unfinished(),
      () => requests.prune(Infinity),
      () => requests.hasRun('resp'),
    ]) {
      await expect(call()).rejects.toEqual(code('store-failed'));
      await expect(call()).rejects.toThrow(/^The store \S+ is closed\. Open it again\.$/);
    }
  });
}
