import type { RunStore } from '@treadle/core';
import { expect } from 'vitest';
import type { Cut } from './cuts.ts';
import { logged, restore } from './logged-store.ts';
import { play, type Scenario } from './scenario.ts';
import { begunIn, endsOf, interrupted, interruptedIn, settledIn } from './standing.ts';
import { world, type Deed, type World } from './world.ts';

const HOUR = 3_600_000;

/** What was under way when it crashed had not yet happened, or had happened just before. */
export type Moment = 'before' | 'after';

export interface Crash {
  readonly cut: Cut;
  readonly moment: Moment;
  /** An empty one. */
  readonly store: RunStore;
}

/** What a process leaves behind that was killed there, an hour ago. */
export async function crashed(reference: World, { cut, moment, store }: Crash): Promise<World> {
  const log = [...cut.log];
  const last = Math.max(1_000, ...log.map((item) => (item.type === 'entry' ? item.entry.event.at : 0)));
  const deeds = deedsAt(reference, cut, moment);
  return world({ log, store: logged(await restore(log, store), log), now: last + HOUR, deeds });
}

function deedsAt(reference: World, { log }: Cut, moment: Moment): readonly Deed[] {
  const certain = settledIn(log);
  const possible = new Set([...begunIn(log).keys(), ...interruptedIn(log)]);
  return reference.deeds.filter(({ key }) => certain.has(key) || (moment === 'after' && possible.has(key)));
}

/** Calls of which nobody will ever know whether they took effect: known from what is in the journal. */
export function unknowable({ log }: Pick<Cut, 'log'>): ReadonlySet<string> {
  const lost = [...begunIn(log)].filter(([, { effect, verifiable, arguments: text }]) =>
    verifiable ? text.includes('hazy') : effect === 'once',
  );
  return new Set([...interruptedIn(log), ...lost.map(([key]) => key)]);
}

/** Plays a scenario on from where it crashed, and holds its end against one that nothing has disturbed. */
export async function goOn(scenario: Scenario, reference: World, from: World): Promise<void> {
  const unknown = unknowable(from);
  const before = [...from.deeds];
  const settled = settledIn(from.log);
  const after = await play(scenario, from);
  expect(after.given).toEqual(reference.given);
  const anew = after.deeds.slice(before.length).filter(({ key }) => settled.has(key));
  expect(anew, 'what had its result ran again').toEqual([]);
  const left = new Set(scenario.left);
  const ends = Object.entries(endsOf(after.log)).filter(([runId]) => !left.has(runId));
  const expected = Object.entries(endsOf(reference.log)).filter(([runId]) => !left.has(runId));
  expect(Object.fromEntries(ends)).toEqual(
    Object.fromEntries(expected.map(([runId, end]) => [runId, interrupted(runId, end, unknown)])),
  );
  if (!scenario.left) expect(interruptedIn(after.log)).toEqual(unknown);
  if (unknown.size === 0) for (const [key, asked] of after.asked) expect(asked).toBe(reference.asked.get(key));
  checkLedger(reference, after, { unknown, before, left });
}

interface Known {
  readonly unknown: ReadonlySet<string>;
  /** What was done before it went on. */
  readonly before: readonly Deed[];
  readonly left: ReadonlySet<string>;
}

/** Nothing was done under a key that the undisturbed run does not have, nothing that acts once twice, nothing not at all. */
function checkLedger(reference: World, { deeds, log }: World, { unknown, before, left }: Known): void {
  const keys = new Set(reference.deeds.map(({ key }) => key));
  expect(deeds.filter(({ key }) => !keys.has(key))).toEqual([]);
  const stopped = begunIn(log, 'when it ended');
  for (const { key, effect } of reference.deeds) {
    const times = deeds.filter((deed) => deed.key === key).length;
    if (effect === 'once') expect(times, `${key} was done`).toBeLessThan(2);
    if (unknown.has(key)) expect(times, `${key} was done`).toBe(before.filter((deed) => deed.key === key).length);
    else if (!stopped.has(key) && !left.has(key.slice(0, key.indexOf('/'))))
      expect(times, `${key} was done`).toBeGreaterThan(0);
  }
}
