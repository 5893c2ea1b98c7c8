import type { Snapshot } from '../journal/port.ts';
import type { Message } from '../messages.ts';
import { append, emptyHistory, messagesOf } from './history.ts';
import { NEW } from './step.ts';
import type { State } from './state.ts';

/** The form in which a state is kept: plain JSON, its history as messages. A new edition for every change of `State`. */
interface Kept extends Omit<State, 'history'> {
  readonly edition: typeof EDITION;
  readonly messages: readonly Message[];
}

const EDITION = 2;

export function snapshotOf(state: State, seq: number): Snapshot {
  const { history, ...rest } = state;
  return { seq, state: { edition: EDITION, ...rest, messages: messagesOf(history) } satisfies Kept };
}

/** The state that was kept; absent if another edition of the code kept it, and the run has to be replayed. */
export function restored({ state }: Snapshot): State | undefined {
  const { edition, messages, ...rest } = state as Kept;
  if (edition !== EDITION) return undefined;
  return { ...NEW, ...rest, history: messages.reduce(append, emptyHistory()) };
}
