import { replay, type JournalEntry, type RunStore, type RunSummary, type State } from '@treadle/core';
import { CommandError } from '../command-line/command.ts';
import { findRun } from './find-run.ts';
import { shortId } from './run-id.ts';

/** A run as it is in the store. */
export interface StoredRun {
  readonly summary: RunSummary;
  readonly entries: readonly JournalEntry[];
}

export async function readRun(store: RunStore, given: string): Promise<StoredRun> {
  const summary = await findRun(store, given);
  return { summary, entries: await store.read(summary.runId) };
}

/** How the run stands after some of its entries, all if nothing is said. Throws if its journal does not replay. */
export function stateOf({ summary: { runId }, entries }: StoredRun, count: number = entries.length): State {
  const replayed = replay(entries.slice(0, count));
  if (replayed.type === 'replayed') return replayed.state;
  throw new CommandError(
    `Run ${shortId(runId)} does not replay with this version of Treadle: at entry ${replayed.seq}, ${replayed.difference}.`,
  );
}
