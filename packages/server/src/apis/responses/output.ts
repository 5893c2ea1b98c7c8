import type { Item } from '@treadle/core';
import { typeInResponse } from '../../engine/model-failure.ts';
import type { Ending } from '../../requests/run.ts';
import type { ServerList } from '../../engine/executors.ts';
import type { CallKinds } from '../../engine/tools.ts';
import { approvalIdFor, callIdFor, itemId } from '../../ids.ts';
import {
  closeInterrupted,
  compactionItem,
  eventSender,
  sendClosedItem,
  sendWhole,
  wireItem,
  type EmitEvent,
  type EventSender,
  type ResponseEvent,
  type StreamedItem,
  type WholeItem,
} from './output-items.ts';
import type { RunCompactions } from './compaction.ts';
import type { ReasoningSeal } from './reasoning-seal.ts';
import { sentEvents } from './sent-items.ts';
import { turnItems, type BegunCall, type TurnItems } from './turn-items.ts';
import { presentedResponse, wireUsage, type OutputItem, type ResponseResource } from './wire.ts';

export interface ResponseOutputOptions {
  /** The response as it was created: in progress, without output. */
  readonly response: ResponseResource;
  readonly calls: CallKinds;
  /** The content of the first item, if the conversation was compacted for this response. */
  readonly compaction?: string | undefined;
  /** Set if the run may summarise older turns: the response has an item for it then. */
  readonly compactions?: RunCompactions | undefined;
  /** The tools of other servers. The response reports them first, except those that the conversation has. */
  readonly lists?: readonly ServerList[] | undefined;
  /** The calls that the run begins with, by their index in the reply; those that have a result are absent. */
  readonly begunWith?: ReadonlyMap<number, BegunCall> | undefined;
  /** The client wants to see the status `requires_action`. */
  readonly requiresAction: boolean;
  /** Set if the client wants `encrypted_content` of reasoning. */
  readonly seal?: ReasoningSeal | undefined;
  /** Set if the response is not stored: the results of the server's calls are sent as `encrypted_content` too. */
  readonly carrier?: ReasoningSeal | undefined;
  /** Absent: no events are needed, only the response. */
  readonly emit?: EmitEvent;
  /** The events that were stored before a crash. They are not sent again. */
  readonly sent?: readonly ResponseEvent[];
}

/**
 * Builds a response and its events from the items of a run.
 *
 * 1. `response.created`, `response.in_progress`, then the items, then one terminal event, or an `error` if the response
 *    has not ended; numbered from 0 without gaps. `response.queued` is the second event of a background response.
 * 2. Every item is opened and closed once, with an index and an id of its own, over all turns.
 * 3. The final response has the items as they were closed, in the order in which they were opened.
 * 4. What was sent before a crash is not sent again. An item whose reply was lost closes as incomplete, and the next one has
 *    another id.
 */
export interface ResponseOutput {
  sendCreated(): void;
  /** Adds the next item of the run. Returns the promise of `emit`, if it returned one. */
  addItem(item: Item): void | Promise<void>;
  /** Adds the items of a run that is resumed. To be called before any other is added. */
  replay(items: readonly Item[]): void;
  /** The response so far. */
  current(): ResponseResource;
  /** Closes every open item. Later items of the run are ignored. Nothing is sent that says that the response has ended. */
  endResponse(ending: Ending): ResponseResource;
  /**
   * Sends the terminal event, and the error before it if the response failed. To be called after the response was stored.
   * `stored`: the stored response, if it is not that of `endResponse`.
   */
  sendTerminal(stored?: ResponseResource): void;
  /** Ends the stream of a response that has not ended, with an error and without a terminal event. */
  sendInterruption(error: ResponseError): void;
}

export interface ResponseError {
  readonly code: string;
  readonly message: string;
}

