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
