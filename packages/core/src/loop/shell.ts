import { messageOf, TreadleError } from '../errors.ts';
import { mapped } from '../mapped.ts';
import type { Journal, JournalEntry, Lease } from '../journal/port.ts';
import { DETACHED } from './detach.ts';
import { itemsBetween } from './items.ts';
import type { Item } from './options.ts';
import { isPaused } from './outstanding.ts';
import type { Performer } from './perform.ts';
import { entryOf } from './replay.ts';
import { snapshotOf } from './snapshot.ts';
import { step } from './step.ts';
import type { Next } from './turn.ts';
import type { Effect } from './effects.ts';
import type { Event } from './events.ts';
import type { Call, State } from './state.ts';

/**
 * Drives one run: facts in, effects out.
 *
 * 1. A fact that does not apply is dropped and never journaled.
 * 2. An effect begins only when the fact that caused it, and all before it, are durable (I8).
 * 3. Listeners hear of a fact when it is durable, in order; what they throw is theirs.
 * 4. It is done when the run has ended, is paused or was detached, and everything is durable. If the journal fails it
 *    stops there.
 */
export interface Shell {
  /** Steps at once; false if the fact does not apply. */
  readonly feed: (event: Event) => boolean;
  /** Steps through all of them before anything that follows from them is done. */
  readonly begin: (events: readonly Event[]) => void;
  /** Takes no more facts and begins nothing more. */
  readonly detach: () => void;
  readonly state: () => State;
  /** Stops as if the journal had failed. */
  readonly fail: (error: unknown) => void;
  /** Calls that may go on elsewhere though the run was ended. */
  readonly orphans: () => readonly Call[];
  /** The state in which the run ended, paused or was detached. Rejects only if the journal fails. */
  readonly done: Promise<State>;
}

export interface ShellOptions {
  readonly state: State;
  /** How many entries the journal has. */
  readonly seq: number;
  readonly runId: string;
  readonly journal: Journal;
  readonly lease: Lease | undefined;
  readonly performer: Performer;
  readonly emit: Listener | undefined;
}

/** Hears of each item, and between which states it came about; signals come between none. */
export type Listener = (item: Item, before?: State, after?: State) => unknown;

export function shell(options: ShellOptions): Shell {
  const { runId, journal, lease, performer, emit } = options;
  const { promise: done, resolve, reject } = Promise.withResolvers<State>();
  let { state, seq } = options;
  /** What is not in the journal yet. */
  let taken = NONE;
  /** Settled when all that was appended is durable; absent when it is already. */
  let durable: Promise<void> | undefined;
  let snapshotAt = nextSnapshot(journal, seq);
  const orphans: Call[] = [];
  let flushing = false;
  let detached = false;
  let closed = false;

  function feed(event: Event): boolean {
    if (!take(event)) return false;
    flush();
    return true;
  }

  function begin(events: readonly Event[]): void {
    for (const event of events) take(event);
    flush();
  }

  function take(event: Event): boolean {
    if (closed || detached) return false;
    const next = step(state, event);
    if (next.state === state) return false;
    const before = state;
    const one: Taken = { entry: entryOf(seq, event, next), before, next };
    // Mostly it is alone, and a list that grows takes room for seventeen.
    if (taken.length === 0) taken = [one];
    else taken.push(one);
    state = next.state;
    seq++;
    if (event.type === 'cancel-requested' || event.type === 'deadline-passed') abortIfEnded(before);
    return true;
  }

  /** Whatever happens on the way may feed more, so this goes on until nothing is left; it never runs inside itself. */
  function flush(): void {
    if (flushing) return;
    flushing = true;
    try {
      while (taken.length > 0 && !closed) {
        const batch = taken;
        taken = NONE;
        const appended = journal.append(runId, mapped(batch, entryIn), lease);
        if (appended || durable) wait(appended, batch);
        else settle(batch);
      }
    } catch (error) {
      broken(error);
    }
    flushing = false;
    close();
  }

  function wait(appended: void | Promise<void>, batch: readonly Taken[]): void {
    const mine: Promise<void> = Promise.all([durable, appended]).then(() => {
      if (durable === mine) durable = undefined;
      if (closed) return;
      flushing = true;
      settle(batch);
      flushing = false;
      flush();
    });
    mine.catch(broken);
    durable = mine;
  }

  function settle(batch: readonly Taken[]): void {
    if (emit) for (let i = 0; i < batch.length; i++) tell(batch[i]!, emit);
    for (let i = 0; i < batch.length; i++) {
      const { effects } = batch[i]!.next;
      for (let j = 0; j < effects.length; j++) commence(effects[j]!);
    }
    const last = batch.at(-1)!;
    if (last.entry.seq + 1 >= snapshotAt) keepSnapshot(last);
  }

  /** A call that was to begin when the run ended may have begun in a process before this one. */
  function commence(effect: Effect): void {
    if (detached) return;
    if (state.phase.type !== 'ended') performer.perform(effect, feed);
    else if (effect.type === 'call-tool') orphans.push(effect.call);
  }

  /** Only makes the run open faster, so whether it succeeds is of no consequence. */
  function keepSnapshot({ entry, next }: Taken): void {
    snapshotAt = nextSnapshot(journal, entry.seq + 1);
    journal.writeSnapshot?.(runId, snapshotOf(next.state, entry.seq + 1)).catch(() => {});
  }

  /** Only these two end a run while something goes on. */
  function abortIfEnded({ phase }: State): void {
    if (state.phase.type !== 'ended') return;
    performer.abort();
    if (phase.type === 'tools') for (const { type, call } of phase.slots) if (type === 'parked') orphans.push(call);
  }

  function detach(): void {
    if (closed || detached) return;
    detached = true;
    performer.abort(DETACHED);
    if (!flushing) close();
  }

  function close(): void {
    if (closed || durable || taken.length > 0) return;
    if (!detached && state.phase.type !== 'ended' && !isPaused(state)) return;
    closed = true;
    resolve(state);
  }

  function broken(error: unknown): void {
    if (closed) return;
    closed = true;
    performer.abort(DETACHED);
    reject(journalError(runId, error));
  }

  return { feed, begin, fail: broken, detach, state: () => state, orphans: () => orphans, done };
}

/** A fact on its way into the journal. */
interface Taken {
  readonly entry: JournalEntry;
  readonly before: State;
  readonly next: Next;
}

const NONE: Taken[] = [];

function entryIn({ entry }: Taken): JournalEntry {
  return entry;
}

function tell({ entry: { seq, event }, before, next }: Taken, emit: Listener): void {
  emit({ type: 'fact', seq, event }, before, next.state);
  const items = itemsBetween(before, next.state, next.effects);
  for (let i = 0; i < items.length; i++) emit(items[i]!, before, next.state);
}

/** Each costs as much as the run is long, so the next waits until that is half as long again. */
function nextSnapshot({ snapshotFrom = Infinity }: Journal, seq: number): number {
  return Math.max(snapshotFrom, Math.ceil(seq * 1.5));
}

/** What a journal says by a code of its own is passed on; anything else is `journal-failed`. */
export function journalError(runId: string, error: unknown): TreadleError {
  if (error instanceof TreadleError) return error;
  const message = `The journal failed, so run "${runId}" stopped: ${messageOf(error)}`;
  return new TreadleError('journal-failed', message, { cause: error });
}
