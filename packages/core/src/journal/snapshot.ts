import { appendMessage, emptyHistory, messagesOf } from '../machine/history.ts';
import type { State } from '../machine/state.ts';
import { NEW } from '../machine/step.ts';
import type { Message } from '../messages.ts';
import type { Snapshot } from './port.ts';

/** The stored form of a state: plain JSON, with the history as messages. */
interface StoredState extends Omit<State, 'history'> {
  readonly edition: typeof EDITION;
  readonly fields: typeof FIELDS;
  readonly messages: readonly Message[];
}

/** Increase it when the meaning of a field of `State` changes. A new or renamed field is detected by `FIELDS`. */
const EDITION = 5;

/** The fields that a state of this version has. JSON drops undefined fields, so the stored state cannot tell. */
const FIELDS: string = Object.keys(NEW).toSorted().join(' ');

export function snapshotOf(state: State, seq: number): Snapshot {
  const { history, ...rest } = state;
  return {
    seq,
    state: { edition: EDITION, fields: FIELDS, ...rest, messages: messagesOf(history) } satisfies StoredState,
  };
}

/** The state in a snapshot; undefined if another version of the code wrote it, so that the run has to be replayed. */
export function restoredState({ state }: Snapshot): State | undefined {
  const { edition, fields, messages, ...rest } = state as StoredState;
  if (edition !== EDITION || fields !== FIELDS) return undefined;
  return { ...NEW, ...rest, history: messages.reduce(appendMessage, emptyHistory()) };
}
