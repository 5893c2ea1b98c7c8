import type { RunStore } from '@treadle/core';
import { expect } from 'vitest';
import type { Cut } from './cuts.ts';
import { logged, restore } from './logged-store.ts';
import { play, type Scenario } from './scenario.ts';
import {
  startedCalls,
  endsOf,
  withInterruptedResults,
  interruptedCalls,
  parkedCalls,
  settledCalls,
} from './log-queries.ts';
import { world, type Action, type World } from './world.ts';

const HOUR = 3_600_000;

/** Whether calls in progress at the crash had not yet acted, or had just acted. */
type Moment = 'before' | 'after';

export interface Crash {
  readonly cut: Cut;
  readonly moment: Moment;
  /** An empty store for the process after the crash. */
  readonly store: RunStore;
}

/** The world an hour after a process crashed at the cut. */
export async function worldAfterCrash(reference: World, { cut, moment, store }: Crash): Promise<World> {
  const log = [...cut.log];
  const last = Math.max(1_000, ...log.map((item) => (item.type === 'entry' ? item.entry.event.at : 0)));
  const actions = actionsAt(reference, cut, moment);
  return world({ log, store: logged(await restore(log, store), log), now: last + HOUR, actions });
}

function actionsAt(reference: World, { log }: Cut, moment: Moment): readonly Action[] {
  const certain = new Set([...settledCalls(log), ...parkedCalls(log)]);
  const possible = new Set([...startedCalls(log).keys(), ...interruptedCalls(log)]);
  return reference.actions.filter(({ key }) => certain.has(key) || (moment === 'after' && possible.has(key)));
}

/** The moments of a crash that differ: without calls in progress that act, both are the same. */
export function momentsAt(reference: World, cut: Cut): readonly Moment[] {
  const [before, after] = (['before', 'after'] as const).map((moment) => actionsAt(reference, cut, moment).length);
  return before === after ? ['before'] : ['before', 'after'];
}

/** Calls whose effect can never be known, derived from the journal. */
export function unknowableCalls({ log }: Pick<Cut, 'log'>): ReadonlySet<string> {
  const lost = [...startedCalls(log)].filter(([, { effect, verifiable, arguments: text }]) =>
    verifiable ? text.includes('hazy') : effect === 'once',
  );
  return new Set([...interruptedCalls(log), ...lost.map(([key]) => key)]);
}

/** Resumes a scenario after a crash, and compares its end with that of an undisturbed run. */
export async function resumeAndCompare(scenario: Scenario, reference: World, from: World): Promise<void> {
  const unknown = unknowableCalls(from);
  const before = [...from.actions];
  const settled = settledCalls(from.log);
  const after = await play(scenario, from);
  expect(after.given).toEqual(reference.given);
  const repeated = after.actions.slice(before.length).filter(({ key }) => settled.has(key));
  expect(repeated, 'a call that had its result ran again').toEqual([]);
  const abandoned = new Set(scenario.abandoned);
  const ends = Object.entries(endsOf(after.log)).filter(([runId]) => !abandoned.has(runId));
  const expected = Object.entries(endsOfReference(reference)).filter(([runId]) => !abandoned.has(runId));
  expect(Object.fromEntries(ends)).toEqual(
    Object.fromEntries(expected.map(([runId, end]) => [runId, withInterruptedResults(runId, end, unknown)])),
  );
  if (!scenario.abandoned) expect(interruptedCalls(after.log)).toEqual(unknown);
  if (unknown.size === 0)
    for (const [key, requests] of after.requests) expect(requests).toBe(reference.requests.get(key));
  checkLedger(reference, after, { unknown, before, abandoned });
}

const known = new WeakMap<World, ReturnType<typeof endsOf>>();

/** A reference is compared with the run after each crash, and does not change. */
function endsOfReference(reference: World): ReturnType<typeof endsOf> {
  const ends = known.get(reference) ?? endsOf(reference.log);
  known.set(reference, ends);
  return ends;
}

interface Known {
  readonly unknown: ReadonlySet<string>;
  /** The actions before it was resumed. */
  readonly before: readonly Action[];
  readonly abandoned: ReadonlySet<string>;
}

/** No action has an unexpected key, none with the effect `once` happened twice, and none is missing. */
function checkLedger(reference: World, { actions, log }: World, { unknown, before, abandoned }: Known): void {
  const keys = new Set(reference.actions.map(({ key }) => key));
  expect(actions.filter(({ key }) => !keys.has(key))).toEqual([]);
  const stopped = startedCalls(log, 'when it ended');
  for (const { key, effect } of reference.actions) {
    const times = actions.filter((action) => action.key === key).length;
    if (effect === 'once') expect(times, `${key} was done`).toBeLessThan(2);
    if (unknown.has(key)) expect(times, `${key} was done`).toBe(before.filter((action) => action.key === key).length);
    else if (!stopped.has(key) && !abandoned.has(key.slice(0, key.indexOf('/'))))
      expect(times, `${key} was done`).toBeGreaterThan(0);
  }
}
