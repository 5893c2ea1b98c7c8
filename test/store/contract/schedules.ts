import { expect, test, vi } from 'vitest';
import type { TempStores } from './temp-stores.ts';

export function schedulesContract(tempStore: () => Promise<TempStores>): void {
  const nightly = { tenant: 'acme', name: 'nightly', definition: { cron: '0 3 * * *' }, state: {}, dueAt: 5_000 };

  test('a schedule is added once, and belongs to its tenant', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const added = await Promise.all([one, other, one].map(({ schedules }) => schedules.add(nightly)));
    expect(added.filter(Boolean)).toHaveLength(1);
    expect(await one.schedules.add({ ...nightly, tenant: 'other', dueAt: 7_000 })).toBe(true);
    expect(await other.schedules.get('acme', 'nightly')).toEqual({ ...nightly, version: expect.any(String) });
    expect(await other.schedules.get('nobody', 'nightly')).toBeUndefined();
    expect((await other.schedules.list()).map(({ tenant, dueAt }) => [tenant, dueAt])).toEqual([
      ['acme', 5_000],
      ['other', 7_000],
    ]);
  });

  test('of those who change what they have read, one succeeds', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open()];
    await stores[0]!.schedules.add(nightly);
    const read = (await stores[0]!.schedules.get('acme', 'nightly'))!;
    const changes = await Promise.all(
      Array.from({ length: 8 }, (_, at) =>
        stores[at % 2]!.schedules.change(read, { ...nightly, state: { by: at }, dueAt: 6_000 + at }),
      ),
    );
    expect(changes.filter(Boolean)).toHaveLength(1);
    const by = changes.indexOf(true);
    const now = (await stores[1]!.schedules.get('acme', 'nightly'))!;
    expect(now).toMatchObject({ state: { by }, dueAt: 6_000 + by });
    expect(now.version).not.toBe(read.version);
    expect(await stores[0]!.schedules.change(now, { definition: 1, state: null })).toBe(true);
    expect(await stores[0]!.schedules.get('acme', 'nightly')).toEqual({
      tenant: 'acme',
      name: 'nightly',
      definition: 1,
      state: null,
      version: expect.any(String),
    });
  });

  test('one that is removed and added again is another one', async () => {
    await using temp = await tempStore();
    const { schedules } = await temp.open();
    await schedules.add(nightly);
    const read = (await schedules.get('acme', 'nightly'))!;
    expect(await schedules.remove('acme', 'nightly')).toBe(true);
    expect(await schedules.remove('acme', 'nightly')).toBe(false);
    expect(await schedules.change(read, nightly)).toBe(false);
    await schedules.add(nightly);
    expect(await schedules.change(read, { ...nightly, dueAt: 9_000 })).toBe(false);
    expect(await schedules.get('acme', 'nightly')).toMatchObject({ dueAt: 5_000 });
  });

  test('keeps every text, and refuses what it cannot keep', async () => {
    await using temp = await tempStore();
    const { schedules } = await temp.open();
    const odd = { tenant: 'a\0', name: 'b\n"', definition: { text: '\0\ud800💥' }, state: ['\u2028'] };
    await schedules.add(odd);
    expect(await schedules.get('a\0', 'b\n"')).toEqual({ ...odd, version: expect.any(String) });
    await expect(schedules.add({ ...nightly, name: '\ud800' })).rejects.toThrow('unpaired surrogate');
    await expect(schedules.add({ ...nightly, dueAt: NaN })).rejects.toThrow('milliseconds since 1970');
    expect(await schedules.get('acme', '\ud800')).toBeUndefined();
  });

  test('tells other processes of changes', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const listener = vi.fn<() => void>();
    const stop = other.schedules.watch(listener);
    await one.schedules.add(nightly);
    await expect.poll(() => listener.mock.calls.length, { timeout: 20_000, interval: 5 }).toBeGreaterThan(0);
    stop();
  });
}
