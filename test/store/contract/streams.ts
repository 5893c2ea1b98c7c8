import { expect, test } from 'vitest';
import { entry } from '../entries.ts';
import type { TempStores } from './temp-stores.ts';

export function streamsContract(tempStore: () => Promise<TempStores>): void {
  const event = (n: number): object => ({ type: 'token_delta', n });

  test('numbered events are read after any number, also by another store on the file', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    expect(await streams.last('conv')).toBe(0);
    expect(await streams.read('conv', 0)).toEqual([]);
    await streams.append('conv', 1, [event(1), event(2), event(3)]);
    await streams.append('conv', 4, [event(4)]);
    await streams.append('other', 1, [event(9)]);
    const other = (await temp.open()).streams;
    const all = [1, 2, 3, 4].map((seq) => ({ seq, event: event(seq) }));
    for (const store of [streams, other]) {
      for (const after of [0, 1, 2, 3, 4, 9]) expect(await store.read('conv', after)).toEqual(all.slice(after));
      expect(await store.last('conv')).toBe(4);
    }
  });

  test('a number is used once, and numbers may be left out', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    await streams.append('conv', 3, [event(3)]);
    await expect(streams.append('conv', 3, [event(0)])).rejects.toMatchObject({ code: 'run-exists' });
    await expect(streams.append('conv', 0, [event(0)])).rejects.toMatchObject({ code: 'invalid-input' });
    await streams.append('conv', 8, []);
    await expect(streams.append('conv', 7, [event(0)])).rejects.toMatchObject({ code: 'run-exists' });
    await streams.append('conv', 8, [event(8)]);
    expect(await streams.read('conv', 0)).toEqual([3, 8].map((seq) => ({ seq, event: event(seq) })));
  });

  test('a driver that has lost its lease appends nothing', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const lease = await store.acquire('run');
    await store.streams.append('conv', 1, [event(1)], lease);
    await store.releaseRun('run', { force: true });
    const next = await store.acquire('run');
    await expect(store.streams.append('conv', 2, [event(0)], lease)).rejects.toMatchObject({ code: 'lease-lost' });
    await store.streams.append('conv', 2, [event(2)], next);
    expect(await store.streams.last('conv')).toBe(2);
  });

  test('streams are deleted by name, and those without events since a time', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    for (const name of ['a', 'b']) await streams.append(name, 1, [event(1)]);
    await streams.delete('a');
    await streams.delete('never');
    expect([await streams.last('a'), await streams.last('b')]).toEqual([0, 1]);
    expect(await streams.prune(Date.now() - 60_000)).toBe(0);
    expect(await streams.prune(Date.now() + 60_000)).toBe(1);
    expect(await temp.count('stream_events')).toBe(0);
  });

  test('a damaged event is reported', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    await streams.append('conv', 1, [event(1)]);
    await temp.exec(`UPDATE stream_events SET events = replace(events, '1', '2')`);
    await expect(streams.read('conv', 0)).rejects.toThrow('Event 1 of stream "conv" is damaged');
  });

  test('a long stream is read in pages', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    const text = 'x'.repeat(100_000);
    for (let seq = 1; seq <= 7; seq++) await streams.append('conv', seq, [{ text }]);
    const sizes: number[] = [];
    for (let after = 0; ;) {
      const page = await streams.read('conv', after);
      if (page.length === 0) break;
      sizes.push(page.length);
      after = page.at(-1)!.seq;
    }
    expect(sizes).toEqual([3, 3, 1]);
  });

  test('listeners are called for appends of this store and of others, until they stop', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    let calls = 0;
    const called = (): Promise<void> =>
      new Promise((resolve) => {
        const stop = one.streams.watch('conv', () => {
          calls++;
          stop();
          resolve();
        });
      });
    const own = called();
    await one.streams.append('conv', 1, [event(1)]);
    await own;
    const foreign = called();
    await other.streams.append('conv', 2, [event(2)]);
    await foreign;
    await one.streams.append('conv', 3, [event(3)]);
    expect(calls).toBe(2);
    for (const store of [one, other]) {
      const deleted = called();
      await store.streams.delete('conv');
      await deleted;
      await store.streams.append('conv', 1, [event(1)]);
    }
    const run = new Promise<void>((resolve) => void one.watch('run', resolve));
    await other.append('run', [entry(0)]);
    await run;
  });

  test('a commit of another process calls the listeners of what it has written', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const called: string[] = [];
    const next = new Map<string, () => void>();
    const watch = (name: string): Promise<void> => new Promise((resolve) => void next.set(name, resolve));
    for (const name of ['first', 'second']) {
      one.streams.watch(name, () => {
        called.push(name);
        next.get(name)?.();
      });
    }
    const both = [watch('first'), watch('second')];
    await other.streams.append('first', 1, [event(1)]);
    await other.streams.append('second', 1, [event(1)]);
    await Promise.all(both);
    // Listeners may be called without cause, but not each time.
    for (let number = 2; called.includes('first'); number++) {
      called.length = 0;
      const again = watch('second');
      await other.streams.append('second', number, [event(number)]);
      await again;
    }
  });

  test('many listeners are called in several turns of the event loop', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    const perTurn = [0];
    const nextTurn = (): void => {
      perTurn.push(0);
      ticking = setImmediate(nextTurn);
    };
    let ticking = setImmediate(nextTurn);
    await new Promise<void>((resolve) => {
      for (let n = 0; n < 120; n++) {
        streams.watch('conv', () => {
          perTurn[perTurn.length - 1]! += 1;
          if (perTurn.reduce((sum, count) => sum + count) === 120) resolve();
        });
      }
      void streams.append('conv', 1, [event(1)]);
    });
    clearImmediate(ticking);
    expect(Math.max(...perTurn)).toBe(50);
  });
}
