import { journalError } from '../errors.ts';
import { itemsBetween, type Item } from '../journal/items.ts';
import type { Journal, JournalEntry, Stored } from '../journal/port.ts';
import { entryOf, unpinnedEntry } from '../journal/replay.ts';
import { snapshotOf } from '../journal/snapshot.ts';
import { isPaused, slotIndex, waiting, type Effect } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import type { Rules } from '../machine/rules.ts';
import { parkingOf } from '../machine/parking.ts';
import type { Call, Parking, State } from '../machine/state.ts';
import { activeMsAt, step, type Next } from '../machine/step.ts';
import { added, mapped } from '../machine/history.ts';
import { abortChildren, abortEffects, changeToAgent, performEffect, type RunContext } from './perform.ts';

/**
 * Drives one run: applies events, journals them, notifies the listener, and performs the effects.
 *
 * 1. An event that does not apply is dropped and never journaled.
 * 2. An effect starts only when the journal has accepted the event that issued it, and all events before it. An effect that
 *    is not `pure` starts only when they are durable (I8). Model calls do not wait: a call that a crash loses is repeated.
 * 3. The listener receives an event when the journal has accepted it, in order; with `durableItems` when it is durable.
 *    Errors thrown by the listener are ignored.
 * 4. When the active time is used up, nothing else starts, also if the event loop was blocked and no timer fired.
 * 5. The shell is done when the run has ended, is paused or was detached, and everything is durable. If the journal
 *    fails, it stops at once.
 * 6. An effect starts only while the lease is valid. If the lease is lost, the shell stops at once.
 * 7. A cancel, the deadline and a refused budget abort the effects in progress at once, except child runs: those are aborted when the event
 *    is durable. So a child run never ends because of a cancel that its parent then loses.
 */
export interface Shell {
  /** Applies an event at once; false if it does not apply. */
  readonly feed: (event: Event) => boolean;
  /** Applies all events, then does what was asked for early, before it performs any of the effects. */
  readonly begin: (events: readonly Event[], early: readonly (() => void)[]) => void;
  /** Applies no more events and starts no more effects. */
  readonly detach: () => void;
  readonly state: () => State;
  /** How long the run has been active by now. */
  readonly activeMs: () => number;
  /**
   * Applies an event; false if it does not apply. Resolves when it, or the end of the run, is durable; rejects if the
   * journal fails.
   */
  readonly record: (event: Event) => Promise<boolean>;
  /** Stops as if the journal had failed. */
  readonly fail: (error: unknown) => void;
  /** Calls of which something may still be in progress although the run has ended. */
  readonly orphans: readonly Orphan[];
  /** The state in which the run ended, paused or was detached. Rejects only if the journal fails. */
  readonly done: Promise<State>;
}

/** Receives each item, and the states before and after the event that it follows from; signals have neither. */
export type Listener = (item: Item, before?: State, after?: State) => unknown;

/** The abort reason for effects of a detached run. Child runs that are aborted with it detach too. */
export const DETACHED: DOMException = new DOMException('The run was detached.', 'AbortError');

/**
 * Whether the signal of a call was aborted because this process does not drive the run any more. The run has not ended: whoever
 * resumes it asks about the call with `verify`. So a call that goes on elsewhere need not be cancelled.
 */
export function isDetached({ reason }: AbortSignal): boolean {
  return reason === DETACHED;
}

/** The abort reason for tools that wait for answers when the run pauses. */
const PAUSED: DOMException = new DOMException('The run was paused until its questions have answers.', 'AbortError');

