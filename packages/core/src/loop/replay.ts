import { mapped } from '../mapped.ts';
import type { JournalEntry, RunStatus } from '../journal/port.ts';
import { roll } from './digest.ts';
import { isKnown } from './fits.ts';
import { digestOf } from './history.ts';
import { isPaused, outstanding } from './outstanding.ts';
import { NEW, step } from './step.ts';
import type { Next } from './turn.ts';
import type { Event } from './events.ts';
import type { Outcome, State } from './state.ts';

export type Replayed = { readonly type: 'replayed'; readonly state: State } | Divergence;

/** The journal says otherwise than the code: the state is the one before that entry. */
export interface Divergence {
  readonly type: 'diverged';
  readonly state: State;
  readonly seq: number;
  /** The type of the entry's event. */
  readonly event: string;
  /** That comes out otherwise, or that the event is about. */
  readonly effect?: string;
  /** What differs, in words. */
  readonly difference: string;
}

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
    const next = entry.v === 1 && entry.seq === seq ? step(state, entry.event) : undefined;
    const different = next ? differenceOf(entry, next, state) : misplaced(entry, seq);
    if (different) return { type: 'diverged', state, seq, event: entry.event.type, ...different };
    state = next!.state;
  }
  return { type: 'replayed', state };
}

type Difference = Pick<Divergence, 'effect' | 'difference'>;

function misplaced(entry: JournalEntry, seq: number): Difference {
  if (entry.v !== 1) return { difference: `the entry has version ${String(entry.v)}; this code reads version 1` };
  return { difference: `the entry at position ${seq} says that it is number ${entry.seq}` };
}

function differenceOf(entry: JournalEntry, next: Next, before: State): Difference | undefined {
  if (next.state === before) return unfit(before, entry.event);
  const made = entryOf(entry.seq, entry.event, next);
  const at = made.issued.findIndex((id, index) => id !== entry.issued[index]);
  const effect = at === -1 ? entry.issued[made.issued.length] : (entry.issued[at] ?? made.issued[at]);
  if (effect !== undefined) {
    const [was, is] = [entry.issued, made.issued].map((ids) => ids.join(', ') || 'nothing');
    return { effect, difference: `it issued ${was}; now it issues ${is}` };
  }
  if (entry.status !== made.status) {
    return { difference: `the run was ${standing(entry)} after it; now it is ${standing(made)}` };
  }
  if (entry.digest === made.digest) return undefined;
  const [asked] = made.issued;
  const what = asked === undefined ? 'history and outcome have' : `history for ${asked} has`;
  const difference = `the ${what} digest ${made.digest}; it was ${entry.digest}`;
  return asked === undefined ? { difference } : { effect: asked, difference };
}

function standing({ status }: JournalEntry): RunStatus {
  return status ?? 'running';
}

/** Why an event does not apply. */
function unfit(state: State, event: Event): Difference {
  const effect = 'effect' in event ? event.effect : undefined;
  const difference = `the event "${event.type}" does not apply any more: ${whyUnfit(state, event)}`;
  return effect === undefined ? { difference } : { effect, difference };
}

function whyUnfit(state: State, event: Event): string {
  if (event.type === 'run-started' && state.phase.type === 'new' && !isKnown(event.rules)) {
    const { wording, finish } = event.rules;
    return `this code does not know its rules (wording ${String(wording)}, finish "${finish}")`;
  }
  const open = outstanding(state).map(({ id }) => id);
  const now =
    open.length > 0 ? `under way are ${open.join(', ')}` : `nothing is under way, the run is ${state.phase.type}`;
  return 'effect' in event && event.effect !== undefined ? `it is about ${event.effect}; ${now}` : now;
}

/** What the journal keeps of a step. */
export function entryOf(seq: number, event: Event, { state, effects }: Next): JournalEntry {
  const issued = mapped(effects, ({ id }) => id);
  if (effects[0]?.type === 'call-model') return { v: 1, seq, event, issued, digest: digestOf(state.history) };
  if (state.phase.type === 'ended') {
    const { outcome } = state.phase;
    return { v: 1, seq, event, issued, digest: roll(digestOf(state.history), textsOf(outcome)), status: outcome.type };
  }
  if (isPaused(state)) return { v: 1, seq, event, issued, status: 'paused' };
  return { v: 1, seq, event, issued };
}

/** Without words that are for people: they may be said better one day. */
function textsOf(outcome: Outcome): readonly string[] {
  switch (outcome.type) {
    case 'completed':
      return [outcome.type, outcome.truncated ? 'truncated' : ''];
    case 'exhausted':
      return [outcome.type, outcome.limit];
    case 'failed':
      return [outcome.type, outcome.error.code];
    case 'cancelled':
      return [outcome.type, outcome.phase];
    default:
      return outcome satisfies never;
  }
}
