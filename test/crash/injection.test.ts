import { memoryJournal, NEW, step, type ExecuteResult, type State } from '@treadle/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { historyProblem } from '../provider/rules/messages.ts';
import { SCENARIOS } from './all-scenarios.ts';
import { EFFECT_TYPES, EVENT_TYPES } from './all-types.ts';
import {
  crashEverywhere,
  failEverywhere,
  losePowerEverywhere,
  played,
  snapshotting,
  snapshottingIn,
} from './crash-everywhere.ts';
import { entriesOf, runsOf } from './logged-store.ts';
import type { Scenario } from './scenario.ts';
import { direct, hopeless, reflecting } from './scenarios/agents.ts';
import { approvals } from './scenarios/approvals.ts';
import { calls } from './scenarios/calls.ts';
import { child } from './scenarios/children.ts';
import { length } from './scenarios/length.ts';
import { RUN } from './world.ts';
import { testDatabase, type TestDatabase } from '../store/shared-postgres.ts';

/* A sample: test/long/injection.test.ts has all scenarios on SQLite, all kinds of failures, and a failure of each append. */

const named = (scenarios: readonly Scenario[]) => scenarios.map((scenario) => [scenario.name, scenario] as const);
const NAMED = named(SCENARIOS);

test('the scenarios contain every type of event and effect', async () => {
  const events = new Set<string>();
  const effects = new Set<string>();
  for (const scenario of SCENARIOS) {
    const { log } = await played(scenario, { faults: true });
    for (const runId of runsOf(log)) {
      let state: State = NEW;
      for (const { event } of entriesOf(log, runId)) {
        const next = step(state, event);
        events.add(event.type);
        for (const { type } of next.effects) effects.add(type);
        state = next.state;
      }
    }
  }
  expect([...events].toSorted()).toEqual(EVENT_TYPES);
  expect([...effects].toSorted()).toEqual(EFFECT_TYPES);
});

test.each([
  [reflecting, { type: 'success', output: { total: 10 }, finalState: { seen: ['a', 'b', 'c', 'd', 'e'], notes: 1 } }],
  [direct, { type: 'success', output: { total: 6 }, finalState: { seen: ['a', 'b'], notes: 1 } }],
  [hopeless, { type: 'failure', error: { code: 'MAX_ATTEMPTS_EXCEEDED', context: { attempts: 3 } } }],
] as const)('$name has the expected result', async (scenario, expected) => {
  const { given } = await played(scenario, { faults: false });
  expect(given).toHaveLength(1);
  expect(given).toMatchObject([expected]);
  expect(historyProblem((given[0] as ExecuteResult<unknown>).messages)).toBeUndefined();
});

test.each(NAMED)('recovers after a crash at any entry: %s', async (_, scenario) => {
  expect(await crashEverywhere(scenario, memoryJournal)).toEqual(scenario.interrupted);
});

test.each(named([calls, child, length]))('recovers after a crash at any entry, on SQLite: %s', async (_, scenario) => {
  expect(await crashEverywhere(scenario, snapshotting)).toEqual(scenario.interrupted);
});

describe('on PostgreSQL', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await testDatabase();
  });
  afterAll(() => database[Symbol.asyncDispose]());

  test.each(named([length]))('recovers after a crash at any entry: %s', async (_, scenario) => {
    expect(await crashEverywhere(scenario, snapshottingIn(database))).toEqual(scenario.interrupted);
  });
});

describe('recovers after a power failure at any append that loses all entries that are not durable', () => {
  let losses = 0;

  test.each(NAMED)('%s', async (_, scenario) => {
    losses += await losePowerEverywhere(scenario, { first: 1, step: 2 });
  });

  test('which happens', () => {
    expect(losses).toBeGreaterThan(50);
  });
});

// A crash at any entry is above. Here, the process notices the failure, which is the same code at every append.
describe.each([
  ['throws', named([calls, approvals, child, length, reflecting])],
  ['rejects', named([calls, child])],
  ['unacknowledged', NAMED],
] as const)('recovers after an append fails: %s', (how, scenarios) => {
  test.each(scenarios)('%s', async (_, scenario) => {
    expect(await failEverywhere(scenario, { how }, { first: 0, step: 2 })).toBeGreaterThan(3);
  });

  test(`${child.name}, only for the run and not for its child`, async () => {
    expect(await failEverywhere(child, { how, only: RUN }, { first: 0, step: 2 })).toBeGreaterThan(3);
  });
});
