import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { churnMap, churnSet } from './churn.ts';

test('is a map: keeps the last value of each key, in the order in which the keys were added', () => {
  const map = churnMap<string, number>();
  map.set('a', 1);
  map.set('b', 2);
  map.set('a', 3);
  expect([...map]).toEqual([
    ['a', 3],
    ['b', 2],
  ]);
  expect([map.size, map.get('a'), map.has('b'), map.get('c'), map.has('c')]).toEqual([2, 3, true, undefined, false]);
  expect([map.delete('a'), map.delete('a'), map.get('a'), map.size]).toEqual([true, false, undefined, 1]);
  expect([[...map.keys()], [...map.values()]]).toEqual([['b'], [2]]);
});

test('is a set: holds a value as often as it was added, and each removal removes one', () => {
  const set = churnSet<string>();
  const removeFirst = set.add('a');
  const removeSecond = set.add('a');
  removeFirst();
  removeFirst();
  expect([set.size, [...set]]).toEqual([1, ['a']]);
  removeSecond();
  expect([set.size, [...set]]).toEqual([0, []]);
});

test('skips what is removed while it is iterated over', () => {
  const set = churnSet<number>();
  set.add(1);
  const removeSecond = set.add(2);
  const map = churnMap<string, number>();
  for (const [index, key] of ['a', 'b'].entries()) map.set(key, index);
  const seen: number[] = [];
  for (const value of set) {
    seen.push(value);
    removeSecond();
  }
  for (const [key] of map) {
    seen.push(map.get(key)!);
    map.delete('b');
  }
  expect(seen).toEqual([1, 0]);
});

/** The bytes that are left of many removed values after a collection of the young generation. */
function bytesLeft(add: (value: object, id: string) => () => void): number {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as (options?: { type: 'minor' }) => void;
  const removals: (() => void)[] = [];
  const churn = (times: number): void => {
    for (let i = 0; i < times; i++) {
      removals.push(
        add(
          Array.from({ length: 1_000 }, (_, at) => ({ at })),
          `id-${i}`,
        ),
      );
      if (removals.length > 10) removals.shift()!();
    }
  };
  churn(100);
  // Moves the tables to the old generation.
  gc();
  const before = getHeapStatistics().used_heap_size;
  churn(500);
  gc({ type: 'minor' });
  gc({ type: 'minor' });
  return getHeapStatistics().used_heap_size - before;
}

test('keeps nothing of what was removed alive', () => {
  const map = churnMap<string, object>();
  const set = churnSet<object>();
  const left = [
    bytesLeft((value, id) => {
      map.set(id, value);
      return () => map.delete(id);
    }),
    bytesLeft((value) => set.add(value)),
  ];
  // All values together take 16 MB. A Map keeps about 9 of them.
  for (const bytes of left) expect(bytes).toBeLessThan(2_000_000);
});
