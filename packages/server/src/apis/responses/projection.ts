import type { Event, Item } from '@treadle/core';
import { typeInResponse } from '../../engine/model-failure.ts';
import {
  addEvent,
  sentBefore,
  takeEvents,
  type Projection,
  type Sent,
  type TextKind,
} from '../../requests/projection.ts';
import type { Ending } from '../../requests/ending.ts';
import type { ServerList } from '../../engine/executors.ts';
import type { CallKinds } from '../../engine/tools.ts';
import { approvalIdFor, callIdFor, itemId } from '../../ids.ts';
import type { RunCompactions, RunHistory } from './compaction.ts';
import {
  closeInterrupted,
  compactionItem,
  newCall,
  sendClosedItem,
  sendWhole,
  wireItem,
  type EmitEvent,
  type EventList,
  type OpenCall,
  type OpenText,
  type ResponseEvent,
  type StreamedItem,
  type WholeItem,
} from './output-items.ts';
import type { ReasoningSeal } from './reasoning-seal.ts';
import { newTurn, turnProjection, type BegunCall, type TurnScope } from './turn-items.ts';
import { presentedResponse, wireUsage, type OutputItem, type ResponseResource, type WireLogprob } from './wire.ts';

export interface ResponseProjectionOptions {
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
}

/**
 * Makes a response and its events from the items of a run.
 *
 * 1. `response.created`, `response.in_progress`, then the items, then one terminal event, or an `error` if the response
 *    has not ended; numbered from 0 without gaps. `response.queued` is the second event of a background response.
 * 2. Every item is opened and closed once, with an index and an id of its own, over all turns.
 * 3. The final response has the items as they were closed, in the order in which they were opened.
 * 4. What was sent before a crash is not sent again. An item whose reply was lost closes as incomplete, and the next one has
 *    another id.
 */
export interface ResponseProjection extends Projection<ResponseState, ResponseEvent, ResponseResource> {
  /** Ends the stream of a response that has not ended, with an error and without a terminal event. */
  readonly interrupt: (state: ResponseState, error: ResponseError) => readonly ResponseEvent[];
}

export interface ResponseState extends TurnScope {
  readonly sent: Sent<ResponseEvent>;
  /** The response in the terminal event that was sent before. One that waits for its client may have been resumed since. */
  readonly sentEnd: ResponseResource | undefined;
  /** Only if the run may summarise older turns. */
  readonly history: RunHistory;
  /** The items are those of the journal. */
  isReplaying: boolean;
  /** The reply of this turn does not match the schema of the answer. If the model is called again, it is not shown. */
  isRejected: boolean;
  isEndSent: boolean;
  ended: ResponseResource | undefined;
}

export interface ResponseError {
  readonly code: string;
  readonly message: string;
}

