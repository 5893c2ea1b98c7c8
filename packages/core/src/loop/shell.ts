import { messageOf, TreadleError } from '../errors.ts';
import type { Journal, JournalEntry, Lease } from '../journal/port.ts';
import { itemsBetween } from './items.ts';
import type { Item } from './options.ts';
import { isPaused } from './outstanding.ts';
import type { Performer } from './perform.ts';
import { entryOf } from './replay.ts';
import { snapshotOf } from './snapshot.ts';
import { step } from './step.ts';
import type { Effect, Event, State } from './types.ts';

/**
 * Drives one run: facts in, effects out.
 *
 * 1. A fact that does not apply is dropped and never journaled.
 * 2. An effect begins only when the fact that caused it, and all before it, are durable (I8).
 * 3. Listeners hear of a fact when it is durable, in order; what they throw is theirs.
 * 4. It is done when the run has ended, or is paused, and everything is durable. If the journal fails it stops there.
 */
export interface Shell {
  /** Steps at once; false if the fact does not apply. */
  readonly feed: (event: Event) => boolean;
  /** Steps through all of them before anything that follows from them is done. */
  readonly begin: (events: readonly Event[]) => void;
  readonly state: () => State;
  /** The state in which the run ended or paused. Rejects only if the journal fails. */
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
  readonly emit: ((item: Item) => void) | undefined;
}

export function shell({ runId, journal, lease, performer, emit, ...from }: ShellOptions): Shell {
  const { promise: done, resolve, reject } = Promise.withResolvers<State>();
  let { state, seq } = from;
  let entries: JournalEntry[] = [];
  let effects: Effect[] = [];
  let items: Item[] = [];
  /** Settled when all that was appended is durable; absent when it is already. */
  let durable: Promise<void> | undefined;
  let flushing = false;
  let closed = false;

  let snapshotAt = nextSnapshot(journal, seq);

  /** Only makes the run open faster, so whether it succeeds is of no consequence. */
  function keepSnapshot(): void {
    snapshotAt = nextSnapshot(journal, seq);
    journal.writeSnapshot?.(runId, snapshotOf(state, seq)).catch(() => {});
  }

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
    if (closed) return false;
    const next = step(state, event);
    if (next.state === state) return false;
    const entry = entryOf(seq, event, next);
    if (emit) items.push({ type: 'fact', seq, event }, ...itemsBetween(state, next.state, next.effects));
    entries.push(entry);
    effects.push(...next.effects);
    state = next.state;
    seq++;
    if (event.type === 'cancel-requested' || event.type === 'deadline-passed') abortIfEnded();
    return true;
  }

  /** Whatever happens on the way may feed more, so this goes on until nothing is left; it never runs inside itself. */
  function flush(): void {
    if (flushing) return;
    flushing = true;
    try {
      while (entries.length > 0 && !closed) {
        const caused = effects;
        const told = items;
        const appended = journal.append(runId, entries, lease);
        entries = [];
        effects = [];
        items = [];
        if (seq >= snapshotAt) keepSnapshot();
        if (appended || durable) wait(appended, caused, told);
        else settle(caused, told);
      }
    } catch (error) {
      broken(error);
    }
    flushing = false;
    close();
  }

  function wait(appended: void | Promise<void>, caused: readonly Effect[], told: readonly Item[]): void {
    const mine: Promise<void> = Promise.all([durable, appended]).then(() => {
      if (durable === mine) durable = undefined;
      if (closed) return;
      flushing = true;
      settle(caused, told);
      flushing = false;
      flush();
    });
    mine.catch(broken);
    durable = mine;
  }

  function settle(caused: readonly Effect[], told: readonly Item[]): void {
    for (const item of told) emit!(item);
    for (const effect of caused) {
      if (state.phase.type === 'ended') return;
      performer.perform(effect, feed);
    }
  }

  /** Only these two end a run while something goes on. */
  function abortIfEnded(): void {
    if (state.phase.type === 'ended') performer.abort();
  }

  function close(): void {
    if (closed || durable || entries.length > 0) return;
    if (state.phase.type !== 'ended' && !isPaused(state)) return;
    closed = true;
    resolve(state);
  }

  function broken(error: unknown): void {
    if (closed) return;
    closed = true;
    performer.abort();
    reject(journalError(runId, error));
  }

  return { feed, begin, state: () => state, done };
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
