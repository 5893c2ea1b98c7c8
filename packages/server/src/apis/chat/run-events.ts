import type { Item, LoopResult } from '@treadle/core';
import { RESPONSE_PREFIX } from '../../ids.ts';
import { endingOf } from '../../requests/ending.ts';
import { walkRun } from '../../requests/projection.ts';
import { chatProjection, statusOf } from './projection.ts';
import type { ChatEvent, NumberedEvent } from './wire.ts';

export interface RunEvents {
  add(item: Item): void;
  /** The run has ended, or waits for something that nobody gives now. */
  end(result: LoopResult, at: number): void;
}

/** The events of `POST /v1/chat` for a run that no server drives. The run is its own conversation. */
export function runEvents(
  { runId, model, title }: { readonly runId: string; readonly model: string; readonly title: string },
  emit: (event: NumberedEvent) => void,
): RunEvents {
  let seq = 0;
  const send = (event: ChatEvent): void => emit({ ...event, seq: ++seq });
  const hex = runId.replace(/^[a-z]+_/, '');
  const walk = walkRun(chatProjection(RESPONSE_PREFIX + hex), { emit: send });
  const [message_id, answer_id] = [`${runId}_message`, `${runId}_answer`];
  send({ type: 'conversation_meta', conversation_id: runId, title, message_id, answer_id, run_id: runId, model });
  return {
    add: (item) => void walk.add(item),
    end(result, at) {
      const context = { isSpent: false, failure: undefined, at, isGivenByClient: () => true };
      const ending = endingOf(result, context);
      walk.end({ result, ending });
      send({ type: 'done', status: statusOf(ending) });
    },
  };
}
