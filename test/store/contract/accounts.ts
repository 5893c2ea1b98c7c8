import { expect, test } from 'vitest';
import { DEAD, type TempStores } from './temp-stores.ts';

/** Secret keys, kept processes, and what several processes share of budgets and rates. */
export function accountsContract(tempStore: () => Promise<TempStores>): void {
  const ABOUT = { runId: 'run', effect: 'call-tool', name: 't', context: undefined } as const;

  test('a secret key is random, and created once for all processes with the store', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const [key, same, named] = await Promise.all([one.secretKey('a'), other.secretKey('a'), one.secretKey('b')]);
    expect(key).toHaveLength(32);
    expect(same).toEqual(key);
    expect(named).not.toEqual(key);
    await Promise.all([one.close(), other.close()]);
    expect(await (await temp.open()).secretKey('a')).toEqual(key);
  });

  test('processes are kept until their keeper has ended, and the next run takes them', async () => {
    await using temp = await tempStore();
    const [dead, store] = [await temp.open({ holder: DEAD }), await temp.open()];
    const [first, second] = [{ pid: 4_711, startedAt: '1' }, { pid: 4_712 }];
    await store.keptProcesses.keep('mine', [first]);
    await dead.keptProcesses.keep('a', [first]);
    await dead.keptProcesses.keep('b', [first, second], 'a');
    await dead.keptProcesses.keep('c', []);
    expect(await store.keptProcesses.abandoned()).toEqual([{ runId: 'b', processes: [first, second] }]);
    expect(await store.keptProcesses.abandoned('a')).toEqual([]);
    expect(await store.keptProcesses.abandoned('b')).toHaveLength(1);
    await store.keptProcesses.remove('b');
    expect(await store.keptProcesses.abandoned()).toEqual([]);
  });

  test('several processes draw on the same budget and never exceed it', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open(), await temp.open()];
    const { budgets } = stores[0]!;
    await budgets.setLimits('acme', { tokens: 1_000, calls: 20 });
    const granted = await Promise.all(
      stores.map(async (store, index) => {
        const ledger = await store.budgets.ledger(['acme']);
        for (let count = 0; ; count++) {
          const key = `run ${index}/t1.tool.${count}`;
          if ((await ledger.reserve(key, { calls: 1 }, ABOUT)).type === 'refused') return count;
          if (count % 2 === 0) await ledger.settle(key, {});
        }
      }),
    );
    expect(granted.reduce((sum, count) => sum + count, 0)).toBe(20);
    const acme = (await budgets.get('acme'))!;
    expect(acme.settled.calls + acme.reserved.calls).toBe(20);
    expect(await budgets.reservations('acme')).toHaveLength(acme.reserved.calls);
  });

  test('several processes share the rate of a subject, and each call sees those before it', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open(), await temp.open()];
    const before = await Promise.all(
      Array.from({ length: 30 }, (_, n) => stores[n % 3]!.rates.add('ann', 1_000, 1, 50)),
    );
    expect(before.map(({ length }) => length).toSorted((a, b) => a - b)).toEqual(before.map((_, n) => n));
  });

  test('subjects without calls for an hour are removed', async () => {
    await using temp = await tempStore();
    const { rates } = await temp.open();
    await rates.add('ann', 0, 1, 3);
    await rates.add('bob', 3_600_001, 1, 3);
    expect(await temp.count('rates')).toBe(1);
    expect(await rates.add('bob', 3_600_002, 0, 3)).toEqual([3_600_001]);
  });
}
