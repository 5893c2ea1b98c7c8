import { memoryJournal, type RunStore, type Stored } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { expect } from 'vitest';
import type { TestDatabase } from '../store/shared-postgres.ts';
import { momentsAt, worldAfterCrash, resumeAndCompare, unknowableCalls } from './crash.ts';
import { cutsOf } from './cuts.ts';
import { logged, type Logged } from './logged-store.ts';
import { play, playUntilFailure, restarted, type Scenario } from './scenario.ts';
import { world, type World } from './world.ts';

/*
 * A process can die at any moment. These tests let it die at every moment that makes a difference: after each entry of
 * its journals, before and after calls in progress acted, and at each append. Another process resumes the run with code
 * of its own; people and models give the same answers. Then nothing is lost, no call with the effect `once` acts twice,
 * and the run ends as an undisturbed one. Exception: a call with the effect `once` that was in progress and cannot be
 * verified is answered "interrupted, effect unknown". Each scenario lists the crashes at which that happens.
 */

/** `faults`: with the faults that the scenario itself defines. */
export async function played(scenario: Scenario, { faults }: { faults: boolean }): Promise<World> {
  const log: Logged[] = [];
  return play(scenario, world({ log, store: logged(memoryJournal(), log), faults }));
}

/** Adds the place of the crash to an error. */
async function at(place: string, check: () => Promise<void>): Promise<void> {
  try {
    await check();
  } catch (error) {
    throw new Error(`After a crash at ${place}: ${(error as Error).message}`, { cause: error });
  }
}

export async function crashEverywhere(
  scenario: Scenario,
  store: () => RunStore | Promise<RunStore>,
): Promise<Record<string, string[]>> {
  const reference = await played(scenario, { faults: false });
  const { log } = await played(scenario, { faults: true });
  const where: Record<string, string[]> = {};
  for (const cut of cutsOf(log)) {
    for (const key of unknowableCalls(cut)) (where[key] ??= []).push(cut.label);
    for (const moment of momentsAt(reference, cut)) {
      await at(`${cut.label}, ${moment} calls in progress acted`, async () => {
        const from = await worldAfterCrash(reference, { cut, moment, store: await store() });
        await resumeAndCompare(scenario, reference, from);
        await from.store.close();
      });
    }
  }
  return where;
}

/** A store on SQLite that has a snapshot after almost every entry. */
export function snapshotting(): RunStore {
  return { ...sqliteStore(':memory:'), snapshotFrom: 2 };
}

/** The same in a database of PostgreSQL. Its entries are removed when the store is closed. */
export function snapshottingIn(database: TestDatabase): () => Promise<RunStore> {
  return async () => ({ ...(await database.open()), snapshotFrom: 2, close: () => database.clear() });
}

/** How an append fails: synchronously, asynchronously, or after it was stored. */
type FailureMode = 'throws' | 'rejects' | 'unacknowledged';

interface Failure {
  /** The append that fails, from 0; those after it fail as well. */
  readonly at: number;
  readonly how: FailureMode;
  /** Only appends of this run fail. */
  readonly only?: string;
}

/** Makes the appends of a store fail from one of them on. */
function failingDisk({ at, how, only }: Failure): (store: RunStore) => RunStore {
  const failure = new Error('the disk failed');
  let appends = 0;

  async function fail(write?: () => void | Promise<void>): Promise<void> {
    await write?.();
    throw failure;
  }

  return (store) => ({
    ...store,
    append(runId, entries, lease, until) {
      const write = (): void | Promise<void> => store.append(runId, entries, lease, until);
      if (only !== undefined && only !== runId) return write();
      const count = appends++;
      if (count < at) return write();
      if (how === 'throws') throw failure;
      return fail(how === 'unacknowledged' && count === at ? write : undefined);
    },
  });
}

/** A disk that fails from one append on, and then has lost everything that no append made durable. */
interface LosingDisk {
  readonly wrap: (store: RunStore) => RunStore;
  /** How much of the log is durable. */
  readonly durable: () => number;
}

/** `logged`: the length of the log at the beginning. */
function losingDisk(at: number, logged: number): LosingDisk {
  const failing = failingDisk({ at, how: 'rejects' });
  let written = logged;
  let durable = logged;
  const note = (added: number, until?: Stored): void => {
    written += added;
    if (until === undefined || until === 'durable') durable = written;
  };
  return {
    durable: () => durable,
    wrap: (store) =>
      failing({
        ...store,
        append(runId, entries, lease, until) {
          void store.append(runId, entries, lease, until);
          note(entries.length, until);
        },
        blobs: {
          ...store.blobs,
          async put(runId, text, until) {
            const id = await store.blobs.put(runId, text, until);
            note(1, until);
            return id;
          },
        },
      }),
  };
}

/** Which appends fail: from one of them, each or every second one. */
export interface Appends {
  readonly first: 0 | 1;
  readonly step: 1 | 2;
}

export const EACH_APPEND: Appends = { first: 0, step: 1 };

/** Lets the power fail at appends in turn, and resumes from the durable entries. Returns how often some were lost. */
export async function losePowerEverywhere(scenario: Scenario, { first: from, step }: Appends): Promise<number> {
  const reference = await played(scenario, { faults: false });
  let losses = 0;
  for (let append: number = from; ; append += step) {
    const log: Logged[] = [];
    const store = logged(memoryJournal(), log);
    const started = world({ log, store });
    await scenario.begin?.(started);
    const { wrap, durable } = losingDisk(append, log.length);
    const first = world({ ...started, store: wrap(store), wrap, faults: true });
    const { world: last, ended } = await playUntilFailure(scenario, first);
    if (ended) {
      expect(durable(), 'the run ended before everything was durable').toBe(last.log.length);
      return losses;
    }
    const kept = last.log.slice(0, durable());
    if (kept.length < last.log.length) losses++;
    await at(`append ${append}, with ${kept.length} of ${last.log.length} entries`, async () => {
      checkCause({ ...last, log: kept, actions: last.actions.filter(({ effect }) => effect !== 'pure') });
      const after = await restarted({ ...last, log: kept, wrap: (store) => store });
      await resumeAndCompare(scenario, reference, after);
    });
  }
}

/** Lets appends fail in turn, and resumes from the durable entries. Returns the number of appends. */
export async function failEverywhere(
  scenario: Scenario,
  death: Omit<Failure, 'at'>,
  { first: from, step }: Appends,
): Promise<number> {
  const reference = await played(scenario, { faults: false });
  for (let append: number = from; ; append += step) {
    const log: Logged[] = [];
    const store = logged(memoryJournal(), log);
    const started = world({ log, store });
    await scenario.begin?.(started);
    const wrap = failingDisk({ ...death, at: append });
    const first = world({ ...started, store: wrap(store), wrap, faults: true });
    const { world: last, ended } = await playUntilFailure(scenario, first);
    if (ended) return append;
    checkCause(last);
    const after = await restarted({ ...last, wrap: (store) => store });
    await at(`append ${append}`, () => resumeAndCompare(scenario, reference, after));
  }
}

/** I8: the event that caused an action was durable before it. */
function checkCause({ actions, log }: World): void {
  const entries = log.filter((item) => item.type === 'entry');
  const issued = new Set(entries.flatMap(({ runId, entry }) => entry.issued.map((id) => `${runId}/${id}`)));
  expect(actions.filter(({ key }) => !issued.has(key))).toEqual([]);
}
