import type { JournalEntry } from '../journal/port.ts';
import { digestOf } from './history.ts';
import { isPaused } from './outstanding.ts';
import { NEW, step } from './step.ts';
import type { Next } from './turn.ts';
import type { Event, State } from './types.ts';

export type Replayed =
  | { readonly type: 'replayed'; readonly state: State }
  /** The journal says otherwise than the code: the state is the one before that entry. */
  | { readonly type: 'diverged'; readonly state: State; readonly seq: number; readonly difference: string };

/** After so many entries, this state. */
export interface Start {
  readonly state: State;
  readonly seq: number;
}

/** Rebuilds a run's state from its journal. Executes nothing, and stops at the first entry that comes out otherwise. */
export function replay(entries: readonly JournalEntry[], from: Start = { state: NEW, seq: 0 }): Replayed {
  let { state } = from;
  for (const [index, entry] of entries.entries()) {
    const seq = from.seq + index;
    const diverged = (difference: string): Replayed => ({ type: 'diverged', state, seq, difference });
    if (entry.v !== 1) return diverged(`the entry has version ${String(entry.v)}; this code reads version 1`);
    if (entry.seq !== seq) return diverged(`the entry at position ${seq} says that it is number ${entry.seq}`);
    const next = step(state, entry.event);
    if (next.state === state) return diverged(`the event "${entry.event.type}" does not apply any more`);
    const made = entryOf(seq, entry.event, next);
    const [was, is] = [entry.issued.join(', '), made.issued.join(', ')];
    if (was !== is) return diverged(`it issued ${was || 'nothing'}; now it issues ${is || 'nothing'}`);
    if (entry.digest !== made.digest) return diverged(`the history has digest ${made.digest}; it was ${entry.digest}`);
    state = next.state;
  }
  return { type: 'replayed', state };
}

/** What the journal keeps of a step. */
export function entryOf(seq: number, event: Event, { state, effects }: Next): JournalEntry {
  const issued = effects.map(({ id }) => id);
  if (effects[0]?.type === 'call-model') return { v: 1, seq, event, issued, digest: digestOf(state.history) };
  if (state.phase.type === 'ended') return { v: 1, seq, event, issued, status: state.phase.outcome.type };
  if (isPaused(state)) return { v: 1, seq, event, issued, status: 'paused' };
  return { v: 1, seq, event, issued };
}
