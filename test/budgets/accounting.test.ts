import type { Amounts, Ledger, Spending } from '@treadle/core';
import {
  budgetsOn,
  checkedBudget,
  memoryBudgets,
  type BudgetDefinition,
  type BudgetTables,
  type Budgets,
  type Reservation,
  type StoredBudget,
  type Totals,
} from '@treadle/core/budgets';
import { sqliteStore } from '@treadle/store';
import { describe, expect, test } from 'vitest';

/* The accounting is the same in memory, in SQLite, and on tables whose methods are asynchronous. */

const ABOUT = { runId: 'run', effect: 'call-model', name: 'm', context: undefined } as const;

const reserve = async (ledger: Ledger, key: string, amounts: Amounts): Promise<unknown> =>
  ledger.reserve(key, amounts, ABOUT);
const reserved = { type: 'reserved' };

interface Opened extends AsyncDisposable {
  readonly budgets: Budgets;
}

/** Friday, 31 January 2025. */
const FRIDAY = Date.UTC(2025, 0, 31, 12);
const DAY = 86_400_000;

let time = FRIDAY;

const KINDS: readonly (readonly [string, () => Opened])[] = [
  ['memory', () => ({ budgets: memoryBudgets({}, { now: () => time }), [Symbol.asyncDispose]: async () => {} })],
  [
    'SQLite',
    () => {
      const store = sqliteStore(':memory:', { clock: { now: () => time, timer: () => () => {} } });
      return { budgets: store.budgets, [Symbol.asyncDispose]: () => store.close() };
    },
  ],
  ['asynchronous tables', () => ({ budgets: asynchronousBudgets(), [Symbol.asyncDispose]: async () => {} })],
];

const NONE: Totals = { tokens: 0, cost: 0, calls: 0, files: 0, lines: 0, requests: 0, durationMs: 0 };

interface Rows {
  readonly budgets: Map<string, StoredBudget>;
  readonly usage: Map<string, Totals>;
  readonly reservations: Map<string, Reservation>;
}

/** A database with a client for each transaction: it works on a copy, which replaces the rows when it is committed. */
function asynchronousBudgets(): Budgets {
  let rows: Rows = { budgets: new Map(), usage: new Map(), reservations: new Map() };
  let last: Promise<unknown> = Promise.resolve();
  async function transaction<T>(work: (tables: BudgetTables) => T | Promise<T>): Promise<T> {
    const before = last;
    const { promise, resolve } = Promise.withResolvers<void>();
    last = promise;
    await before;
    try {
      const copy = structuredClone(rows);
      const done = await work(asynchronousTables(copy));
      rows = copy;
      return done;
    } finally {
      resolve();
    }
  }
  return budgetsOn({ write: transaction, read: transaction, now: () => time });
}

