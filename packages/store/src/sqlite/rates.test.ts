import { fork } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';

// What holds on every store is in `test/store/contract/accounts.ts`. Here: processes that share a file.

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
