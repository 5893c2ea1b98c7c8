import { expect, test } from 'vitest';
import type { TempStores } from './temp-stores.ts';

export function quotasContract(tempStore: () => Promise<TempStores>): void {
  test('requests of a minute are taken once, by whichever process, until none is left', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open()];
    const takes = await Promise.all(
      Array.from({ length: 40 }, (_, at) => stores[at % 2]!.quotas.takeRequests({ id: 'a', perMinute: 20, count: 2 })),
    );
    // Some are refilled if it takes seconds.
    const taken = takes.reduce((sum, { count }) => sum + count, 0);
    expect(taken).toBeGreaterThanOrEqual(20);
    expect(taken).toBeLessThan(30);
    const refused = await stores[0]!.quotas.takeRequests({ id: 'a', perMinute: 20, count: 0 });
    expect(refused.count).toBe(0);
    expect(await stores[1]!.quotas.takeRequests({ id: 'b\0\ud800', perMinute: 20, count: 1 })).toMatchObject({
      count: 1,
      remaining: 19,
      retryMs: 0,
    });
  });

  test('one process takes a part of what is left, and gives back what it has not used', async () => {
    await using temp = await tempStore();
    const { quotas } = await temp.open();
    const [id, perMinute] = ['a', 6_000_000];
    const taken = await quotas.takeRequests({ id, perMinute, count: perMinute });
    expect(taken).toMatchObject({ count: perMinute / 4, remaining: (perMinute * 3) / 4 });
    expect(await quotas.takeRequests({ id, perMinute, count: 0, unused: taken.count })).toMatchObject({
      count: 0,
      remaining: perMinute,
    });
  });

  test('slots are had by one process at a time, and are free again if it does not ask for them', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const take = (holder: string, count: number): Promise<number> =>
      (holder === 'one' ? one : other).quotas.takeSlots({ id: 'a', holder, max: 3, count });
    expect(await take('one', 2)).toBe(2);
    expect(await take('other', 2)).toBe(1);
    expect(await take('one', 3)).toBe(2);
    expect(await take('one', 0)).toBe(0);
    expect(await take('other', 5)).toBe(3);
    expect(await take('one', 1)).toBe(0);
  });
}
