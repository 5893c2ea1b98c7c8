import type { Amounts, Ledger } from '@treadle/core';
import { memoryBudgets, type Budgets } from '@treadle/core/budgets';
import { sqliteStore } from '@treadle/store';
import { describe, expect, test } from 'vitest';

/* The accounting is the same in memory and in SQLite. */

const ABOUT = { runId: 'run', effect: 'call-model', name: 'm', context: undefined } as const;

const reserve = async (ledger: Ledger, key: string, amounts: Amounts): Promise<unknown> =>
  ledger.reserve(key, amounts, ABOUT);
const reserved = { type: 'reserved' };

interface Opened extends AsyncDisposable {
  readonly budgets: Budgets;
}

const KINDS: readonly (readonly [string, () => Opened])[] = [
  ['memory', () => ({ budgets: memoryBudgets(), [Symbol.asyncDispose]: async () => {} })],
  [
    'SQLite',
    () => {
      const store = sqliteStore(':memory:');
      return { budgets: store.budgets, [Symbol.asyncDispose]: () => store.close() };
    },
  ],
];

describe.each(KINDS)('budgets in %s', (_, open) => {
  test('what is used replaces what was reserved', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100, cost: 1 });
    const ledger = budgets.ledger(['acme']);
    expect(await reserve(ledger, 'a', { tokens: 60, cost: 0.5 })).toEqual(reserved);
    expect(await budgets.get('acme')).toEqual({
      name: 'acme',
      limits: { tokens: 100, cost: 1 },
      settled: { tokens: 0, cost: 0, calls: 0 },
      reserved: { tokens: 60, cost: 0.5, calls: 0 },
    });
    await ledger.settle('a', { tokens: 20, cost: 0.25 });
    expect(await budgets.get('acme')).toMatchObject({
      settled: { tokens: 20, cost: 0.25, calls: 0 },
      reserved: { tokens: 0, cost: 0, calls: 0 },
    });
  });

  test('refuses what the budget does not have, and reserves nothing', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100 });
    await budgets.setLimits('run', { tokens: 1_000 });
    const ledger = budgets.ledger(['run', 'acme']);
    expect(await reserve(ledger, 'a', { tokens: 60 })).toEqual(reserved);
    expect(await reserve(ledger, 'b', { tokens: 41 })).toEqual({
      type: 'refused',
      reason: 'The budget "acme" has 40 tokens left of 100, and up to 41 are needed.',
    });
    expect(await budgets.get('run')).toMatchObject({ reserved: { tokens: 60 } });
    expect(await reserve(ledger, 'b', { tokens: 40 })).toEqual(reserved);
  });

  test('refuses a budget that does not exist, and a cost that is not known', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { cost: 1 });
    await budgets.setLimits('free', { tokens: 10 });
    expect(await reserve(budgets.ledger(['none']), 'a', {})).toEqual({
      type: 'refused',
      reason: 'There is no budget "none". Set its limits first.',
    });
    expect(await reserve(budgets.ledger(['acme']), 'a', { cost: Infinity })).toEqual({
      type: 'refused',
      reason: 'The budget "acme" limits the cost, and the price of the model is not known. Set a price for it.',
    });
    expect(await reserve(budgets.ledger(['free']), 'a', { cost: Infinity })).toEqual(reserved);
    expect(await budgets.get('free')).toMatchObject({ reserved: { cost: 0 } });
  });

  test('a repeated effect that may use more raises its reservation, or is refused', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100 });
    await budgets.setLimits('job', { cost: 1 });
    const ledger = budgets.ledger(['acme', 'job']);
    await reserve(ledger, 'a', { tokens: 60, cost: 0.5 });
    await reserve(ledger, 'b', { tokens: 10 });
    expect(await reserve(ledger, 'a', { tokens: 90, cost: 0.25 })).toEqual(reserved);
    expect(await budgets.get('acme')).toMatchObject({ reserved: { tokens: 100, cost: 0.5 } });
    expect(await reserve(ledger, 'a', { tokens: 91 })).toEqual({
      type: 'refused',
      reason: 'The budget "acme" has 0 tokens left of 100, and up to 1 are needed.',
    });
    expect(await reserve(ledger, 'a', { cost: Infinity })).toMatchObject({ type: 'refused' });
    expect((await budgets.reservations()).map(({ key, amounts, repeated }) => [key, amounts.tokens, repeated])).toEqual(
      [
        ['a', 90, true],
        ['b', 10, false],
      ],
    );
  });

  test('a repeated effect uses its reservation, and is charged in full at least', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100 });
    const ledger = budgets.ledger(['acme']);
    expect(await reserve(ledger, 'a', { tokens: 80 })).toEqual(reserved);
    expect(await reserve(ledger, 'a', { tokens: 70 })).toEqual(reserved);
    expect(await budgets.get('acme')).toMatchObject({ reserved: { tokens: 80 } });
    await ledger.settle('a', { tokens: 10 });
    expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 80 }, reserved: { tokens: 0 } });
  });

  test('a released reservation is available again, unless an earlier attempt may have used it', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100 });
    const ledger = budgets.ledger(['acme']);
    await reserve(ledger, 'a', { tokens: 80 });
    await ledger.release('a');
    expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 0 }, reserved: { tokens: 0 } });
    await reserve(ledger, 'a', { tokens: 80 });
    await reserve(ledger, 'a', { tokens: 80 });
    await ledger.release('a');
    expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 80 }, reserved: { tokens: 0 } });
  });

  test('an effect that settled and is performed again is charged twice', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100 });
    const ledger = budgets.ledger(['acme']);
    for (const used of [30, 20]) {
      await reserve(ledger, 'a', { tokens: 50 });
      await ledger.settle('a', { tokens: used });
    }
    expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 50 } });
  });

  test('an absent amount was used as reserved, and what was not reserved is charged too', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { calls: 10 });
    const ledger = budgets.ledger(['acme']);
    await reserve(ledger, 'a', { calls: 1, tokens: 5 });
    await ledger.settle('a', {});
    await ledger.settle('b', { tokens: 7 });
    await ledger.settle('c', {});
    expect(await budgets.get('acme')).toMatchObject({ settled: { calls: 1, tokens: 12, cost: 0 } });
  });

  test('changed limits apply to the next reservation', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('acme', { tokens: 100 });
    const ledger = budgets.ledger(['acme']);
    await reserve(ledger, 'a', { tokens: 100 });
    await budgets.setLimits('acme', { tokens: 50, calls: 1 });
    expect(await reserve(ledger, 'b', { tokens: 1 })).toMatchObject({
      reason: 'The budget "acme" has 0 tokens left of 50, and up to 1 are needed.',
    });
    await budgets.setLimits('acme', {});
    expect(await reserve(ledger, 'b', { tokens: 1_000 })).toEqual(reserved);
    expect((await budgets.list()).map(({ name, limits }) => [name, limits])).toEqual([['acme', {}]]);
  });

  test('lists what never settled, with the budgets that it is drawn on', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.setLimits('b', {});
    await budgets.setLimits('a', {});
    await reserve(budgets.ledger(['b', 'a', 'b']), 'run/t1.model.0', { tokens: 5 });
    await reserve(budgets.ledger(['b']), 'run/t1.tool.0', { calls: 1 });
    await reserve(budgets.ledger(['b']), 'run/t1.tool.0', { calls: 1 });
    const model = { key: 'run/t1.model.0', budgets: ['b', 'a'], amounts: { tokens: 5, cost: 0, calls: 0 } };
    const call = { key: 'run/t1.tool.0', budgets: ['b'], amounts: { tokens: 0, cost: 0, calls: 1 } };
    const at = expect.any(Number);
    const all = [
      { ...model, repeated: false, at },
      { ...call, repeated: true, at },
    ];
    expect(await budgets.reservations()).toEqual(all);
    expect(await budgets.reservations('b')).toEqual(all);
    expect(await budgets.reservations('a')).toEqual(all.slice(0, 1));
    await budgets.ledger(['a']).settle('run/t1.model.0', {});
    expect(await budgets.reservations('a')).toEqual([]);
    expect((await budgets.list()).map(({ name, settled }) => [name, settled.tokens])).toEqual([
      ['a', 5],
      ['b', 5],
    ]);
  });

  test.each([
    ['a limit that is not a number', { tokens: Number.NaN }, 'The budget "acme" has NaN tokens.'],
    ['a limit below 0', { cost: -1 }, 'The budget "acme" has -1 cost.'],
    ['an unknown limit', { turns: 1 }, 'The budget "acme" has "turns".'],
  ])('rejects %s', async (_name, limits, message) => {
    await using opened = open();
    await expect(opened.budgets.setLimits('acme', limits as Amounts)).rejects.toMatchObject({
      code: 'invalid-options',
      message: expect.stringContaining(message),
    });
  });

  test('rejects a ledger without budgets, and a budget without a name', async () => {
    await using opened = open();
    expect(() => opened.budgets.ledger([])).toThrow('A ledger needs the names of the budgets to draw on.');
    expect(() => opened.budgets.ledger([''])).toThrow('The name of a budget must be a text');
  });
});
