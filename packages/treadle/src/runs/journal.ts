import { itemsBetween, NEW, replay, step, type Item, type JournalEntry, type State } from '@treadle/core';
import { CommandError } from '../command-line/command.ts';
import { durationText } from '../terminal/quantities.ts';
import { shortId, type StoredRun } from './store-access.ts';

/** One entry of a journal with the states around it. */
export interface JournalStep {
  readonly entry: JournalEntry;
  /** Absent from the first entry on that this version cannot apply. */
  readonly states: { readonly before: State; readonly after: State } | undefined;
  /** It is the first entry that this version cannot apply. */
  readonly diverges: boolean;
  readonly items: readonly Item[];
  /** The time since the effect that the entry settles was last issued. */
  readonly took: string | undefined;
}

/** Applies the entries one after another. Continues without states after an entry that does not apply. */
export function walkJournal(entries: readonly JournalEntry[]): readonly JournalStep[] {
  const issuedAt = new Map<string, number>();
  let state: State | undefined = NEW;
  return entries.map((entry): JournalStep => {
    const { event, issued } = entry;
    const started = 'effect' in event && event.effect !== undefined ? issuedAt.get(event.effect) : undefined;
    for (const effect of issued) issuedAt.set(effect, event.at);
    const before: State | undefined = state;
    const next = before && step(before, event);
    state = next && next.state !== before ? next.state : undefined;
    return {
      entry,
      states: before && state && { before, after: state },
      diverges: before !== undefined && state === undefined,
      items: before && state && next ? itemsBetween(before, state, next.effects) : [],
      took: started === undefined ? undefined : durationText(event.at - started),
    };
  });
}

/** The state after entry `seq`, by default the last one. Throws if there is no such entry or the run does not replay. */
export function stateAfter({ summary, entries }: StoredRun, seq: number = entries.length - 1): State {
  const id = shortId(summary.runId);
  if (seq >= entries.length) {
    throw new CommandError(`Run ${id} has entries 0 to ${entries.length - 1}; there is no entry ${seq}.`);
  }
  const replayed = replay(entries.slice(0, seq + 1));
  if (replayed.type === 'replayed') return replayed.state;
  const { seq: at, difference } = replayed;
  throw new CommandError(`Run ${id} does not replay with this version of Treadle: at entry ${at}, ${difference}.`);
}