function asynchronousTables({ budgets, usage, reservations }: Rows): BudgetTables {
  const sum = (a: Totals, b: Totals): Totals =>
    Object.fromEntries(Object.entries(a).map(([kind, amount]) => [kind, amount + b[kind as keyof Totals]])) as never;
  const of = (name: string | undefined): readonly Reservation[] =>
    [...reservations.values()].filter((one) => name === undefined || one.budgets.includes(name));
  return {
    budget: async (name) => budgets.get(name),
    names: async () => [...budgets.keys()].toSorted(),
    putBudget: async (name, budget) => void budgets.set(name, budget),
    totals: async (name, since) => ({
      settled: usage.get(`${name} ${since}`) ?? NONE,
      reserved: of(name).reduce((all, { at, amounts }) => (at < since ? all : sum(all, amounts)), NONE),
    }),
    addSettled: async (name, since, amounts) =>
      void usage.set(`${name} ${since}`, sum(usage.get(`${name} ${since}`) ?? NONE, amounts)),
    reservation: async (key) => reservations.get(key),
    reservations: async (name) => of(name),
    addReservation: async (reservation) => void reservations.set(reservation.key, reservation),
    markRepeated: async (key, amounts) =>
      void reservations.set(key, { ...reservations.get(key)!, amounts, repeated: true }),
    removeReservation: async (key) => void reservations.delete(key),
  };
}

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
      settled: NONE,
      reserved: { ...NONE, tokens: 60, cost: 0.5 },
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
    const model = { key: 'run/t1.model.0', budgets: ['b', 'a'], amounts: { ...NONE, tokens: 5 } };
    const call = { key: 'run/t1.tool.0', budgets: ['b'], amounts: { ...NONE, calls: 1 } };
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

  test('counts each period by itself, and charges a reservation to the one in which it was made', async () => {
    time = FRIDAY;
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { tokens: 100 }, period: 'day' });
    const ledger = budgets.ledger(['acme']);
    await reserve(ledger, 'a', { tokens: 30 });
    await reserve(ledger, 'b', { tokens: 70 });
    await ledger.settle('b', { tokens: 50 });
    expect(await reserve(ledger, 'c', { tokens: 21 })).toMatchObject({ type: 'refused' });
    time = FRIDAY + DAY;
    expect(await budgets.get('acme')).toMatchObject({
      since: Date.UTC(2025, 1, 1),
      settled: { tokens: 0 },
      reserved: { tokens: 0 },
    });
    expect(await reserve(ledger, 'c', { tokens: 100 })).toEqual(reserved);
    await ledger.settle('a', { tokens: 25 });
    expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 0 }, reserved: { tokens: 100 } });
    time = FRIDAY;
    expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 75 } });
  });

  test.each([
    ['day', FRIDAY, Date.UTC(2025, 0, 31)],
    ['week', FRIDAY, Date.UTC(2025, 0, 27)],
    ['week', Date.UTC(2025, 0, 27), Date.UTC(2025, 0, 27)],
    ['week', Date.UTC(2025, 0, 27) - 1, Date.UTC(2025, 0, 20)],
    ['month', FRIDAY, Date.UTC(2025, 0, 1)],
    ['month', FRIDAY + DAY, Date.UTC(2025, 1, 1)],
  ] as const)('a %s has a beginning in UTC (%d)', async (period, now, since) => {
    time = now;
    await using opened = open();
    await opened.budgets.set('acme', { limits: {}, period });
    expect(await opened.budgets.get('acme')).toMatchObject({ since });
  });

  test('a suspended budget refuses with its reason, also what is reserved already, until it is active', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { tokens: 100 }, atLimit: 'ask' });
    const ledger = budgets.ledger(['acme']);
    await reserve(ledger, 'a', { tokens: 10 });
    await budgets.suspend('acme', 'unpaid invoice');
    const refused = { type: 'refused', reason: 'The budget "acme" is suspended: unpaid invoice' };
    expect(await reserve(ledger, 'a', { tokens: 10 })).toEqual(refused);
    expect(await ledger.reserve('b', { tokens: 1 }, { ...ABOUT, approved: true })).toEqual(refused);
    await budgets.set('acme', { limits: { tokens: 50 } });
    await budgets.setLimits('acme', { tokens: 60 });
    expect(await budgets.get('acme')).toMatchObject({ suspended: 'unpaid invoice', limits: { tokens: 60 } });
    await budgets.activate('acme');
    expect(await budgets.get('acme')).not.toHaveProperty('suspended');
    expect(await reserve(ledger, 'b', { tokens: 50 })).toEqual(reserved);
    await expect(budgets.suspend('none', 'x')).rejects.toThrow('There is no budget "none"');
    await expect(budgets.activate('none')).rejects.toThrow('There is no budget "none"');
    await expect(budgets.suspend('acme', '')).rejects.toThrow('without a reason');
    expect(await budgets.get('none')).toBeUndefined();
  });

  test('warns when a share of a limit is used and reserved', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { tokens: 100, calls: 10 }, warnAt: 0.8 });
    const ledger = budgets.ledger(['acme']);
    expect(await reserve(ledger, 'a', { tokens: 79, calls: 1 })).toEqual(reserved);
    expect(await reserve(ledger, 'b', { tokens: 1 })).toEqual({
      type: 'warned',
      warnings: [{ budget: 'acme', kind: 'tokens', used: 80, limit: 100 }],
    });
    expect(await budgets.get('acme')).toMatchObject({ reserved: { tokens: 80 } });
  });

  test('a budget that asks escalates, reserves what was approved, and raises no other reservation', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { tokens: 100, cost: 1 }, atLimit: 'ask' });
    await budgets.set('job', { limits: { calls: 1 } });
    const ledger = budgets.ledger(['acme', 'job']);
    const escalated = {
      type: 'escalated',
      reason: 'The budget "acme" has 100 tokens left of 100, and up to 150 are needed.',
    };
    const approved = { ...ABOUT, approved: true } as const;
    expect(await reserve(ledger, 'a', { tokens: 150 })).toEqual(escalated);
    expect(await budgets.reservations()).toEqual([]);
    expect(await ledger.reserve('a', { tokens: 150 }, approved)).toEqual(reserved);
    expect(await reserve(ledger, 'a', { tokens: 150 })).toEqual(reserved);
    expect(await reserve(ledger, 'b', { tokens: 1 })).toMatchObject({ type: 'escalated' });
    expect(await reserve(ledger, 'c', { calls: 1 })).toEqual(reserved);
    // No approval raises a budget that does not ask, or a cost that is not known.
    expect(await ledger.reserve('d', { calls: 1 }, approved)).toMatchObject({ type: 'refused' });
    expect(await ledger.reserve('d', { tokens: 1, calls: 1 }, approved)).toMatchObject({ type: 'refused' });
    expect(await ledger.reserve('d', { cost: Infinity }, approved)).toMatchObject({ type: 'refused' });
    expect(await budgets.reservations()).toHaveLength(2);
  });

  test('a budget that does not limit the cost asks also about a model without a price', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { tokens: 100 }, atLimit: 'ask' });
    const ledger = budgets.ledger(['acme']);
    const amounts = { tokens: 150, cost: Infinity };
    expect(await reserve(ledger, 'a', amounts)).toMatchObject({ type: 'escalated' });
    expect(await ledger.reserve('a', amounts, { ...ABOUT, approved: true })).toEqual(reserved);
    await budgets.set('acme', { limits: { tokens: 100, cost: 1 }, atLimit: 'ask' });
    expect(await reserve(ledger, 'b', amounts)).toMatchObject({ type: 'refused' });
  });

  test.each<[string, BudgetDefinition['only'], Partial<Spending>, boolean]>([
    ['a name', { names: ['t'] }, { name: 't' }, true],
    ['another name', { names: ['t'] }, { name: 'u' }, false],
    ['a command', { commands: ['git push'] }, { touches: [{ type: 'command', command: 'cd a && git  push x' }] }, true],
    ['another command', { commands: ['git push'] }, { touches: [{ type: 'command', command: 'git pushy' }] }, false],
    ['a domain', { domains: ['*.a.test'] }, { touches: [{ type: 'url', url: 'https://x.a.test/1' }] }, true],
    ['another domain', { domains: ['*.a.test'] }, { touches: [{ type: 'url', url: 'https://a.test/' }] }, false],
    ['no URL', { domains: ['a.test'] }, { touches: [{ type: 'url', url: 'a.test' }] }, false],
    ['what is not declared', { domains: ['*'], names: ['t'] }, { name: 't' }, false],
  ])('counts only what matches: %s', async (_name, only, about, counted) => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { calls: 1 }, ...(only && { only }) });
    await budgets.set('all', { limits: { calls: 9 } });
    const ledger = budgets.ledger(['acme', 'all']);
    const spending: Spending = { ...ABOUT, effect: 'call-tool', ...about };
    expect(await ledger.reserve('a', { calls: 1 }, spending)).toEqual(reserved);
    expect(await ledger.reserve('b', { calls: 1 }, spending)).toMatchObject({ type: counted ? 'refused' : 'reserved' });
    await ledger.settle('a', {});
    expect(await budgets.get('acme')).toMatchObject({ settled: { calls: counted ? 1 : 0 } });
    expect(await budgets.get('all')).toMatchObject({ settled: { calls: 1 } });
  });

  test('what nothing counts is not charged when it settles', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { calls: 1 }, only: { names: ['t'] } });
    const ledger = budgets.ledger(['acme']);
    expect(await reserve(ledger, 'a', { calls: 1 })).toEqual(reserved);
    await ledger.settle('a', { calls: 1 });
    expect(await budgets.get('acme')).toMatchObject({ settled: { calls: 0 }, reserved: { calls: 0 } });
  });

  test('time is counted afterwards, and a budget without any left refuses', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { durationMs: 100 } });
    const ledger = budgets.ledger(['acme']);
    expect(await reserve(ledger, 'a', { calls: 1 })).toEqual(reserved);
    await ledger.settle('a', { durationMs: 150 });
    expect(await reserve(ledger, 'b', { calls: 1 })).toEqual({
      type: 'refused',
      reason: 'The budget "acme" has 0 durationMs left of 100.',
    });
  });

  test('concurrent reservations never exceed the budget', async () => {
    await using opened = open();
    const { budgets } = opened;
    await budgets.set('acme', { limits: { calls: 3 } });
    const ledger = budgets.ledger(['acme']);
    const keys = Array.from({ length: 9 }, (_, index) => `run/${index}`);
    const all = await Promise.all(keys.map((key) => reserve(ledger, key, { calls: 1 })));
    expect(all.filter((one) => (one as { type: string }).type === 'reserved')).toHaveLength(3);
    expect(await budgets.reservations()).toHaveLength(3);
  });
});

