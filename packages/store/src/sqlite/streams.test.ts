import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';

const event = (n: number): object => ({ type: 'token_delta', n });

test('streams are deleted by name, and those without events since a time', async () => {
  await using temp = tempStore();
  const { streams } = temp.open();
  for (const name of ['a', 'b']) await streams.append(name, 1, [event(1)]);
  await streams.delete('a');
  await streams.delete('never');
  expect([await streams.last('a'), await streams.last('b')]).toEqual([0, 1]);
  expect(await streams.prune(Date.now() - 60_000)).toBe(0);
  expect(await streams.prune(Date.now() + 60_000)).toBe(1);
  expect(temp.raw().prepare('SELECT count(*) AS rows FROM stream_events').get()).toEqual({ rows: 0 });
});

test('a damaged event is reported', async () => {
  await using temp = tempStore();
  const { streams } = temp.open();
  await streams.append('conv', 1, [event(1)]);
  temp.raw().exec(`UPDATE stream_events SET events = replace(events, '1', '2')`);
  await expect(streams.read('conv', 0)).rejects.toThrow('Event 1 of stream "conv" is damaged');
});

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
