import { fork } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';

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
