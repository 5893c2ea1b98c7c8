import type { Waiting } from '../machine/state.ts';
import { warnOnce } from '../warning.ts';

/** Tells the developer about a run that has paused and has no journal. Loaded when one has. */
export function warnOfLostPause(waiting: readonly Waiting[]): void {
  const names = new Set(waiting.map(({ type, call }) => `${type} (${call.name})`));
  warnOnce(
    `A run has paused and waits for: ${[...names].join(', ')}. It has no journal, so it cannot be resumed, and nobody can ` +
      'answer. Pass "journal", such as memoryJournal() or sqliteStore(path), and keep it. Resume the run with ' +
      'runLoop({ …, journal, runId, answers: [approve(wait)] }). Or answer before it pauses, in "beforePause".',
  );
}
