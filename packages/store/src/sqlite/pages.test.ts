import { setImmediate as nextTurn } from 'node:timers/promises';
import { userText, type RunSummary } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { entries, entry, startedWith } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';

// What holds on every store is in `test/store/contract/pages.ts`. Here: pages are transactions that take turns, damage in the tables of
// SQLite, and the order of all calls, which is stricter than a store has to keep.

const COUNT = 1_700;

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

test('entries that are appended while a long run is read are not part of the result', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('long', entries(COUNT));
  const reading = store.read('long');
  const more = Array.from({ length: 600 }, (_, n) => entry(COUNT + n));
  await Promise.all([store.append('long', more.slice(0, 1)), store.append('long', more.slice(1))]);
  expect(await reading).toEqual(entries(COUNT));
});

describe('a run with a large input', () => {
  const input = Array.from({ length: 8 }, (_, n) => userText(`${n}, é`.repeat(80_000)));
  const all = [startedWith(input), entry(1), entry(2)];

  test('is read in turns of the event loop that concurrent reads do not share', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', all);
    const turns = await turnsDuring(() => store.read('a'));
    const both = await turnsDuring(() => Promise.all([store.read('a'), store.read('a')]));
    expect(both).toBeGreaterThanOrEqual(2 * turns - 2);
  });

  test.each(["UPDATE messages SET text = '{}' WHERE id = 3", 'DELETE FROM texts WHERE id = 5'])(
    'is damaged after %s',
    async (change) => {
      await using temp = tempStore();
      const store = temp.open();
      await store.append('a', all);
      temp.raw().exec(change);
      await expect(store.read('a')).rejects.toThrow('Entry 0 of run "a" is damaged');
      await expect(store.read('a', 1)).rejects.toThrow('Entry 0 of run "a" is damaged');
    },
  );
});

test('searching many runs lets the event loop turn, and finds the same as at once', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('seed', [entry(0)]);
  // Two runs start at the same time, also where a slice ends.
  temp.raw().exec(`
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
    INSERT INTO runs (run, status, started_at, updated_at, entries, model, title, last_chain)
    SELECT 'r' || i, iif(i % 9, 'completed', 'failed'), i / 2, 0, 0, 'm' || (i % 7), 'Title ' || i, 0 FROM n`);
  let found: readonly RunSummary[] = [];
  const turns = await turnsDuring(async () => (found = await store.list({ title: 'TITLE 12', limit: Infinity })));
  expect(turns).toBeGreaterThanOrEqual(3);
  const ids = entries(2_500)
    .map((_, n) => 2_500 - n)
    .filter((n) => `${n}`.startsWith('12'));
  expect(found.map(({ runId }) => runId)).toEqual(ids.map((n) => `r${n}`));
  const [first, second] = ids.filter((n) => n % 7 === 1);
  const page = await store.list({ title: 'title 12', model: 'm1', limit: 1 });
  expect(page.map(({ runId }) => runId)).toEqual([`r${first}`]);
  const next = await store.list({ title: 'title 12', model: 'm1', limit: 1, after: page[0]! });
  expect(next.map(({ runId }) => runId)).toEqual([`r${second}`]);
  expect(await store.list({ model: 'none' })).toEqual([]);
});

test.each([
  ['DELETE FROM entries WHERE seq = 500', 500, 'is missing'],
  ['DELETE FROM entries WHERE seq = 501', 501, 'is missing'],
  ['DELETE FROM entries WHERE seq >= 1000', 1_000, 'is missing'],
  [`DELETE FROM entries WHERE seq = ${COUNT - 1}`, COUNT - 1, 'is missing'],
  ["UPDATE entries SET entry = replace(entry, 'entry 5', 'Entry 5') WHERE seq = 501", 501, 'is damaged'],
  ['UPDATE entries SET chain = chain + 1 WHERE seq = 1200', 1_200, 'is damaged'],
  ['UPDATE runs SET last_chain = 1', COUNT - 1, 'does not match the sum of the run'],
  ['UPDATE runs SET entries = 1000', 1_000, 'is not in the count of entries'],
  ['UPDATE runs SET entries = 2000', COUNT, 'is missing'],
  ['UPDATE runs SET entries = -1', -1, 'does not match the sum of the run'],
  [`INSERT INTO entries SELECT run, 5000, entry, chain FROM entries WHERE seq = 3`, COUNT, 'is not in the count'],
])('finds damage on any page: %s', async (damage, seq, problem) => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('long', entries(COUNT));
  temp.raw().exec(damage);
  for (const from of [0, 400, COUNT]) {
    await expect(store.read('long', from)).rejects.toThrow(`Entry ${seq} of run "long" ${problem}`);
  }
});

test('a run that is deleted while it is read is empty', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('long', entries(COUNT));
  const reading = store.read('long');
  await store.delete('long');
  expect(await reading).toEqual([]);
});

test.each([3, 400, COUNT, COUNT + 500])(
  'a run that is replaced, while it is read, by another one with the same id and %i entries is read again',
  async (count) => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('long', entries(COUNT));
    const reading = store.read('long');
    const others = Array.from({ length: count }, (_, seq) => entry(seq, `other ${seq}`));
    await Promise.all([store.delete('long'), store.append('long', others)]);
    expect(await reading).toEqual(others);
  },
);
