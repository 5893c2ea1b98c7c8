import { walkInSlices, type Item, type JournalEntry, type JournalStep, type State } from '@treadle/core';
import { CommandError } from '../command-line/command.ts';
import { durationText } from '../terminal/quantities.ts';
import { shortId, type StoredRun } from './store-access.ts';

/** One entry of a journal, as the command shows it. */
export interface ShownEntry {
  readonly entry: JournalEntry;
  /** Absent from the first entry on that does not replay. */
  readonly states: Pick<JournalStep, 'before' | 'state'> | undefined;
  /** It is the first entry that does not replay. */
  readonly diverges: boolean;
  readonly items: readonly Item[];
  /** The time since the effect that the entry settles was last issued. */
  readonly took: string | undefined;
}

/** The entries with their states and items; without states after an entry that does not replay. */
export async function shownEntries(entries: readonly JournalEntry[]): Promise<readonly ShownEntry[]> {
  const steps: JournalStep[] = [];
  await walkInSlices(entries, (step) => void steps.push(step));
  const issuedAt = new Map<string, number>();
  return entries.map((entry, index): ShownEntry => {
    const { event, issued } = entry;
    const started = 'effect' in event && event.effect !== undefined ? issuedAt.get(event.effect) : undefined;
    for (const effect of issued) issuedAt.set(effect, event.at);
    return {
      entry,
      states: steps[index],
      diverges: index === steps.length,
      items: steps[index]?.items ?? [],
      took: started === undefined ? undefined : durationText(event.at - started),
    };
  });
}

/** The state after entry `seq`, by default the last one. Rejects if there is no such entry or the run does not replay. */
export async function stateAfter({ summary, entries }: StoredRun, seq: number = entries.length - 1): Promise<State> {
  const id = shortId(summary.runId);
  if (seq >= entries.length) {
    throw new CommandError(`Run ${id} has entries 0 to ${entries.length - 1}; there is no entry ${seq}.`);
  }
  const replayed = await walkInSlices(entries.slice(0, seq + 1));
  if (replayed.type === 'replayed') return replayed.state;
  const { seq: at, difference } = replayed;
  throw new CommandError(`Run ${id} does not replay with this version of Treadle: at entry ${at}, ${difference}.`);
}
