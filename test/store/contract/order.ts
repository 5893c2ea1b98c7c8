import { describe, expect, test } from 'vitest';
import { entries, entry, response } from '../entries.ts';
import type { TempStores } from './temp-stores.ts';

/** What `Store` promises about calls that are not awaited. */
export function orderContract(tempStore: () => Promise<TempStores>): void {
  const DONE = { status: 'completed', response: { output: ['Four.'] }, at: 2_000 } as const;

  describe('writes of one tick are performed in the order of the calls', () => {
    test.each(['nothing', 'an accepted entry'])('before them %s', async (before) => {
      await using temp = await tempStore();
      const { requests, acquire, append } = await temp.open();
      for (let n = 0; n < 5; n++) {
        const id = `resp ${n}`;
        await requests.create(response(id));
        const lease = await acquire(`run ${n}`);
        const accepted = before === 'nothing' ? undefined : append(`run ${n}`, [entry(0)], lease, 'accepted');
        const paused = requests.finish(id, { ...DONE, status: 'requires_action' });
        const completed = requests.finish(id, DONE);
        const deleted = requests.delete('acme', id);
        const late = requests.finish(id, { ...DONE, from: 'requires_action' });
        expect(await Promise.all([paused, completed, deleted, late])).toEqual([true, false, true, false]);
        await accepted;
        await lease.release();
      }
    });

    test('of a request, a conversation and a stream', async () => {
      await using temp = await tempStore();
      const { requests, conversations, streams } = await temp.open();
      const conversation = { id: 'c', tenant: 'acme', title: 'One', createdAt: 1 };
      const settled = await Promise.all([
        requests.create(response('resp')),
        conversations.create(conversation),
        streams.append('c', 1, [{ n: 1 }]),
        conversations.rename('acme', 'c', 'Two', { ifTitle: 'One' }),
        streams.append('c', 2, [{ n: 2 }, { n: 3 }]),
        conversations.rename('acme', 'c', 'Three', { ifTitle: 'Two' }),
        streams.append('c', 4, [{ n: 4 }]),
        requests.finish('resp', DONE),
        requests.delete('acme', 'resp'),
      ]);
      expect(settled.filter((value) => value === false)).toEqual([]);
      expect((await conversations.get('acme', 'c'))!.title).toBe('Three');
      expect((await streams.read('c', 0)).map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
      expect(await requests.get('acme', 'resp')).toBeUndefined();
    });
  });

  describe('writes that belong together', () => {
    test('are one transaction: nobody else writes in between', async () => {
      await using temp = await tempStore();
      const stores = [await temp.open(), await temp.open()];
      const { conversations, requests } = stores[0]!;
      await conversations.create({ id: 'c', tenant: 'acme', title: '', createdAt: 1 });
      let head: string | undefined;
      for (let n = 0; n < 20; n++) {
        const given = { ...(head !== undefined && { head }), text: '', at: n };
        const key = { key: `key ${n}`, digest: 'd', expiresAt: 9e12 };
        const settled = await Promise.all(
          stores.map(({ together, ...store }, place) => {
            const id = `resp ${n} ${place}`;
            return together(() =>
              Promise.allSettled([
                store.conversations.extend('c', { ...given, response: id }),
                store.requests.create(response(id), key),
              ]),
            );
          }),
        );
        const first = settled.findIndex(([extended]) => extended.status === 'fulfilled' && extended.value);
        expect(settled[first]![1]).toMatchObject({ status: 'fulfilled' });
        expect(settled[1 - first]).toMatchObject([
          { status: 'fulfilled', value: false },
          { status: 'rejected', reason: { code: 'run-exists' } },
        ]);
        head = `resp ${n} ${first}`;
        expect(await requests.findKey('acme', `key ${n}`, n)).toMatchObject({ response: head });
      }
    });

    test('are written without one that is refused', async () => {
      await using temp = await tempStore();
      const { together, conversations, requests } = await temp.open();
      const conversation = { id: 'c', tenant: 'acme', title: 'One', createdAt: 1 };
      await conversations.create(conversation);
      const settled = await together(() =>
        Promise.allSettled([
          conversations.create(conversation),
          conversations.rename('acme', 'c', 'Two'),
          requests.create({ ...response('resp'), id: '' }),
          requests.create(response('resp')),
        ]),
      );
      const refused = (code: string): object => ({ status: 'rejected', reason: { code } });
      expect(settled).toMatchObject([
        refused('run-exists'),
        { status: 'fulfilled', value: true },
        refused('invalid-input'),
        { status: 'fulfilled' },
      ]);
      expect((await conversations.get('acme', 'c'))!.title).toBe('Two');
      expect(await requests.get('acme', 'resp')).toEqual(response('resp'));
    });
  });

  test('what is stored for a run, and its deletion, come after the entries that were appended before', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const [, id] = await Promise.all([store.append('a', [entry(0)]), store.blobs.put('a', 'text')]);
    expect(await store.blobs.read('a', id, 0, 9)).toEqual({ text: 'text', length: 4 });
    await Promise.all([store.append('a', [entry(1)]), store.writeSnapshot('a', { seq: 2, state: {} })]);
    expect(await store.readSnapshot('a')).toEqual({ seq: 2, state: {} });
    const [, isDeleted] = await Promise.all([store.append('b', [entry(0)]), store.delete('b')]);
    expect([isDeleted, await store.read('b')]).toEqual([true, []]);
  });

  test('what has resolved is seen by every later call, also of other stores', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    for (let n = 0; n < 5; n++) {
      await Promise.all([
        one.append(`run ${n}`, [entry(0)], undefined, 'written'),
        one.requests.create(response(`${n}`)),
      ]);
      const seen = await Promise.all(
        [one, other].flatMap((store) => [store.read(`run ${n}`), store.requests.unfinished()]),
      );
      expect(seen.map(({ length }) => length)).toEqual([1, n + 1, 1, n + 1]);
    }
    await other.durable();
  });

  test('a read sees a write that has not resolved completely or not at all', async () => {
    await using temp = await tempStore();
    const { requests } = await temp.open();
    await requests.create(response('resp'));
    const [, read] = await Promise.all([requests.finish('resp', DONE), requests.get('acme', 'resp')]);
    const ended = { ...response('resp'), status: 'completed', updatedAt: 2_000, response: DONE.response };
    expect([response('resp'), ended]).toContainEqual(read);
    expect(await requests.get('acme', 'resp')).toEqual(ended);
  });

  test('closing a store performs the reads that have begun, and calls no listener after that', async () => {
    await using temp = await tempStore();
    const [store, other] = [await temp.open(), await temp.open()];
    await store.append('a', entries(1_200));
    const told: string[] = [];
    store.watch('a', () => void told.push('a'));
    const reads = Array.from({ length: 12 }, () =>
      Promise.all([store.read('a'), store.list(), store.readPage('a', 0)]),
    );
    const unawaited = store.append('a', [entry(1_200)]);
    const closed = store.close();
    for (const [read, listed] of await Promise.all(reads)) {
      expect(read.length).toBeGreaterThanOrEqual(1_200);
      expect(listed).toHaveLength(1);
    }
    await Promise.all([unawaited, closed]);
    expect(told).toEqual([]);
    expect(await other.read('a')).toEqual(entries(1_201));
  });
}