export function responseOutput(options: ResponseOutputOptions): ResponseOutput {
  const { response, calls: kinds, compaction, compactions, lists = [], begunWith } = options;
  const { requiresAction, seal, carrier, emit } = options;
  const sent = options.sent && options.sent.length > 0 ? sentEvents(options.sent) : undefined;
  const out = eventSender(emit, sent?.count);
  const events = responseEvents(out, requiresAction);
  const items: StreamedItem[] = [
    ...(compaction === undefined ? NONE : [compactionItem(itemId('compaction', response.id, 0, 0), compaction)]),
    ...lists.filter(({ isKnown }) => !isKnown).map((list, index) => listItem(response.id, list, index)),
  ];
  let isReplaying = false;
  /** The stream has the end of the response. One that waits for its client may have been resumed since. */
  let isEndSent = sent?.ended !== undefined && sent.ended.status !== 'requires_action';
  let ended = isEndSent ? sent?.ended : undefined;
  let turn: TurnItems = newTurnItems(0);
  /** The reply of this turn does not match the schema of the answer. If the model is called again, it is not shown. */
  let isRejected = false;
  if (begunWith) turn.beginWith(begunWith);

  function newTurnItems(number: number): TurnItems {
    const sentItems = sent?.itemsOf(number) ?? NONE;
    items.push(...sentItems);
    return turnItems(number, { out, items, response: response.id, kinds, seal, carrier, sent: sentItems });
  }

  /** All events of an earlier turn were sent before those of a later one. */
  function isSentTurn(): boolean {
    return isReplaying && sent !== undefined && turn.number < sent.lastTurn;
  }

  function applyItem(item: Item): void {
    const compacted = compactions?.(item);
    switch (item.type) {
      case 'text-delta':
        turn.textDelta(item.refusal ? 'refusal' : 'message', item.text, item.logprobs);
        break;
      case 'reasoning-delta':
        turn.textDelta(item.summary ? 'summary' : 'reasoning', item.text);
        break;
      case 'call-delta':
        turn.callDelta(item.call, item.name, item.arguments);
        break;
      case 'turn-started':
        // The same turn starts again when the model is called with a shorter conversation.
        if (item.turn !== turn.number) {
          if (isRejected && !emit) turn.discard();
          isRejected = false;
          turn.carryResults();
          turn = newTurnItems(item.turn);
        }
        break;
      case 'call-started':
        turn.callStarted(item.index);
        break;
      case 'call-answered':
        turn.callAnswered(item.index, item.result);
        break;
      case 'fact':
        if (item.event.type === 'model-replied') {
          if (!isSentTurn()) turn.modelReplied(item.event.content, item.event.finish);
        } else if (item.event.type === 'model-failed') {
          if (!isReplaying) turn.modelFailed();
        } else if (item.event.type === 'calls-judged') turn.callsJudged(item.event.verdicts);
        else if (item.event.type === 'output-checked') isRejected = item.event.result.type === 'invalid';
        else if (item.event.type === 'history-compacted' && compacted !== undefined) {
          // It stands for all items before it.
          turn.carryResults();
          turn.addCompaction(compacted, item.event.effect);
        }
        break;
      case 'tool-report':
      case 'resource-problem':
      case 'waiting':
      case 'run-failed':
        break;
      default:
        item satisfies never;
    }
  }

  return {
    sendCreated() {
      if (sent) return;
      events.sendCreated(response);
      for (const [index, item] of items.entries()) if (item.type === 'whole') sendWhole(out, item, index);
    },
    addItem(item) {
      if (ended) return;
      applyItem(item);
      return out.backpressure();
    },
    replay(replayed) {
      if (ended) return;
      isReplaying = true;
      for (const item of replayed) applyItem(item);
      isReplaying = false;
      if (!turn.hasReply()) turn.modelFailed();
    },
    current: () => ended ?? { ...response, status: 'in_progress', output: items.map(wireItem) },
    endResponse(ending) {
      if (ending.type === 'pending' && sent?.ended && out.sentCount() === 0) {
        isEndSent = true;
        ended = sent.ended;
      }
      // Storing a response can fail after the run itself succeeded.
      if (ended && (isEndSent || ending.type !== 'failed')) return ended;
      if (ending.type === 'pending') {
        for (const { type, call } of ending.waiting) if (type === 'client') turn.callWaits(call.index);
      }
      turn.carryResults();
      closeInterrupted(out, items);
      ended = endedResponse(response, items.map(wireItem), ending);
      return ended;
    },
    sendTerminal(stored = ended) {
      if (stored && !isEndSent) events.sendTerminal(stored);
    },
    sendInterruption(error) {
      closeInterrupted(out, items);
      ended ??= { ...response, output: items.map(wireItem) };
      out.send(errorEvent(error, out.next()));
    },
  };
}

