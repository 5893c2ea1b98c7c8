import type {
  AssistantPart,
  Finish,
  Item,
  ReasoningPart,
  RecordedVerdict,
  TokenLogprob,
  ToolCall,
  ToolResult,
} from '@treadle/core';
import { typeInResponse } from '../engine/model-failure.ts';
import type { ApprovedCall } from '../engine/conversation.ts';
import { isClientAsked, type Ending } from '../engine/run.ts';
import type { CallKind, CallKinds, ServerList } from '../engine/tools.ts';
import { approvalIdFor, callIdFor, itemId, type ItemKind } from '../ids.ts';
import {
  addArguments,
  addText,
  answerCall,
  closeCall,
  closeInterrupted,
  closeText,
  endArguments,
  endText,
  eventSender,
  openCall,
  openText,
  sendClosedItem,
  sendWhole,
  startCall,
  storedCallName,
  wireItem,
  type EmitEvent,
  type EventSender,
  type OpenCall,
  type OpenText,
  type ResponseEvent,
  type TextKind,
  type StreamedItem,
  type WholeItem,
} from './output-items.ts';
import type { RunCompactions } from './compaction.ts';
import type { ReasoningSeal } from './reasoning-seal.ts';
import { isPartOf, sentEvents, sentPartsOf, type SentItem } from './sent-items.ts';
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

