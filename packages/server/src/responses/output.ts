import type { Event, Item } from '@treadle/core';
import { typeInResponse } from '../engine/failure.ts';
import type { CallKinds } from '../engine/call-kinds.ts';
import type { Ending } from '../engine/ending.ts';
import type { OutputItem } from '../wire/items.ts';
import { presented, type ResponseResource } from '../wire/response.ts';
import { eventsOut, type Emit } from './events-out.ts';
import { callIdFor } from './ids.ts';
import { shownCall, type OpenCall } from './open-call.ts';
import { shownText, type OpenText } from './open-text.ts';
import { interrupt, turnItems, type TurnItems } from './turn-items.ts';
import { wireUsage } from './usage.ts';

export interface OutputOptions {
  /** As it was created: in progress, without output. */
  readonly response: ResponseResource;
  readonly calls: CallKinds;
  /** The client wants the status `requires_action` by its name. */
  readonly requiresAction: boolean;
  /** The client wants `encrypted_content` of reasoning. */
  readonly encrypted: boolean;
  /** Absent: nobody listens, and only the response counts. */
  readonly emit?: Emit;
}

/**
 * Makes a response, and the events that tell of it, out of what a run tells.
 *
 * 1. `response.created`, `response.in_progress`, then the items, then one terminal event; numbered from 0 without gaps.
 * 2. Every item is opened and closed once, at an index and under an id of its own, over all turns.
 * 3. The response at the end has the items as they were closed, in the order in which they opened.
 */
export interface Output {
  begin(): void;
  /** Takes the next item of the run; gives what the listener waits for, if it does. */
  hear(item: Item): void | Promise<void>;
  /** The response so far. */
  current(): ResponseResource;
  /** Closes every open item, and tells of the error if it failed. Whatever the run still tells is ignored. */
  close(ending: Ending): ResponseResource;
  /** The terminal event, when the response is safe. */
  finish(): void;
}

export function output({ response, calls: kinds, requiresAction, encrypted, emit }: OutputOptions): Output {
  const out = eventsOut(emit);
  const items: (OpenText | OpenCall)[] = [];
  let ended: ResponseResource | undefined;
  let now: TurnItems = startTurn(0);

  function startTurn(turn: number): TurnItems {
    return turnItems(turn, { out, items, response: response.id, kinds, encrypted });
  }

  function tell(type: string, of: ResponseResource): void {
    out.send({ type, sequence_number: out.next(), response: presented(of, requiresAction) });
  }

  function takeFact(event: Event): void {
    if (event.type === 'model-replied') now.replied(event.content, event.finish);
    else if (event.type === 'model-failed') now.failed();
  }

  function take(item: Item): void {
    switch (item.type) {
      case 'text-delta':
        now.text('message', item.text);
        break;
      case 'reasoning-delta':
        now.text('reasoning', item.text);
        break;
      case 'call-delta':
        now.call(item.call, item.name, item.arguments);
        break;
      case 'turn-started':
        // The same one again: the model is asked once more, with a shorter conversation.
        if (item.turn !== now.turn) now = startTurn(item.turn);
        break;
      case 'call-started':
        now.started(item.index);
        break;
      case 'call-answered':
        now.answered(item.index, item.result);
        break;
      case 'fact':
        takeFact(item.event);
        break;
      case 'tool-report':
        break;
      default:
        item satisfies never;
    }
  }

  return {
    begin() {
      tell('response.created', response);
      tell('response.in_progress', response);
    },
    hear(item) {
      if (ended) return;
      take(item);
      return out.pressure();
    },
    current: () => ended ?? { ...response, output: items.map(shown) },
    close(ending) {
      // What ended well may still fail to be kept.
      if (ended && ending.type !== 'failed') return ended;
      if (ending.type === 'pending') {
        for (const { type, call } of ending.waiting) if (type === 'client') now.waits(call.index);
      }
      interrupt(out, items);
      if (ending.type === 'failed') out.send({ type: 'error', sequence_number: out.next(), ...errorFields(ending) });
      ended = endedResponse(response, items.map(shown), ending);
      return ended;
    },
    finish() {
      if (ended) tell(TERMINAL[ended.status], ended);
    },
  };
}

/** `cancelled` has no event that official clients know. */
const TERMINAL: Readonly<Record<ResponseResource['status'], string>> = {
  completed: 'response.completed',
  requires_action: 'response.completed',
  incomplete: 'response.incomplete',
  cancelled: 'response.incomplete',
  failed: 'response.failed',
  in_progress: 'response.in_progress',
};

function shown(item: OpenText | OpenCall): OutputItem {
  if (item.done) return item.done;
  return 'text' in item ? shownText(item, 'in_progress', true) : shownCall(item, 'in_progress');
}

/** Both as the official clients type them and as Open Responses does. */
function errorFields({ error: { code, message } }: Extract<Ending, { type: 'failed' }>): object {
  const type = typeInResponse(code);
  return { code, message, param: null, error: { type, code, message, param: null } };
}

function endedResponse(response: ResponseResource, items: readonly OutputItem[], ending: Ending): ResponseResource {
  const isDone = ending.type === 'completed' || ending.type === 'pending';
  const pending =
    ending.type === 'pending'
      ? ending.waiting.flatMap(({ type, call }) =>
          type === 'client' ? callIdFor(response.id, call.turn, call.index) : [],
        )
      : [];
  return {
    ...response,
    status: ending.type === 'pending' ? 'requires_action' : ending.type,
    completed_at: isDone ? Math.floor(ending.at / 1000) : null,
    error: ending.type === 'failed' ? ending.error : null,
    incomplete_details: ending.type === 'incomplete' ? { reason: ending.reason } : null,
    output: items,
    usage: wireUsage(ending.usage),
    ...(pending.length > 0 && { pending_call_ids: pending }),
  };
}