function listItem(response: string, { label, tools, error }: ServerList, index: number): WholeItem {
  return {
    type: 'whole',
    done: {
      type: 'mcp_list_tools',
      id: itemId('mcp_list_tools', response, 0, index),
      server_label: label,
      tools: tools.map(({ name, description, schema, annotations }) => ({
        name,
        description,
        input_schema: schema,
        ...(annotations && { annotations }),
      })),
      ...(error !== undefined && { error }),
    },
  };
}

/** The official clients know no event for `cancelled`. */
const TERMINAL: Readonly<Record<ResponseResource['status'], string>> = {
  completed: 'response.completed',
  requires_action: 'response.completed',
  incomplete: 'response.incomplete',
  cancelled: 'response.incomplete',
  failed: 'response.failed',
  in_progress: 'response.in_progress',
  queued: 'response.queued',
};

const NONE: readonly never[] = [];

/** In both forms: that of the official clients and that of Open Responses. */
export function errorEvent({ code, message }: NullableError, sequence_number = 0): ResponseEvent {
  const type = typeInResponse(code ?? 'server_error');
  return { type: 'error', sequence_number, code, message, param: null, error: { type, code, message, param: null } };
}

type NullableError = Pick<ResponseError, 'message'> & { readonly code: string | null };

/**
 * Sends the events of a response that has ended. They have the same ids as the first time, but each text and the arguments
 * of each call are one delta.
 */
export async function replayResponse(
  response: ResponseResource,
  { emit, requiresAction }: Pick<ResponseOutputOptions, 'emit' | 'requiresAction'>,
): Promise<void> {
  if (!emit) return;
  const { pending_call_ids: _, ...first } = response;
  const created: ResponseResource = {
    ...first,
    status: 'in_progress',
    completed_at: null,
    error: null,
    incomplete_details: null,
    output: [],
    usage: null,
  };
  const sender = eventSender(emit);
  const replayed = responseEvents(sender, requiresAction);
  replayed.sendCreated(created);
  for (const [index, item] of response.output.entries()) {
    sendClosedItem(sender, item, index);
    await sender.backpressure();
  }
  replayed.sendTerminal(response);
}

/** Sends the events that contain the whole response. */
function responseEvents(out: EventSender, requiresAction: boolean): ResponseEvents {
  function sendResponse(type: string, current: ResponseResource): void {
    out.send({ type, sequence_number: out.next(), response: presentedResponse(current, requiresAction) });
  }
  return {
    sendCreated(response) {
      sendResponse('response.created', response);
      if (response.status === 'queued') sendResponse('response.queued', response);
      sendResponse('response.in_progress', { ...response, status: 'in_progress' });
    },
    sendTerminal(response) {
      if (response.error) out.send(errorEvent(response.error, out.next()));
      sendResponse(TERMINAL[response.status], response);
    },
  };
}

interface ResponseEvents {
  sendCreated(response: ResponseResource): void;
  sendTerminal(response: ResponseResource): void;
}

function endedResponse(response: ResponseResource, items: readonly OutputItem[], ending: Ending): ResponseResource {
  const isDone = ending.type === 'completed' || ending.type === 'pending';
  const pending =
    ending.type === 'pending'
      ? ending.waiting.flatMap(({ type, call }) =>
          type === 'client' || type === 'approval'
            ? (type === 'client' ? callIdFor : approvalIdFor)(response.id, call.turn, call.index)
            : [],
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