test.each([
  ['no definition', 3, 'The budget "acme" is 3.'],
  ['no limits', {}, 'The budget "acme" has no limits.'],
  ['an unknown option', { limits: {}, max: 1 }, '"max"'],
  ['an unknown amount', { limits: { turns: 1 } }, 'The budget "acme" has "turns".'],
  ['an unknown period', { limits: {}, period: 'year' }, 'The budget "acme" has the period "year".'],
  ['a period that every object has', { limits: {}, period: 'toString' }, 'The budget "acme" has the period'],
  ['a level above 1', { limits: {}, warnAt: 80 }, 'The budget "acme" has warnAt 80.'],
  ['a level of 0', { limits: {}, warnAt: 0 }, 'The budget "acme" has warnAt 0.'],
  ['a level that is a text', { limits: {}, warnAt: 'x' }, 'The budget "acme" has warnAt "x".'],
  ['an unknown reaction', { limits: {}, atLimit: 'warn' }, 'The budget "acme" has atLimit "warn".'],
  ['nothing to count', { limits: {}, only: {} }, '"only" of the budget "acme" has no list'],
  ['an empty list', { limits: {}, only: { names: [] } }, '"names" of "only" of the budget "acme" is not a list'],
  ['a wrong domain', { limits: {}, only: { domains: ['a b'] } }, 'has "a b", which is not a domain.'],
])('rejects a definition with %s', (_name, given, message) => {
  expect(() => checkedBudget('acme', given)).toThrow(message);
});
