import { walkInSlices, type State } from '@treadle/core';
import { shortId } from '@treadle/core/describe';
import { CommandError } from '../command-line/command.ts';
import type { StoredRun } from './store-access.ts';

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
