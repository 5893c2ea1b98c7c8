import { itemsBetween, type Item } from '../journal/items.ts';
import type { JournalEntry } from '../journal/port.ts';
import { statusOf, type JournalStep } from '../journal/replay.ts';
import { slotFor } from '../machine/effects.ts';
import type { Event, RunStarted } from '../machine/events.ts';
import type { State } from '../machine/state.ts';
import { NEW, step } from '../machine/step.ts';

/** One fact of a run, and what it led to: as `walkJournal` finds it in a journal, or `liveSteps` while the run is driven. */
export interface AppliedEntry extends Omit<JournalStep, 'entry'> {
  readonly entry: Pick<JournalEntry, 'seq' | 'event' | 'issued' | 'status'>;
}

/**
 * Makes the steps of a run that is driven, from the facts that its listener gets. Call it for each fact from the first one on.
 * It returns undefined for a fact that is not the next one.
 */
export function liveSteps(): (seq: number, event: Event) => AppliedEntry | undefined {
  let state = NEW;
  let count = 0;
  return (seq, event) => {
    if (seq !== count) return undefined;
    const before = state;
    const next = step(before, event);
    if (next.state === before) return undefined;
    state = next.state;
    count++;
    const status = statusOf(state);
    const entry = {
      seq,
      event,
      issued: next.effects.map(({ id }) => id),
      ...(status !== 'running' && { status }),
    };
    const fact: Item = { type: 'fact', seq, event };
    return { entry, before, state, items: [fact, ...itemsBetween(before, next, event)] };
  };
}

/**
 * Why the effect of an `effect-lost` is performed again. `stopped`: its process or device stopped. `left-out`: a fork did not
 * take over its result. `parked`: it was parked. `failed`: it failed, with the run, which is resumed.
 */
export type Loss = 'stopped' | 'left-out' | 'parked' | 'failed';

/** Whether an entry is the original's of a fork. What the fork took over besides what it shares is older than the fork. */
export function sharedBy({ parent }: RunStarted): (entry: AppliedEntry['entry']) => boolean {
  const { seq: last, at: madeAt = -Infinity } = parent ?? {};
  return last === undefined ? () => false : ({ seq, event }) => seq <= last || event.at < madeAt;
}

/** Call it for each entry, in order. `before`: the state before it; undefined if the entry does not replay. */
export function lossReader(): (
  entry: AppliedEntry['entry'],
  before: JournalStep['before'] | undefined,
) => Loss | undefined {
  /** The last entry that a fork shares with its original. */
  let lastShared = Infinity;
  let isShared: ReturnType<typeof sharedBy> = () => false;
  let fork: 'none' | 'made' | 'begins' | 'driven' = 'none';
  /** After the entry before. */
  let isPaused = false;

  /*
   * The first process that drives a fork finds effects without results, as after a crash. But a call that runs once does not
   * run again in a fork: then the process of the original has stopped. Of a fork whose original is a fork, only `run-forked`
   * tells where that was made.
   */
  return (entry, before) => {
    const { event, seq, status } = entry;
    if (event.type === 'run-started') {
      lastShared = event.parent?.seq ?? Infinity;
      isShared = sharedBy(event);
    }
    // A fork that waits has nothing to perform when it is made. What it took over may pause before its last entry.
    if (fork === 'made' && isPaused && !isShared(entry)) fork = 'driven';
    isPaused = status === 'paused';
    const isLost = event.type === 'effect-lost';
    const isNew = fork === 'made' || fork === 'begins';
    const isOfFork = isNew && isLost && event.cause === 'restart' && !event.died;
    if (seq === lastShared || event.type === 'run-forked') fork = 'made';
    else if (fork === 'begins' && !isOfFork) fork = 'driven';
    if (!isLost) return undefined;
    if (before?.phase.type === 'ended') {
      fork = 'driven';
      return 'failed';
    }
    const slot = before && slotFor(before, event.effect);
    if (slot?.type === 'parked') return 'parked';
    if (!isOfFork || !before || slot?.call.effect === 'once') return 'stopped';
    fork = 'begins';
    return 'left-out';
  };
}

/** The agent that a run is of. */
export function agentIn({ definition, rules }: RunStarted, { handedTo }: Pick<State, 'handedTo'>): string | undefined {
  const { name } = (definition ?? {}) as { readonly name?: unknown };
  return handedTo ?? rules.agent?.name ?? (typeof name === 'string' ? name : undefined);
}
