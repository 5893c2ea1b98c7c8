import { memoryJournal, NEW, step, type ExecuteResult, type RunStore, type State } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { describe, expect, test } from 'vitest';
import { historyProblem } from '../provider/rules/messages.ts';
import { crashed, goOn, unknowable } from './crash.ts';
import { cutsOf } from './cuts.ts';
import { dyingDisk, type Death } from './dying-store.ts';
import { EFFECT_TYPES, EVENT_TYPES } from './kinds.ts';
import { entriesOf, logged, runsOf, type Logged } from './logged-store.ts';
import { play, playUntilDeath, restarted, type Scenario } from './scenario.ts';
import { SCENARIOS } from './scenarios.ts';
import { direct, hopeless, reflecting } from './scenarios/agents.ts';
import { calls } from './scenarios/calls.ts';
import { child, expiring, grandchild } from './scenarios/children.ts';
import { length } from './scenarios/length.ts';
import { RUN, world, type World } from './world.ts';

/*
 * A process can die at any moment. These tests have it die at every one that makes a difference: after each entry of
 * its journals, with what was under way done or not done, and at each append. Another process goes on, with code of its
 * own; people and models outside answer what they would have answered. Then nothing is lost, nothing that acts once was
 * done twice, and the run ends as if nothing had happened; but a call that acts once, was under way and cannot be
 * verified is answered "interrupted, effect unknown": each scenario lists at which crashes that is.
 */

/** `faults`: with what goes wrong in the scenario itself. */
async function lived(scenario: Scenario, { faults }: { faults: boolean }): Promise<World> {
  const log: Logged[] = [];
  return play(scenario, world({ log, store: logged(memoryJournal(), log), faults }));
}

const NAMED = SCENARIOS.map((scenario) => [scenario.name, scenario] as const);

test('the scenarios have every event and every effect', async () => {
  const events = new Set<string>();
  const effects = new Set<string>();
  for (const scenario of SCENARIOS) {
    const { log } = await lived(scenario, { faults: true });
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
] as const)('$name comes to what it should', async (scenario, expected) => {
  const { given } = await lived(scenario, { faults: false });
  expect(given).toHaveLength(1);
  expect(given).toMatchObject([expected]);
  expect(historyProblem((given[0] as ExecuteResult<unknown>).messages)).toBeUndefined();
});

/** Where it happened, in what goes wrong. */
async function at(place: string, check: () => Promise<void>): Promise<void> {
  try {
    await check();
  } catch (error) {
    throw new Error(`After a crash at ${place}: ${(error as Error).message}`, { cause: error });
  }
}

async function crashEverywhere(scenario: Scenario, store: () => RunStore): Promise<Record<string, string[]>> {
  const reference = await lived(scenario, { faults: false });
  const { log } = await lived(scenario, { faults: true });
  const where: Record<string, string[]> = {};
  for (const cut of cutsOf(log)) {
    for (const key of unknowable(cut)) (where[key] ??= []).push(cut.label);
    for (const moment of ['before', 'after'] as const) {
      await at(`${cut.label}, ${moment} what was under way`, async () => {
        const from = await crashed(reference, { cut, moment, store: store() });
        await goOn(scenario, reference, from);
        await from.store.close();
      });
    }
  }
  return where;
}

test.each(NAMED)('%s: a crash after any entry', async (_, scenario) => {
  expect(await crashEverywhere(scenario, memoryJournal)).toEqual(scenario.interrupted);
});

test.each([calls, child, length, reflecting, direct].map((scenario) => [scenario.name, scenario] as const))(
  '%s: a crash after any entry, on SQLite',
  async (_, scenario) => {
    const open = (): RunStore => ({ ...sqliteStore(':memory:'), snapshotFrom: 2 });
    expect(await crashEverywhere(scenario, open)).toEqual(scenario.interrupted);
  },
);

/** Has the journal fail at each of its appends, one after the other, and goes on with what is durable. How many those are. */
async function failEverywhere(scenario: Scenario, death: Omit<Death, 'at'>): Promise<number> {
  const reference = await lived(scenario, { faults: false });
  for (let append = 0; ; append++) {
    const log: Logged[] = [];
    const store = logged(memoryJournal(), log);
    const begun = world({ log, store });
    await scenario.begin?.(begun);
    const wrap = dyingDisk({ ...death, at: append });
    const first = world({ ...begun, store: wrap(store), wrap, faults: true });
    const { world: last, ended } = await playUntilDeath(scenario, first);
    if (ended) return append;
    checkBegun(last);
    const after = await restarted({ ...last, wrap: (store) => store });
    await at(`append ${append}`, () => goOn(scenario, reference, after));
  }
}

/** I8: whatever was done, the fact that caused it was durable before. */
function checkBegun({ deeds, log }: World): void {
  const entries = log.filter((item) => item.type === 'entry');
  const issued = new Set(entries.flatMap(({ runId, entry }) => entry.issued.map((id) => `${runId}/${id}`)));
  expect(deeds.filter(({ key }) => !issued.has(key))).toEqual([]);
}

describe.each(['throws', 'rejects', 'unacknowledged'] as const)('a journal that fails: it %s', (how) => {
  test.each(NAMED)('%s', async (_, scenario) => {
    expect(await failEverywhere(scenario, { how })).toBeGreaterThan(3);
  });

  test.each([child, grandchild, expiring].map((scenario) => [scenario.name, scenario] as const))(
    '%s: for the run and not for its child',
    async (_, scenario) => {
      expect(await failEverywhere(scenario, { how, only: RUN })).toBeGreaterThan(3);
    },
  );
});