/** A call of an earlier response that this response executes. */
export interface BegunCall {
  readonly call: ToolCall;
  /** What the client decided about it; absent if that was not needed. */
  readonly approval?: ApprovedCall | undefined;
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
    ...(compaction === undefined ? NONE : [compactionItem(response.id, compaction)]),
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

function compactionItem(response: string, encrypted_content: string): WholeItem {
  return wholeCompaction(itemId('compaction', response, 0, 0), encrypted_content);
}

function wholeCompaction(id: string, encrypted_content: string): WholeItem {
  return { type: 'whole', done: { type: 'compaction', id, encrypted_content } };
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

/**
 * The items of one turn, from the deltas, the whole reply and the results of its calls.
 *
 * 1. A reply makes the same items however it was split into deltas, and also without deltas: items are opened in the
 *    order of the reply, and what the deltas did not contain is added when the reply arrives.
 * 2. A text is complete when another part begins. Its item is closed then, unless a property of it, or of a text before it,
 *    is known only with the whole reply: the phase of a message before reasoning, and the `encrypted_content` of reasoning.
 * 3. A call for the client is closed when the reply arrives, a call of the server when it has a result.
 * 4. A call that the client has to approve has an item when it is judged: the request for the approval. The call itself has
 *    one when it starts or has a result, in this response or, as a call that it begins with, in a later one.
 */
interface TurnItems {
  readonly number: number;
  /** Whether the model has replied. */
  hasReply(): boolean;
  textDelta(kind: TextKind, delta: string, tokens?: readonly TokenLogprob[]): void;
  callDelta(index: number, name: string, delta: string): void;
  modelReplied(content: readonly AssistantPart[], finish: Finish): void;
  /** The model is called again: its deltas so far do not belong to a reply. */
  modelFailed(): void;
  callStarted(index: number): void;
  callAnswered(index: number, result: ToolResult): void;
  /** The client has to execute the call. */
  callWaits(index: number): void;
  /** The verdicts on the calls that could run, in order. */
  callsJudged(verdicts: readonly RecordedVerdict[]): void;
  /** The run begins with these calls, of a reply that it has not made. */
  beginWith(begun: ReadonlyMap<number, BegunCall>): void;
  /** Adds an item with the results of the server's calls, for clients that do not send those calls back. */
  carryResults(): void;
  /** Older turns were summarised after this one, or because the model refused it. `effect`: that of the summary. */
  addCompaction(encryptedContent: string, effect: string): void;
  /** Removes its items from the response. Not if their events were sent. */
  discard(): void;
}

interface TurnOptions {
  readonly out: EventSender;
  /** The items of the whole response. Those of this turn are added. */
  readonly items: StreamedItem[];
  /** The response's id. */
  readonly response: string;
  readonly kinds: CallKinds;
  readonly seal: ReasoningSeal | undefined;
  readonly carrier: ReasoningSeal | undefined;
  /** The items of the turn that were sent before a crash. They are the last ones of `items`. */
  readonly sent: readonly SentItem[];
}

interface ReplyCall {
  name: string;
  /** The arguments that arrived while the call waits for the calls before it. */
  buffered: string;
  /** Undefined until the call is opened. */
  kind: CallKind | undefined;
  item: OpenCall | undefined;
  /** Undefined until the whole reply arrives. */
  whole: ToolCall | undefined;
  /** The call has a result. */
  isAnswered?: true;
  /** The id of the request for the approval of the client. */
  approval?: string;
}

function turnItems(number: number, { out, items, response, kinds, seal, carrier, sent }: TurnOptions): TurnItems {
  /** The index of its first item. */
  const first = items.length - sent.length;
  let opened = sent.filter(({ type }) => type !== 'whole').length;
  /** Those that were sent, and that no part of the reply has claimed. */
  let unclaimed = sent;
  let hasReply = false;
  let growing: OpenText | undefined;
  let texts = noTexts();
  let calls: ReplyCall[] = [];
  let openedCalls = 0;
  /** A delta arrived while a call before it had to wait. To keep the order, nothing is opened until the reply arrives. */
  let isOutOfOrder = false;

  function newId(kind: ItemKind): string {
    return itemId(kind, response, number, opened++);
  }

  function beginText(kind: TextKind): OpenText {
    const id = newId(isMessage(kind) ? 'message' : 'reasoning');
    const item: OpenText = { type: 'text', kind, id, index: items.length, text: '', isWhole: false, done: undefined };
    items.push(item);
    texts[kind].push(item);
    openText(out, item);
    return item;
  }

  /** Another part begins. */
  function endGrowing(next: 'text' | 'call'): void {
    if (!growing) return;
    endText(out, growing);
    const isKnown = isMessage(growing.kind) ? next === 'call' : !seal;
    // Texts are closed in the order of the output.
    const isNext = items.every((item) => item === growing || item.done || item.type !== 'text');
    if (isKnown && isNext) closeText(out, growing, 'completed', { phase: 'commentary' });
    growing = undefined;
  }

  function beginCall(call: ReplyCall, index: number): void {
    endGrowing('call');
    call.kind = kinds.kindOf(call.name, index);
    openedCalls = index + 1;
    if (isLater(call.kind)) return;
    addCallItem(call, index, call.kind === 'client' ? clientCallType(call) : 'mcp_call');
  }

  function clientCallType({ name }: ReplyCall): OpenCall['type'] {
    return kinds.isCustom?.(name) ? 'custom_tool_call' : 'function_call';
  }

  function addCallItem(call: ReplyCall, index: number, type: OpenCall['type']): OpenCall {
    const before = claimCall(call, index, type);
    if (before) return (call.item = before);
    const item: OpenCall = {
      type,
      id: newId(type),
      index: items.length,
      callId: callIdFor(response, number, index),
      label: kinds.labelOf(call.name),
      approval: call.approval ?? null,
      name: storedCallName(call.name),
      arguments: '',
      isWhole: false,
      hasStarted: false,
      done: undefined,
    };
    items.push(item);
    openCall(out, item);
    addArguments(out, item, call.whole?.arguments ?? call.buffered);
    call.item = item;
    return item;
  }

  /** The item of a call that is opened after the reply, if it was sent before a crash. */
  function claimCall({ whole, approval }: ReplyCall, index: number, type: OpenCall['type']): OpenCall | undefined {
    if (unclaimed.length === 0 || !whole) return undefined;
    const part: ShownPart = { type: 'call', index, call: whole };
    const item = unclaimed.find(
      (one): one is OpenCall => one.type === type && one.approval === (approval ?? null) && isSentFor(one, part),
    );
    unclaimed = unclaimed.filter((one) => one !== item);
    return item;
  }

  function isSentFor(item: SentItem, part: ShownPart): boolean {
    return isPartOf(item, part, { response, turn: number, wasCut: true });
  }

  /** Connects the parts of a reply with their items that were sent before a crash, and closes the other items. */
  function claimSent(parts: readonly ShownPart[], wasCut: boolean): void {
    const kindOf = (part: ShownPart): CallKind | undefined =>
      part.type === 'call' ? kinds.kindOf(part.call.name, part.index) : undefined;
    const early = parts.filter((part) => !isLater(kindOf(part)));
    const later = parts.filter((part) => isLater(kindOf(part)));
    const claimed = sentPartsOf(early, unclaimed, { response, turn: number, wasCut });
    for (const { part, item } of claimed) {
      if ('text' in item) texts[item.kind].push(item);
      else if (part.type === 'call' && item.type !== 'whole') {
        Object.assign(replyCall(part.index), { name: item.name, kind: kindOf(part), item });
        openedCalls = part.index + 1;
      }
    }
    const items = new Set(claimed.map(({ item }) => item));
    unclaimed = unclaimed.filter((item) => !items.has(item));
    // A call that was approved has an item when it starts.
    const isStarted = (item: SentItem): boolean =>
      item.type === 'mcp_call' && item.isWhole && later.some((part) => isSentFor(item, part));
    closeInterrupted(
      out,
      unclaimed.filter((item) => !isStarted(item)),
    );
  }

  function replyCall(index: number): ReplyCall {
    return (calls[index] ??= { name: '', buffered: '', kind: undefined, item: undefined, whole: undefined });
  }

  /** Opens calls in the order of the reply, once their names are known. Their deltas may arrive in any order. */
  function beginReadyCalls(): void {
    if (isOutOfOrder) return;
    for (let call = calls[openedCalls]; call && call.name !== ''; call = calls[openedCalls])
      beginCall(call, openedCalls);
  }

  function completeText(part: ShownText, nth: number, end: PartEnd): void {
    let item = texts[part.type][nth];
    if (!item) {
      endGrowing('text');
      item = beginText(part.type);
    }
    endText(out, item, part.text, part.logprobs);
    const sealed = part.first && seal ? { encrypted: seal.seal(part.first) } : {};
    closeText(out, item, end.isCut ? 'incomplete' : 'completed', { phase: end.phase, ...sealed });
  }

  function completeCall(whole: ToolCall, index: number, isCut: boolean): void {
    const call = replyCall(index);
    call.name = whole.name;
    call.whole = whole;
    if (call.kind === undefined) beginCall(call, index);
    if (!call.item) return;
    call.item.name = storedCallName(whole.name);
    endArguments(out, call.item, whole.arguments);
    if (call.item.type !== 'mcp_call') closeCall(out, call.item, isCut ? 'incomplete' : 'completed');
  }

  /** Adds reasoning without text as the last item: a stream contains it only at its end. */
  function addHiddenReasoning({ part, after }: HiddenReasoning): void {
    const before = unclaimed.find((item) => 'text' in item && item.text === '');
    if (before) {
      unclaimed = unclaimed.filter((item) => item !== before);
      return;
    }
    closeText(out, beginText('reasoning'), 'completed', { encrypted: seal!.seal(part, after) });
  }

  return {
    number,
    hasReply: () => hasReply,
    textDelta(kind, delta, tokens) {
      if (delta === '') return;
      isOutOfOrder ||= openedCalls < calls.length;
      if (isOutOfOrder) return;
      if (growing?.kind !== kind) {
        endGrowing('text');
        growing = beginText(kind);
      }
      addText(out, growing, delta, tokens);
    },
    callDelta(index, name, delta) {
      const call = replyCall(index);
      if (call.item) return addArguments(out, call.item, delta);
      if (call.kind !== undefined) return;
      call.name ||= name;
      call.buffered += delta;
      beginReadyCalls();
    },
    modelReplied(content, finish) {
      const { parts, calls: whole, hidden } = shownReply(content);
      const phase = whole.length > 0 ? 'commentary' : 'final_answer';
      const wasCut = finish === 'length' || finish === 'content-filter';
      const seen = { message: 0, refusal: 0, reasoning: 0, summary: 0 };
      hasReply = true;
      if (unclaimed.length > 0) claimSent(parts, wasCut);
      for (const [position, part] of parts.entries()) {
        const isCut = wasCut && position === parts.length - 1;
        // No call of a reply that was cut off or filtered is executed.
        if (part.type === 'call') completeCall(part.call, part.index, wasCut);
        else completeText(part, seen[part.type]++, { phase, isCut });
      }
      closeInterrupted(out, items.slice(first).filter(isMissingInReply));
      if (seal) hidden.forEach(addHiddenReasoning);
    },
    modelFailed() {
      closeInterrupted(out, items);
      unclaimed = NONE;
      growing = undefined;
      texts = noTexts();
      calls = [];
      openedCalls = 0;
      isOutOfOrder = false;
    },
    callStarted(index) {
      const call = calls[index];
      if (call?.kind === 'approved-later') call.item ??= addCallItem(call, index, 'mcp_call');
      if (call?.kind === 'approved-later') endArguments(out, call.item!);
      if (call?.item) startCall(out, call.item);
    },
    callAnswered(index, result) {
      const call = calls[index];
      if (call) call.isAnswered = true;
      if (call) answerCall(out, call.item ?? addCallItem(call, index, 'mcp_call'), result);
    },
    callWaits(index) {
      const call = calls[index];
      if (call?.kind === 'client-later' && !call.item) {
        const item = addCallItem(call, index, clientCallType(call));
        endArguments(out, item, call.whole?.arguments);
        closeCall(out, item, 'completed');
      }
    },
    callsJudged(verdicts) {
      let judged = 0;
      for (const [index, call] of calls.entries()) {
        if (!call || call.isAnswered) continue;
        const verdict = verdicts[judged++];
        const isAsked = verdict?.type === 'ask' && isClientAsked({ type: 'approval', rule: verdict.rule });
        if (!isAsked || call.kind !== 'approved-later' || call.approval !== undefined) continue;
        call.approval = approvalIdFor(response, number, index);
        if (sent.some(({ done }) => done?.id === call.approval)) continue;
        const item: WholeItem = {
          type: 'whole',
          done: {
            type: 'mcp_approval_request',
            id: call.approval,
            server_label: kinds.labelOf(call.name),
            name: storedCallName(call.name),
            arguments: call.whole?.arguments ?? call.buffered,
          },
        };
        items.push(item);
        sendWhole(out, item, items.length - 1);
      }
    },
    beginWith(begun) {
      hasReply = true;
      for (const [index, { call, approval }] of begun) {
        calls[index] = {
          name: call.name,
          buffered: '',
          kind: 'approved-later',
          item: undefined,
          whole: call,
          ...(approval && { approval: approval.requestId }),
        };
      }
    },
    carryResults() {
      if (!carrier) return;
      const made = calls.flatMap(({ item }) => (item?.done?.type === 'mcp_call' ? item.done : []));
      calls = [];
      if (made.length > 0) closeText(out, beginText('reasoning'), 'completed', { encrypted: carrier.sealCalls(made) });
    },
    addCompaction(encryptedContent, effect) {
      // A turn can have one before its reply, and one after it.
      const id = itemId('compaction', response, number, effect.endsWith('.1') ? 2 : 1);
      if (sent.some(({ done }) => done?.id === id)) return;
      const item = wholeCompaction(id, encryptedContent);
      items.push(item);
      sendWhole(out, item, items.length - 1);
    },
    discard: () => void items.splice(first),
  };
}

/** Whether a call has an item only after the reply. */
function isLater(kind: CallKind | undefined): boolean {
  return kind === 'client-later' || kind === 'approved-later';
}

function noTexts(): Record<TextKind, OpenText[]> {
  return { message: [], refusal: [], reasoning: [], summary: [] };
}

function isMessage(kind: TextKind): boolean {
  return kind === 'message' || kind === 'refusal';
}

function textKindOf(part: Exclude<AssistantPart, ToolCall>): TextKind {
  if (part.type === 'text') return part.refusal ? 'refusal' : 'message';
  return part.summary ? 'summary' : 'reasoning';
}

interface PartEnd {
  readonly phase: 'commentary' | 'final_answer';
  readonly isCut: boolean;
}

/** Deltas opened the item, and the whole reply does not contain it. */
function isMissingInReply(item: StreamedItem): boolean {
  return !item.done && !(item.type === 'mcp_call' && item.isWhole);
}

/**
 * The parts of a reply that clients see, in order. Deltas do not mark where one text ends and the next begins, so
 * consecutive texts are one part, and so is consecutive reasoning. Parts without text are not shown and do not separate
 * others.
 */
export type ShownPart = ShownText | { readonly type: 'call'; readonly index: number; readonly call: ToolCall };

interface ShownText {
  readonly type: TextKind;
  readonly text: string;
  readonly logprobs?: readonly TokenLogprob[];
  /** The first reasoning part that it consists of. Absent for messages. */
  readonly first?: ReasoningPart;
}

interface ShownReply {
  readonly parts: readonly ShownPart[];
  readonly calls: readonly ToolCall[];
  /** Reasoning that is not the first of a shown part, but that the model has to get back. */
  readonly hidden: readonly HiddenReasoning[];
}

interface HiddenReasoning {
  readonly part: ReasoningPart;
  /** How many shown parts come before it. */
  readonly after: number;
}

export function shownReply(content: readonly AssistantPart[]): ShownReply {
  const parts: ShownPart[] = [];
  const calls: ToolCall[] = [];
  const hidden: HiddenReasoning[] = [];
  for (const part of content) {
    if (part.type === 'tool-call') {
      parts.push({ type: 'call', index: calls.length, call: part });
      calls.push(part);
      continue;
    }
    const last = parts.at(-1);
    const isReasoning = part.type === 'reasoning';
    const type = textKindOf(part);
    const extended = last?.type === type ? (last as ShownText) : undefined;
    if (isReasoning && (extended || part.text === '') && (part.text || part.signature))
      hidden.push({ part, after: parts.length });
    if (part.text === '') continue;
    const logprobs = isReasoning ? undefined : part.logprobs;
    if (extended) {
      const tokens = logprobs && { logprobs: [...(extended.logprobs ?? []), ...logprobs] };
      parts[parts.length - 1] = { ...extended, text: extended.text + part.text, ...tokens };
    } else parts.push({ type, text: part.text, ...(logprobs && { logprobs }), ...(isReasoning && { first: part }) });
  }
  return { parts, calls, hidden };
}
