import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';

// What holds on every store is in `test/store/contract/streams.ts`. Here: listeners of the same process are called at once.

const event = (n: number): object => ({ type: 'token_delta', n });

test('120 listeners are called in three turns of the event loop', async () => {
  await using temp = tempStore();
  const { streams } = temp.open();
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
  expect(perTurn.filter((count) => count > 0)).toEqual([50, 50, 20]);
});
