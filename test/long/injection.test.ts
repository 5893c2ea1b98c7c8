import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SCENARIOS } from '../crash/all-scenarios.ts';
import {
  crashEverywhere,
  EACH_APPEND,
  failEverywhere,
  losePowerEverywhere,
  snapshotting,
  snapshottingIn,
} from '../crash/crash-everywhere.ts';
import type { Scenario } from '../crash/scenario.ts';
import { child, expiring, grandchild } from '../crash/scenarios/children.ts';
import { RUN } from '../crash/world.ts';
import { testDatabase, type TestDatabase } from '../store/shared-postgres.ts';

/* The same as test/crash/injection.test.ts, with all scenarios, and a failure of each append. */

const named = (scenarios: readonly Scenario[]) => scenarios.map((scenario) => [scenario.name, scenario] as const);

test.each(named(SCENARIOS))('recovers after a crash at any entry, on SQLite: %s', async (_, scenario) => {
  expect(await crashEverywhere(scenario, snapshotting)).toEqual(scenario.interrupted);
});

describe('on PostgreSQL', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await testDatabase();
  });
  afterAll(() => database[Symbol.asyncDispose]());

  test.each(named(SCENARIOS))('recovers after a crash at any entry: %s', async (_, scenario) => {
    expect(await crashEverywhere(scenario, snapshottingIn(database))).toEqual(scenario.interrupted);
  });
});

test.each(named(SCENARIOS))('recovers after a power failure at any append: %s', async (_, scenario) => {
  await losePowerEverywhere(scenario, EACH_APPEND);
});

describe.each(['throws', 'rejects', 'unacknowledged'] as const)('recovers after an append fails: %s', (how) => {
  test.each(named(SCENARIOS))('%s', async (_, scenario) => {
    expect(await failEverywhere(scenario, { how }, EACH_APPEND)).toBeGreaterThan(3);
  });

  test.each(named([child, grandchild, expiring]))('%s, only for the run and not for its child', async (_, scenario) => {
    expect(await failEverywhere(scenario, { how, only: RUN }, EACH_APPEND)).toBeGreaterThan(3);
  });
});
