import {
  forkRun,
  memoryJournal,
  messagesOf,
  outstanding,
  replay,
  TreadleError,
  type Divergence,
  type JournalEntry,
  type RunStore,
  type State,
} from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { loadCore } from '../invariants/core.ts';
import { anyRun, scenarioOf, type AnyRun } from './any-run.ts';
import { worldAfterCrash } from './crash.ts';
import { cutsOf } from './cuts.ts';
import { entriesOf, logged, restore, runsOf, type Logged } from './logged-store.ts';
import { play, playUntilFailure, type Played } from './scenario.ts';
import { endsOf, withInterruptedResults, interruptedCalls, stateOf } from './log-queries.ts';
import { COURSE, MARKS, PINNED, TEXTS } from './tampering.ts';
import { RUN, world, type World } from './world.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

const { restoredState, snapshotOf } = loadCore();

async function played(
  run: AnyRun,
  options: { readonly faults?: boolean; readonly store?: RunStore } = {},
): Promise<Played> {
  const { faults = true, store = memoryJournal() } = options;
  const log: Logged[] = [];
  return playUntilFailure(scenarioOf(run), world({ log, store: logged(store, log), faults }));
}

const worlds = new Map<string, Promise<World>>();

/** The world after a run. All properties get the same runs, so each is played once. */
function worldAfter(run: AnyRun): Promise<World> {
  const key = fc.stringify(run);
  const known = worlds.get(key) ?? played(run).then(({ world }) => world);
  worlds.set(key, known);
  return known;
}

/** Plays a run with a crash in between if `crash` is above 0. */
async function playedWithCrash(
  run: AnyRun,
  crash: number,
): Promise<{ readonly reference: World; readonly last: World }> {
  const { world: reference } = await played(run, { faults: false });
  const { world: whole } = await played(run);
  if (crash === 0) return { reference, last: whole };
  const cuts = cutsOf(whole.log);
  const from = await worldAfterCrash(reference, {
    cut: cuts[crash % cuts.length]!,
    moment: 'after',
    store: memoryJournal(),
  });
  return { reference, last: await play(scenarioOf(run), from) };
}

const crash = fc.oneof(fc.constant(0), fc.nat(1_000));

/** A state as plain data. */
function viewOf(state: State): unknown {
  return { ...state, history: messagesOf(state.history), digest: state.history.rolling };
}

/** Forks a run in a copy of its world, without changes. */
async function forkedAt(last: World, at: number): Promise<World> {
  const runId = `fork-${at}`;
  const log = [...last.log];
  const store = logged(await restore(log, memoryJournal()), log);
  const fork = world({ runId, log, store, now: last.clock.now() + 1_000 });
  await forkRun({ journal: store, runId: RUN, at, newRunId: runId });
  return fork;
}