export function startShell(context: RunContext, emit: Listener | undefined): Shell {
  const { runId, journal, lease, opening, clock } = context;
  // A journal that ends with the run is not replayed, and the digest costs as much as several turns.
  const toEntry = context.options.journal ? entryOf : unpinnedEntry;
  const alwaysDurable = !context.options.journal || context.options.durableItems === true;
  const isTimed = hasDeadline(opening.rules);
  const { promise: done, resolve, reject } = Promise.withResolvers<State>();
  let { state, seq } = opening;
  /** Steps that are not in the journal yet. */
  let unwritten: Stepped[] | undefined;
  /** Resolves when everything appended is durable, or accepted if that suffices; undefined when it already is. */
  let stored: Promise<void> | undefined;
  /** The last append did not wait until its entries are durable; a run that is resumed may have entries that are not. */
  let unsynced = seq > 0;
  let snapshotAt = nextSnapshot(journal, seq);
  const orphans: Orphan[] = [];
  let { onStored } = context;
  let flushing = false;
  let detached = false;
  let closed = false;
  /** The state that `beforePause` was last called for. */
  let announced: State | undefined;
  let announcing = false;
  /** Effects that wait until the lease is confirmed. */
  let unconfirmed = 0;
  /**
   * Undefined until the run is opened, without a monotonic clock, and without a time limit: reading the clock costs as much as
   * a part of a turn.
   */
  let stopwatch: Stopwatch | undefined;

  function feed(event: Event): boolean {
    if (!stepEvent(event)) return false;
    flush();
    return true;
  }

  async function record(event: Event): Promise<boolean> {
    if (!stepEvent(event)) {
      // The event that ended the run may not be durable yet.
      if (state.phase.type === 'ended') await done;
      return false;
    }
    const { promise, resolve: onDurable } = Promise.withResolvers<void>();
    unwritten!.at(-1)!.onDurable = onDurable;
    flush();
    // The shell may stop before the event is durable.
    await Promise.race([promise, done]);
    return true;
  }

  function begin(events: readonly Event[], early: readonly (() => void)[]): void {
    flushing = true;
    for (const event of events) stepEvent(event);
    if (isTimed && clock.monotonic) stopwatch = startStopwatch(() => clock.monotonic!());
    for (const act of early) act();
    flushing = false;
    flush();
  }

  function activeMs(): number {
    const at = clock.now();
    return activeMsAt(state, stopwatch ? { at, elapsedMs: stopwatch.elapsed() } : { at });
  }

  function stepEvent(given: Event): boolean {
    if (closed || detached) return false;
    const event = stopwatch ? stopwatch.timed(given, state) : given;
    const next = step(state, event);
    if (next.state === state) return false;
    const before = state;
    stopwatch?.applied(event, before);
    unwritten = added(unwritten, { entry: toEntry(seq, event, next), before, next, onDurable: undefined });
    state = next.state;
    seq++;
    if (event.type === 'tool-settled' && event.result.type === 'result' && event.result.handoff) {
      changeToAgent(context, event.result.handoff, before.turn);
    }
    if (mayEndRun(event)) abortIfEnded(before);
    else if (isTimed) endIfOverdue(event.at);
    return true;
  }

  /** A synchronous tool may have returned after the deadline. `step` decides, but it need not be asked long before that. */
  function endIfOverdue(at: number): void {
    const elapsedMs = Math.max(at - state.at, stopwatch?.elapsed() ?? 0);
    if (state.activeMs + elapsedMs + 1 >= state.rules.limits.durationMs!) stepEvent({ type: 'deadline-passed', at });
  }

  /** Appends until nothing is unwritten, because what happens in between may feed more events. Never runs inside itself. */
  function flush(): void {
    if (flushing) return;
    flushing = true;
    try {
      while (unwritten && !closed) {
        const batch = unwritten;
        unwritten = undefined;
        const until = waitsUntil(batch);
        unsynced = until !== 'durable';
        const stepped = journal.append(runId, mapped(batch, entryIn), lease, until);
        const appended = onStored ? Promise.resolve(stepped).then(onStored) : stepped;
        onStored = undefined;
        if (appended || stored) waitForJournal(appended, batch);
        else afterStored(batch);
      }
    } catch (error) {
      stopForError(error);
    }
    flushing = false;
    closeIfDone();
  }

  /**
   * What the effects of these steps wait for. If a driver has died, a call that ends the process has to be written before it
   * starts, so that it is counted. A snapshot covers only what is written: in place of accepted entries, another driver may
   * write different ones.
   */
  function waitsUntil(batch: readonly Stepped[]): Stored {
    if (alwaysDurable || onStored) return 'durable';
    let until: Stored = lease?.takenOver || seq >= snapshotAt ? 'written' : 'accepted';
    for (let i = 0; i < batch.length; i++) {
      const needed = storedBefore(batch[i]!);
      if (needed === 'durable') return needed;
      if (needed === 'written') until = needed;
    }
    return until;
  }

  function waitForJournal(appended: void | Promise<unknown>, batch: readonly Stepped[]): void {
    const mine: Promise<void> = Promise.all([stored, appended]).then(() => {
      if (stored === mine) stored = undefined;
      if (closed) return;
      flushing = true;
      afterStored(batch);
      flushing = false;
      flush();
    });
    mine.catch(stopForError);
    stored = mine;
  }

  function afterStored(batch: readonly Stepped[]): void {
    if (context.traced) context.traced.add(batch);
    if (emit) for (let i = 0; i < batch.length; i++) emitStep(batch[i]!, emit);
    for (let i = 0; i < batch.length; i++) {
      const { entry, next, onDurable } = batch[i]!;
      const { effects } = next;
      onDurable?.();
      if (mayEndRun(entry.event) && next.state.phase.type === 'ended') abortChildren(context);
      for (let j = 0; j < effects.length; j++) startEffect(effects[j]!);
    }
    const last = batch.at(-1);
    if (last && last.entry.seq + 1 >= snapshotAt) writeSnapshot(last);
  }

  /** After a stall, the effect starts when the journal has confirmed the lease. */
  function startEffect(effect: Effect): void {
    const confirming = closed || detached ? undefined : lease?.confirm?.();
    if (!confirming) return startConfirmed(effect);
    unconfirmed++;
    confirming
      .then(() => {
        unconfirmed--;
        startConfirmed(effect);
        flush();
      })
      .catch(stopForError);
  }

  /**
   * If the run has ended by now, the effect does not start. This happens when a run is resumed and cancelled at once: a
   * call that was lost is issued again, and its child run may still exist from an earlier process.
   */
  function startConfirmed(effect: Effect): void {
    if (closed || detached) return;
    if (isTimed) endIfOverdue(clock.now());
    if (state.phase.type === 'ended') {
      if (effect.type === 'call-tool') orphans.push({ call: effect.call });
    } else if (context.traced) context.traced.within(effect.id, () => perform(effect));
    else perform(effect);
  }

  function perform(effect: Effect): void {
    if (context.withinBudget) context.withinBudget(context, effect, feed, performEffect);
    else performEffect(context, effect, feed);
  }

  /** The entries that it covers are written. A snapshot only makes opening the run faster, so a failure is ignored. */
  function writeSnapshot({ entry, next }: Stepped): void {
    snapshotAt = nextSnapshot(journal, entry.seq + 1);
    journal.writeSnapshot?.(runId, snapshotOf(next.state, entry.seq + 1)).catch(() => {});
  }

  function abortIfEnded({ phase }: State): void {
    if (state.phase.type !== 'ended') return;
    abortEffects(context);
    if (phase.type !== 'tools') return;
    // A child run that has just paused does not notice that it is aborted.
    for (const slot of phase.slots) {
      const { type, call } = slot;
      const parking = parkingOf(slot);
      if (parking.parked || (type === 'running' && call.limits)) orphans.push({ call, ...parking });
    }
  }

  function detach(): void {
    if (closed || detached) return;
    detached = true;
    abortEffects(context, DETACHED);
    abortChildren(context, DETACHED);
    if (!flushing) closeIfDone();
  }

  function closeIfDone(): void {
    if (closed || stored || unwritten || unconfirmed > 0) return;
    const mayPause = !detached && state.phase.type !== 'ended';
    if (mayPause && !isPaused(state)) return;
    if (unsynced) return syncAndClose();
    if (mayPause && mayBeAnswered()) return;
    closed = true;
    // Tools that wait for answers: they are called again when the run is resumed with the answers.
    if (context.runningTools.size > 0) abortEffects(context, PAUSED);
    resolve(state);
  }

  /** Calls `beforePause` once for each state in which the run would pause, one call at a time. True until it has settled. */
  function mayBeAnswered(): boolean {
    const { beforePause } = context.options;
    if (!beforePause || (announced === state && !announcing)) return false;
    if (announcing) return true;
    announced = state;
    announcing = true;
    const settled = (): void => {
      announcing = false;
      if (!flushing) closeIfDone();
    };
    void (async () => beforePause(waiting(state)))().then(settled, settled);
    return true;
  }

  /** A run that ends or pauses is durable already; one that is detached, or resumed while it is paused, may not be. */
  function syncAndClose(): void {
    unsynced = false;
    try {
      waitForJournal(journal.append(runId, NO_ENTRIES, lease), NO_STEPS);
    } catch (error) {
      stopForError(error);
    }
  }

  /** Aborts as if detached: the run has not ended, and can be resumed from what is durable. */
  function stopForError(error: unknown): void {
    if (closed) return;
    closed = true;
    abortEffects(context, DETACHED);
    abortChildren(context, DETACHED);
    reject(journalError(runId, error));
  }

  if (lease?.lost?.aborted) stopForError(lease.lost.reason);
  else lease?.lost?.addEventListener('abort', () => stopForError(lease.lost!.reason), { once: true });

  return { feed, begin, record, fail: stopForError, detach, state: () => state, activeMs, orphans, done };
}

