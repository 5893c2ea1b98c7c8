import { setImmediate as nextTurn } from 'node:timers/promises';
import { userText } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { entries, entry, startedWith } from '../entries.ts';
import type { TempStores } from './temp-stores.ts';

/** Counts the turns of the event loop during `work`. */
async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0;
  let done = false;
  const counting = (async () => {
    for (; !done; turns++) await nextTurn();
  })();
  await work();
  done = true;
  await counting;
  return turns;
}

export function pagesContract(tempStore: () => Promise<TempStores>): void {
  const COUNT = 1_700;

  test('reading a long run lets the event loop turn between pages', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('long', entries(COUNT));
    expect(await turnsDuring(() => store.read('long'))).toBeGreaterThanOrEqual(3);
    expect(await turnsDuring(() => store.read('long', COUNT))).toBeGreaterThanOrEqual(3);
  });

  describe('a run with a large input', () => {
    const input = Array.from({ length: 8 }, (_, n) => userText(`${n}, é`.repeat(80_000)));
    const all = [startedWith(input), entry(1), entry(2)];

    test('is read in several turns of the event loop', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.append('a', all);
      expect(await turnsDuring(() => store.read('a'))).toBeGreaterThanOrEqual(3);
      expect(await store.read('a')).toEqual(all);
      expect(await store.read('a', 1)).toEqual(all.slice(1));
      expect(await store.readPage('a', 0)).toEqual(all.slice(0, 1));
    });

    test('is read correctly if the entry has an equal list before the input', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      const [{ event, ...others }] = [startedWith(input)];
      const twice = { ...others, event: { copy: input.map((one) => structuredClone(one)), ...event } };
      await store.append('a', [twice]);
      expect(await store.read('a')).toEqual([twice]);
    });
  });

  test('finds the entries with a value of a field, without reading them', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const all = entries(503).map((one, seq) => ({
      ...one,
      ...(seq % 500 === 2 && { value: { effect: 't1.tool.1', text: 'x'.repeat(600) } }),
      ...(seq === 7 && { value: { effect: 't1.tool.10', text: '"effect":"t1.tool.1"' } }),
    }));
    await store.append('a', all);
    expect(await store.entriesWith('a', 'effect', 't1.tool.1')).toEqual([2, 502]);
    expect(await store.entriesWith('a', 'effect', 't2.tool.1')).toEqual([]);
    expect(await store.entriesWith('b', 'effect', 't1.tool.1')).toEqual([]);
  });

  test('a page ends earlier if its entries are long', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const long = Array.from({ length: 60 }, (_, seq) => entry(seq, 'x'.repeat(100_000)));
    await store.append('long', long);
    expect(await turnsDuring(() => store.read('long'))).toBeGreaterThanOrEqual(5);
    expect(await store.read('long')).toEqual(long);
  });

  test('reads every part of a run of several pages', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const first = startedWith(
      entries(20).map((_, n) => ({ role: 'user', content: [{ type: 'text', text: `${n}`.repeat(99) }] })),
    );
    const all = [first, ...entries(COUNT).slice(1)];
    await store.append('long', all);
    for (const count of [1, 499, 500, 501, 502, 1_000, 1_001, 1_499, 1_503]) {
      await store.append(`run ${count}`, all.slice(0, count));
      expect(await store.read(`run ${count}`)).toEqual(all.slice(0, count));
    }
    for (const from of [0, 1, 499, 500, 501, 1_000, COUNT - 1, COUNT, COUNT + 1]) {
      expect(await store.read('long', from)).toEqual(all.slice(from));
    }
  });

  describe('while a long run is read', () => {
    test('entries that are appended are in the result up to one moment', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.append('long', entries(COUNT));
      const reading = store.read('long');
      const more = Array.from({ length: 600 }, (_, n) => entry(COUNT + n));
      await Promise.all([store.append('long', more.slice(0, 1)), store.append('long', more.slice(1))]);
      const found = await reading;
      // The run as it was at one moment. Which one depends on the store: calls that are not awaited may run at the same time.
      expect([COUNT, COUNT + 1, COUNT + 600]).toContain(found.length);
      expect(found).toEqual([...entries(COUNT), ...more].slice(0, found.length));
      expect(await store.read('long')).toHaveLength(COUNT + 600);
    });

    test('it can be deleted: the result is the whole run, or empty', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.append('long', entries(COUNT));
      const reading = store.read('long');
      await store.delete('long');
      expect([[], entries(COUNT)]).toContainEqual(await reading);
    });

    test.each([3, 400, COUNT, COUNT + 500])(
      'it can be replaced by another run with the same id and %i entries: the result is one of them, or empty',
      async (count) => {
        await using temp = await tempStore();
        const store = await temp.open();
        await store.append('long', entries(COUNT));
        const reading = store.read('long');
        const others = Array.from({ length: count }, (_, seq) => entry(seq, `other ${seq}`));
        await store.delete('long');
        await store.append('long', others);
        expect([[], entries(COUNT), others]).toContainEqual(await reading);
        expect(await store.read('long')).toEqual(others);
      },
    );
  });
}
