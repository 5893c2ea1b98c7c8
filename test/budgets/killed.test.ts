import { fork } from 'node:child_process';
import { once } from 'node:events';
import { runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { openStore, type Store } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { newStore, TEST_STORE, type NewStore } from '../store/kinds.ts';

/* A process is killed in the middle of an effect; another one resumes the run. */

let created: NewStore;
let store: Store;

beforeEach(async () => {
  created = await newStore(TEST_STORE);
  store = await openStore(created.url);
});
afterEach(async () => {
  await store.close();
  await created[Symbol.asyncDispose]();
});

async function killIn(where: 'model' | 'tool'): Promise<void> {
  await store.budgets.setLimits('acme', { tokens: 1_000, calls: 1 });
  const main = new URL('killed-main.ts', import.meta.url);
  const child = fork(main, [created.url, where], { execArgv: ['--conditions=treadle-source'] });
  expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
}

const pay = tool({ name: 'pay', description: 'Pays', effect: 'idempotent', execute: () => 'paid' });
const options = () => ({ tools: [pay], ledger: store.budgets.ledger(['acme']), journal: store, runId: 'bill' });

test('a call that was killed keeps its reservation, and is counted once', async () => {
  await killIn('tool');
  const amounts = { tokens: 0, cost: 0, calls: 1 };
  const [reservation] = await store.budgets.reservations('acme');
  expect(reservation).toMatchObject({ key: 'bill/t1.tool.0', amounts, repeated: false });
  expect(await store.budgets.get('acme')).toMatchObject({ settled: { tokens: 15, calls: 0 }, reserved: amounts });

  const result = await runLoop({ ...options(), model: scriptedModel(['It is paid.']) });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 1 });
  expect(await store.budgets.reservations()).toEqual([]);
  expect(await store.budgets.get('acme')).toMatchObject({ settled: { tokens: 30, calls: 1 } });
});

test('a model call that was killed is charged in full when it is repeated', async () => {
  await killIn('model');
  const [reservation] = await store.budgets.reservations('acme');
  const { tokens } = reservation!.amounts;
  expect(reservation).toMatchObject({ key: 'bill/t1.model.0', repeated: false });
  expect(tokens).toBeGreaterThan(100);

  await runLoop({ ...options(), model: scriptedModel(['There is nothing to pay.']) });
  expect(await store.budgets.reservations()).toEqual([]);
  expect(await store.budgets.get('acme')).toMatchObject({ settled: { tokens, calls: 0 } });
});