/** A call that the end of its run leaves behind: it has a child run, or continues elsewhere. */
export interface Orphan {
  readonly call: Call;
  readonly parked?: Parking;
}

/** An event that was applied and is not stored yet. */
export interface Stepped {
  readonly entry: JournalEntry;
  readonly before: State;
  readonly next: Next;
  onDurable: (() => void) | undefined;
}

/** Measures the time between events by the monotonic clock. */
interface Stopwatch {
  /** The time since the last event, with what earlier events did not count. */
  readonly elapsed: () => number;
  /** The event, with the time that has passed if the clocks differ. */
  readonly timed: (event: Event, before: State) => Event;
  /** The event that was timed last has been applied. */
  readonly applied: (event: Event, before: State) => void;
}

/** A larger difference of two clocks is recorded. Smaller ones are added up until they are as large. */
const CLOCKS_DIFFER_MS = 1_000;

function startStopwatch(monotonic: () => number): Stopwatch {
  let appliedAt = monotonic();
  /** The time that has passed since the start, and that the events do not count. */
  let uncounted = 0;
  let passed = 0;
  const elapsed = (): number => monotonic() - appliedAt + uncounted;
  const counted = (event: Event, before: State): number => event.elapsedMs ?? Math.max(0, event.at - before.at);
  return {
    elapsed,
    timed(event, before) {
      passed = elapsed();
      const differs = Math.abs(passed - counted(event, before)) > (mayEndRun(event) ? 1 : CLOCKS_DIFFER_MS);
      return differs ? { ...event, elapsedMs: Math.max(0, Math.round(passed)) } : event;
    },
    applied(event, before) {
      appliedAt += passed - uncounted;
      uncounted = passed - counted(event, before);
    },
  };
}

