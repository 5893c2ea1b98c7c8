import { fork } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';

test('returns the latest calls before, also to another process, and forgets those that are older than a minute', async () => {
  await using temp = tempStore();
  const first = temp.open();
  expect(await first.rates.add('ann', 1_000, 2, 3)).toEqual([]);
  expect(await first.rates.add('ann', 2_000, 2, 3)).toEqual([1_000, 1_000]);
  expect(await first.rates.add('bob', 2_000, 1, 3)).toEqual([]);
  await first.close();
  const second = temp.open();
  expect(await second.rates.add('ann', 61_500, 1, 3)).toEqual([1_000, 2_000, 2_000]);
  expect(await second.rates.add('ann', 61_600, 0, 3)).toEqual([2_000, 2_000, 61_500]);
});

test('subjects without calls for an hour are removed', async () => {
  await using temp = tempStore();
  const { rates } = temp.open();
  await rates.add('ann', 0, 1, 3);
  await rates.add('bob', 3_600_001, 1, 3);
  expect(temp.raw().prepare('SELECT subject FROM rates').all()).toEqual([{ subject: 'bob' }]);
});

test('several processes share the rate of a subject, and never exceed it', async () => {
  await using temp = tempStore();
  temp.open();
  const main = new URL('../../test/caller-main.ts', import.meta.url);
  const allowed = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const child = fork(main, [temp.file], { execArgv: ['--conditions=treadle-source'] });
      const [[count]] = (await Promise.all([once(child, 'message'), once(child, 'exit')])) as [[number], unknown];
      return count;
    }),
  );
  expect(allowed.reduce((sum, count) => sum + count, 0)).toBe(50);
});
