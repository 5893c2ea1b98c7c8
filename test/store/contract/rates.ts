import { expect, test } from 'vitest';
import type { TempStores } from './temp-stores.ts';

export function ratesContract(tempStore: () => Promise<TempStores>): void {
  test('returns the latest calls before, also to another process, and forgets those that are older than a minute', async () => {
    await using temp = await tempStore();
    const first = await temp.open();
    expect(await first.rates.add('ann', 1_000, 2, 3)).toEqual([]);
    expect(await first.rates.add('ann', 2_000, 2, 3)).toEqual([1_000, 1_000]);
    expect(await first.rates.add('bob', 2_000, 1, 3)).toEqual([]);
    await first.close();
    const second = await temp.open();
    expect(await second.rates.add('ann', 61_500, 1, 3)).toEqual([1_000, 2_000, 2_000]);
    expect(await second.rates.add('ann', 61_600, 0, 3)).toEqual([2_000, 2_000, 61_500]);
  });
}