test('a fork at any entry with the same answers has the same end and repeats no action', async () => {
  const count = { forked: 0, refused: 0 };
  const somewhere = fc.array(fc.nat(1_000), { minLength: 4, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(anyRun, crash, somewhere, async (run, crash, picks) => {
      const { reference, last } = await playedWithCrash(run, crash);
      const entries = entriesOf(last.log, RUN);
      for (const at of new Set(picks.map((pick) => pick % entries.length))) {
        const fork = await forkedAt(last, at).catch((error: unknown) => expectRefusal(error, entries, at));
        count[fork ? 'forked' : 'refused']++;
        if (!fork) continue;
        const after = await play(scenarioOf(run), fork);
        const interrupted = interruptedCalls(after.log);
        const end = withInterruptedResults(fork.runId, endsOf(reference.log)[RUN]!, interrupted);
        expectResultsUsed(fork.runId, interrupted, entries);
        expect(endsOf(after.log)[fork.runId]).toEqual(end);
        expectNothingTwice(after, entries.slice(0, at + 1));
      }
    }),
    { numRuns: 60 * CASES },
  );
  expect(count.forked).toBeGreaterThan(100 * CASES);
  expect(count.refused).toBeLessThan(count.forked / 5);
});

/** A fork is refused only if a call in progress could act twice and has no result that the fork could use. */
function expectRefusal(error: unknown, entries: readonly JournalEntry[], at: number): undefined {
  expect(error).toBeInstanceOf(TreadleError);
  expect(error).toMatchObject({ code: 'invalid-options', message: expect.stringContaining('is outstanding') });
  const [, effect] = /"(t[\d.a-z]+)" is outstanding/.exec((error as Error).message)!;
  expect(outstanding(stateOf(entries.slice(0, at + 1))).map(({ id }) => id)).toContain(effect);
  expect(entries.slice(at + 1).some(({ event }) => event.type === 'tool-settled' && event.effect === effect)).toBe(
    false,
  );
}

/** No call is answered "interrupted" in the fork if the original has a result for it. */
function expectResultsUsed(fork: string, interrupted: ReadonlySet<string>, entries: readonly JournalEntry[]): void {
  for (const { event } of entries) {
    if (event.type !== 'tool-settled' || event.result.type !== 'result') continue;
    expect(interrupted).not.toContain(`${fork}/${event.effect.replace('.verify.', '.tool.')}`);
  }
}

/** Calls that started before the cut do not act again in the fork, unless they are harmless. */
function expectNothingTwice({ runId, actions }: World, kept: readonly JournalEntry[]): void {
  const started = new Set(kept.flatMap(({ issued }) => issued.map((id) => `${runId}/${id}`)));
  expect(actions.filter(({ key, effect }) => started.has(key) && effect !== 'pure')).toEqual([]);
}

describe('the replay of an unchanged journal never diverges', () => {
  test('and gives the result of the run; also from JSON, from SQLite and from any snapshot', async () => {
    await fc.assert(
      fc.asyncProperty(anyRun, fc.nat(1_000), async (run, pick) => {
        const { world: last, result } = await played(run);
        const store = sqliteStore(':memory:');
        await restore(last.log, store);
        for (const runId of runsOf(last.log)) {
          const entries = entriesOf(last.log, runId);
          const state = stateOf(entries);
          if (runId === RUN) {
            const { outcome, messages, usage, turns, calls, output, durationMs } = result!;
            expect(endsOf(last.log)[RUN]).toEqual({ outcome, messages, usage, turns, calls, output });
            expect(state.activeMs).toBe(durationMs);
          }
          expect(viewOf(stateOf(JSON.parse(JSON.stringify(entries))))).toEqual(viewOf(state));
          expect(viewOf(stateOf(await store.read(runId)))).toEqual(viewOf(state));
          const seq = pick % (entries.length + 1);
          const snapshot = JSON.parse(JSON.stringify(snapshotOf(stateOf(entries.slice(0, seq)), seq)));
          const rest = replay(entries.slice(seq), { state: restoredState(snapshot)!, seq });
          expect(rest.type).toBe('replayed');
          expect(viewOf(rest.state)).toEqual(viewOf(state));
        }
        await store.close();
      }),
      { numRuns: 60 * CASES },
    );
  });

  test('a run that is resumed from snapshots continues as without them', async () => {
    await fc.assert(
      fc.asyncProperty(anyRun, async (run) => {
        const { world: plain } = await played(run);
        const sqlite = sqliteStore(':memory:');
        for (const store of [memoryJournal(), sqlite]) {
          const { world: last } = await played(run, { store: { ...store, snapshotFrom: 2 } });
          expect(endsOf(last.log)).toEqual(endsOf(plain.log));
          const snapshot = await store.readSnapshot(RUN);
          expect(snapshot!.seq).toBeLessThanOrEqual(entriesOf(last.log, RUN).length);
        }
        await sqlite.close();
      }),
      { numRuns: 25 * CASES },
    );
  });
});

/** A divergence names the entry, its event and the difference, and has the state before the entry. */
function expectNamed(changed: readonly JournalEntry[], found: Divergence): void {
  const { seq, event, effect, difference, state } = found;
  expect(event).toBe(changed[seq]!.event.type);
  expect(difference).not.toBe('');
  if (effect !== undefined) expect(difference).toContain(effect);
  expect(viewOf(stateOf(changed.slice(0, seq)))).toEqual(viewOf(state));
}

/** The history and the outcome of a run, without the text of its error. */
function courseOf(state: State): unknown {
  const outcome = state.phase.type === 'ended' ? state.phase.outcome : undefined;
  const ended = outcome?.type === 'failed' ? { ...outcome, error: outcome.error.code } : outcome;
  return { ended, messages: messagesOf(state.history) };
}

describe.each([
  ['text', TEXTS],
  ['what an event pins', PINNED],
  ['the metadata of an entry', MARKS],
])('a change of %s is found', (_, kinds) => {
  test.each(Object.entries(kinds))('%s', async (_, tamper) => {
    let changes = 0;
    await fc.assert(
      fc.asyncProperty(anyRun, fc.nat(1_000), async (run, pick) => {
        const last = await worldAfter(run);
        const changed = tamper(entriesOf(last.log, RUN), pick);
        if (!changed) return;
        const replayed = replay(changed);
        if (replayed.type !== 'diverged') throw new Error(`the change was not found in ${JSON.stringify(changed)}`);
        expectNamed(changed, replayed);
        changes++;
      }),
      { numRuns: 40 },
    );
    expect(changes).toBeGreaterThan(0);
  });
});

describe('any other change is found if it changes the course of the run', () => {
  test.each(Object.entries(COURSE))('%s', async (_, tamper) => {
    let found = 0;
    await fc.assert(
      fc.asyncProperty(anyRun, fc.nat(1_000), async (run, pick) => {
        const last = await worldAfter(run);
        const entries = entriesOf(last.log, RUN);
        const changed = tamper(entries, pick);
        if (!changed) return;
        const replayed = replay(changed);
        if (replayed.type === 'diverged') {
          expectNamed(changed, replayed);
          found++;
        } else expect(courseOf(replayed.state)).toEqual(courseOf(stateOf(entries)));
      }),
      { numRuns: 60 },
    );
    expect(found).toBeGreaterThan(0);
  });
});
