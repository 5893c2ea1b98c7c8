import { messagesOf, replay, TreadleError, type Journal, type State } from '@treadle/core';
import { callIdFor } from '../responses/ids.ts';
import type { Before } from '../responses/messages.ts';

/** The state of a run as its journal tells it; undefined when there is none. */
export async function stateOf(runs: Journal, runId: string): Promise<State | undefined> {
  const entries = await runs.read(runId);
  if (entries.length === 0) return undefined;
  const replayed = replay(entries);
  if (replayed.type === 'replayed') return replayed.state;
  throw new TreadleError('journal-damaged', `Run "${runId}", entry ${replayed.seq}: ${replayed.difference}.`);
}

/** What a conversation goes on from: all that was said, and the calls of a paused turn with what has answered them. */
export function leftBy(id: string, state: State, system: readonly string[]): Before {
  const messages = messagesOf(state.history);
  if (state.phase.type !== 'tools') return { messages, system };
  const calls = state.phase.slots.map((slot) => ({
    wireId: callIdFor(id, slot.call.turn, slot.call.index),
    callId: slot.call.id,
    name: slot.call.name,
    ...(slot.type === 'settled' && { result: slot.result }),
  }));
  return { messages, system, open: { calls } };
}
