import { fork } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';
import { createBudgetTables, splitBudgets } from './budgets.ts';

// What holds on every store is in `test/store/contract/accounts.ts`. Here: processes that share a file, failures of it, and earlier versions.

const ABOUT = { runId: 'run', effect: 'call-tool', name: 't', context: undefined } as const;

test('several processes draw on the same budget and never exceed it', async () => {
  await using temp = tempStore();
  const { budgets } = temp.open();
  await budgets.setLimits('acme', { tokens: 1_000, calls: 50 });
  const main = new URL('../../test/spender-main.ts', import.meta.url);
  const granted = await Promise.all(
    Array.from({ length: 3 }, async (_, index) => {
      const child = fork(main, [temp.file, `run ${index}`], { execArgv: ['--conditions=treadle-source'] });
      const [[count]] = (await Promise.all([once(child, 'message'), once(child, 'exit')])) as [[number], unknown];
      return count;
    }),
  );
  expect(granted.reduce((sum, count) => sum + count, 0)).toBe(50);
  const acme = (await budgets.get('acme'))!;
  expect(acme.settled.calls + acme.reserved.calls).toBe(50);
  expect(await budgets.reservations('acme')).toHaveLength(acme.reserved.calls);
});

test('a failed write is reported, and the run that needs it stops', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.budgets.setLimits('acme', { calls: 1 });
  temp.raw().exec('DROP TABLE reservations');
  const ledger = store.budgets.ledger(['acme']);
  await expect(ledger.reserve('run/t1.tool.0', { calls: 1 }, ABOUT)).rejects.toMatchObject({ code: 'store-failed' });
});

test('the migration of budgets keeps their limits, what was used and what is reserved', async () => {
  await using temp = tempStore();
  await temp.open().close();
  const db = temp.raw();
  db.exec('DROP TABLE budget_definitions; DROP TABLE budget_usage; DROP TABLE reservations');
  createBudgetTables(db);
  db.exec(`
    INSERT INTO budgets VALUES ('acme', 1000, NULL, 5, 120, 0.25, 2), ('free', NULL, NULL, NULL, 0, 0, 0);
    INSERT INTO reservations VALUES (7, 'run/t1.model.0', 'acme', 80, 0.5, 0, 1, 1000);
  `);
  db.exec(splitBudgets);
  const { budgets } = temp.open();
  const none = { tokens: 0, cost: 0, calls: 0, files: 0, lines: 0, requests: 0, durationMs: 0 };
  const reserved = { ...none, tokens: 80, cost: 0.5 };
  expect(await budgets.list()).toEqual([
    {
      name: 'acme',
      limits: { tokens: 1000, calls: 5 },
      settled: { ...none, tokens: 120, cost: 0.25, calls: 2 },
      reserved,
    },
    { name: 'free', limits: {}, settled: none, reserved: none },
  ]);
  expect(await budgets.reservations()).toEqual([
    { key: 'run/t1.model.0', budgets: ['acme'], amounts: reserved, repeated: true, at: 1000 },
  ]);
  await budgets.ledger(['acme']).settle('run/t1.model.0', {});
  expect(await budgets.get('acme')).toMatchObject({ settled: { tokens: 200, cost: 0.75 }, reserved: none });
});