const NO_STEPS: readonly Stepped[] = [];
const NO_ENTRIES: readonly JournalEntry[] = [];

/**
 * What the journal has to do with a step before anything follows from it. A step has to be durable if somebody outside of
 * the run reported it or waits for it, if it ends or pauses the run, or if it issues an effect that must not be forgotten.
 */
function storedBefore({ entry, before: { phase }, next, onDurable }: Stepped): Stored {
  if (onDurable || entry.status !== undefined) return 'durable';
  const { event } = entry;
  const { effects } = next;
  for (let i = 0; i < effects.length; i++) if (mustBeRemembered(effects[i]!)) return 'durable';
  switch (event.type) {
    // What came of a call that is not `pure` is not found out by calling again.
    case 'tool-settled':
    case 'tool-parked': {
      const slot = phase.type === 'tools' ? phase.slots[slotIndex(phase.slots, event.effect)] : undefined;
      return slot?.call.effect === 'pure' ? 'accepted' : 'written';
    }
    // Nobody would report these facts again. The start of a run is acknowledged with the result.
    case 'input-added':
    case 'tools-changed':
    case 'narrowing-lifted':
    case 'policy-changed':
    case 'approval-given':
    case 'client-result-given':
    case 'question-answered':
    case 'cancel-requested':
    case 'effect-lost':
      return 'durable';
    default:
      return 'accepted';
  }
}

/** An effect that was performed and forgotten is performed again, which only a `pure` one allows. */
function mustBeRemembered(effect: Effect): boolean {
  return effect.type === 'verify-tool' || (effect.type === 'call-tool' && effect.call.effect !== 'pure');
}

/** Only a cancel, the deadline and a refused budget end a run while effects are in progress. */
function mayEndRun({ type }: Event): boolean {
  return type === 'cancel-requested' || type === 'deadline-passed' || type === 'budget-refused';
}

/** Whether the time is checked after each event, and before each effect. */
function hasDeadline({ limits }: Rules): boolean {
  return limits.durationMs !== undefined;
}

function entryIn({ entry }: Stepped): JournalEntry {
  return entry;
}

function emitStep({ entry: { seq, event }, before, next }: Stepped, emit: Listener): void {
  emit({ type: 'fact', seq, event }, before, next.state);
  const items = itemsBetween(before, next, event);
  for (let i = 0; i < items.length; i++) emit(items[i]!, before, next.state);
}

/** The cost of a snapshot grows with the run, so the next one is written when the run is half as long again. */
function nextSnapshot({ snapshotFrom = Infinity }: Journal, seq: number): number {
  return Math.max(snapshotFrom, Math.ceil(seq * 1.5));
}