export function responseProjection(options: ResponseProjectionOptions): ResponseProjection {
  const { response, calls: kinds, compaction, compactions, lists = [], begunWith, requiresAction } = options;
  const { seal, carrier } = options;
  // A client that asks for summaries shows nothing else. If there are none, they are the reasoning itself.
  const asSummary = (response.reasoning as { readonly summary?: unknown } | null)?.summary != null;
  const turns = turnProjection({ response: response.id, kinds, seal, carrier, asSummary });

  /** All events of an earlier turn were sent before those of a later one. */
  function isSentTurn({ sent, turn }: ResponseState): boolean {
    return turn.number < (lastTurnOf(sent) ?? 0);
  }

  function applyItem(state: ResponseState, item: Item): void {
    const compacted = compactions?.(state.history, item);
    switch (item.type) {
      case 'text-delta':
        return turns.textDelta(state, item.refusal ? 'refusal' : 'message', item.text, item.logprobs);
      case 'reasoning-delta':
        return turns.textDelta(state, item.summary || asSummary ? 'summary' : 'reasoning', item.text);
      case 'call-delta':
        return turns.callDelta(state, item.call, item.name, item.arguments);
      case 'turn-started':
        // The same turn starts again when the model is called with a shorter conversation.
        if (item.turn === state.turn.number) return;
        // Nobody has seen it.
        if (state.isRejected && state.out.isSilent) state.items.splice(state.turn.first);
        state.isRejected = false;
        turns.carryResults(state);
        state.turn = newTurn(item.turn, state.items, sentItems(state.sent, item.turn));
        return;
      case 'call-started':
        return turns.callStarted(state, item.index);
      case 'call-answered':
        return turns.callAnswered(state, item.index, item.result);
      case 'fact':
        return applyFact(state, item.event, compacted);
      case 'tool-report':
      case 'resource-problem':
      case 'budget-warning':
      case 'waiting':
      case 'run-failed':
        return;
      default:
        item satisfies never;
    }
  }

  function applyFact(state: ResponseState, event: Event, compacted: string | undefined): void {
    if (event.type === 'model-replied') {
      if (!isSentTurn(state)) turns.modelReplied(state, event.content, event.finish);
    } else if (event.type === 'model-failed') {
      // The items that were sent before say which of them were closed then.
      if (!state.isReplaying) turns.modelFailed(state);
    } else if (event.type === 'calls-judged') turns.callsJudged(state, event.verdicts);
    else if (event.type === 'output-checked') state.isRejected = event.result.type === 'invalid';
    else if (event.type === 'history-compacted' && compacted !== undefined) {
      // It stands for all items before it.
      turns.carryResults(state);
      turns.addCompaction(state, compacted, event.effect);
    }
  }

  const withoutEnd = ({ items }: ResponseState): ResponseResource => ({ ...response, output: items.map(wireItem) });

  return {
    start({ sent: events, isSilent }) {
      const sent = sentBefore(events, itemIdOf);
      const last = events.at(-1);
      const sentEnd = last && isTerminal(last) ? (last['response'] as ResponseResource) : undefined;
      const isEndSent = sentEnd !== undefined && sentEnd.status !== 'requires_action';
      const items: StreamedItem[] = [
        ...(compaction === undefined ? [] : [compactionItem(itemId('compaction', response.id, 0, 0), compaction)]),
        ...lists.filter(({ isKnown }) => !isKnown).map((list, index) => listItem(response.id, list, index)),
      ];
      const state: ResponseState = {
        out: { events: [], next: sent.count, isSilent },
        items,
        turn: newTurn(0, items, sentItems(sent, 0)),
        sent,
        sentEnd,
        history: { input: [], keepTurns: 0, turns: [] },
        isReplaying: sent.count > 0,
        isRejected: false,
        isEndSent,
        ended: isEndSent ? sentEnd : undefined,
      };
      if (begunWith) turns.beginWith(state, begunWith);
      return state;
    },
    open({ out, items }) {
      sendCreated(out, response, requiresAction);
      for (const [index, item] of items.entries()) if (item.type === 'whole') sendWhole(out, item, index);
      return takeEvents(out);
    },
    project(state, item) {
      if (state.ended) return NONE;
      if (item.type !== 'resumed') applyItem(state, item);
      else {
        state.isReplaying = false;
        if (!state.turn.hasReply) turns.modelFailed(state);
      }
      return takeEvents(state.out);
    },
    end(state, { ending }) {
      const { out, items, sentEnd } = state;
      if (ending.type === 'pending' && sentEnd && out.next === state.sent.count) {
        state.isEndSent = true;
        state.ended = sentEnd;
      }
      // Storing a response can fail after the run itself succeeded.
      if (state.ended && (state.isEndSent || ending.type !== 'failed')) return NONE;
      if (ending.type === 'pending') {
        for (const { type, call } of ending.waiting) if (type === 'client') turns.callWaits(state, call);
      }
      turns.carryResults(state);
      closeInterrupted(out, items);
      state.ended = endedResponse(response, items.map(wireItem), ending);
      return takeEvents(out);
    },
    result: (state) => state.ended ?? { ...withoutEnd(state), status: 'in_progress' },
    last({ out, ended, isEndSent }, stored = ended) {
      if (stored && !isEndSent) sendTerminal(out, stored, requiresAction);
      return takeEvents(out);
    },
    interrupt(state, error) {
      const { out, items } = state;
      closeInterrupted(out, items);
      state.ended ??= withoutEnd(state);
      addEvent(out, errorEvent(error, out.next++));
      return takeEvents(out);
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

/** What an event is about. Undefined if it is about the whole response. */
function itemIdOf({ item_id: id, item }: ResponseEvent): string | undefined {
  return (id ?? (item as OutputItem | undefined)?.id) as string | undefined;
}

/** The last turn of which an item was sent. */
function lastTurnOf({ turns }: Sent<ResponseEvent>): number | undefined {
  return [...turns.keys()].at(-1);
}

/**
 * The items of a turn that were sent before, in the order in which they were opened. Those that the response begins with are
 * absent: the request has them.
 *
 * The events of one item of the run are stored together. So a text that is open has a part, and no item is half closed.
 */
function sentItems({ items, turns }: Sent<ResponseEvent>, turn: number): readonly StreamedItem[] {
  return (turns.get(turn) ?? []).flatMap((id) => sentItem(items.get(id)!) ?? []);
}

type Growing<T> = { -readonly [K in keyof T]: T[K] };

function sentItem([added, ...events]: readonly ResponseEvent[]): StreamedItem | undefined {
  const { item, output_index: index } = added as unknown as { item: OutputItem; output_index: number };
  const { type, id } = item;
  if (type === 'mcp_list_tools' || (type === 'compaction' && index === 0)) return undefined;
  if (type === 'mcp_approval_request' || type === 'compaction') return { type: 'whole', done: item };
  const sent: Growing<OpenText> | Growing<OpenCall> =
    type === 'message' || type === 'reasoning'
      ? { type: 'text', kind: type, id, index, text: '', isWhole: false, done: undefined }
      : newCall(item, index);
  for (const event of events) applyEvent(sent, event);
  return sent;
}

/** The kinds of texts, by the types of their parts. */
const KINDS: Readonly<Record<string, TextKind>> = {
  output_text: 'message',
  refusal: 'refusal',
  reasoning_text: 'reasoning',
  summary_text: 'summary',
};

function applyEvent(item: Growing<OpenText> | Growing<OpenCall>, event: ResponseEvent): void {
  const { type, delta, part } = event;
  if (type === 'response.output_item.done') {
    item.done = event['item'] as never;
    item.isWhole = true;
  } else if ('text' in item) {
    if (type.endsWith('_part.added')) item.kind = KINDS[(part as { readonly type: string }).type]!;
    else if (typeof delta === 'string') addDelta(item, delta, event['logprobs'] as readonly WireLogprob[] | undefined);
    else item.isWhole = true;
  } else if (typeof delta === 'string') item.arguments += delta;
  else if (type.endsWith('_arguments.done') || type.endsWith('_input.done')) {
    item.arguments = event[item.type === 'custom_tool_call' ? 'input' : 'arguments'] as string;
    item.isWhole = true;
  } else item.hasStarted = true;
}

function addDelta(item: Growing<OpenText>, delta: string, logprobs: readonly WireLogprob[] = []): void {
  item.text += delta;
  if (logprobs.length > 0) item.logprobs = [...(item.logprobs ?? []), ...logprobs];
}

/** Whether an event is the last of its response. */
export function isTerminal({ type }: ResponseEvent): boolean {
  return type === 'response.completed' || type === 'response.incomplete' || type === 'response.failed';
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
  { emit, requiresAction }: { readonly emit?: EmitEvent | undefined; readonly requiresAction: boolean },
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
  const out: EventList = { events: [], next: 0, isSilent: false };
  sendCreated(out, created, requiresAction);
  for (const [index, item] of response.output.entries()) {
    sendClosedItem(out, item, index);
    for (const event of takeEvents(out)) await emit(event);
  }
  sendTerminal(out, response, requiresAction);
  for (const event of takeEvents(out)) void emit(event);
}

function sendCreated(out: EventList, response: ResponseResource, requiresAction: boolean): void {
  sendResponse(out, 'response.created', presentedResponse(response, requiresAction));
  if (response.status === 'queued') sendResponse(out, 'response.queued', presentedResponse(response, requiresAction));
  const inProgress: ResponseResource = { ...response, status: 'in_progress' };
  sendResponse(out, 'response.in_progress', presentedResponse(inProgress, requiresAction));
}

function sendTerminal(out: EventList, response: ResponseResource, requiresAction: boolean): void {
  if (response.error) addEvent(out, errorEvent(response.error, out.next++));
  sendResponse(out, TERMINAL[response.status], presentedResponse(response, requiresAction));
}

/** Sends an event that contains the whole response. */
function sendResponse(out: EventList, type: string, response: ResponseResource): void {
  addEvent(out, { type, sequence_number: out.next++, response });
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
