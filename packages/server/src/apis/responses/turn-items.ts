import {
  customInput,
  type AssistantPart,
  type Finish,
  type RecordedVerdict,
  type TokenLogprob,
  type ToolCall,
  type ToolResult,
} from '@treadle/core';
import type { ApprovedCall } from '../../history/conversation.ts';
import {
  shownReply,
  type HiddenReasoning,
  type ShownPart,
  type ShownText,
  type TextKind,
} from '../../requests/projection.ts';
import { isClientAsked } from '../../requests/run.ts';
import { modelName } from '../../engine/namespaces.ts';
import { parsableArguments, type CallKind, type CallKinds } from '../../engine/tools.ts';
import { approvalIdFor, callIdFor, itemId, itemOrigin, type ItemKind } from '../../ids.ts';
import { isBuiltInCallType } from './built-in-calls.ts';
import {
  addArguments,
  addText,
  answerCall,
  closeCall,
  closeInterrupted,
  closeText,
  compactionItem,
  endArguments,
  endText,
  openCall,
  openText,
  sendWhole,
  startCall,
  storedCallName,
  type EventList,
  type OpenCall,
  type OpenText,
  type StreamedItem,
  type WholeItem,
} from './output-items.ts';
import type { ReasoningSeal } from './reasoning-seal.ts';

/** What the items of a turn change of the state of a response. */
export interface TurnScope {
  readonly out: EventList;
  /** The items of the whole response. Those of the turn are added. */
  readonly items: StreamedItem[];
  turn: TurnState;
}

export interface TurnState {
  readonly number: number;
  /** The index of its first item. */
  readonly first: number;
  /** The items that were sent before a crash, and those of them that no part of the reply has claimed. */
  readonly sent: readonly StreamedItem[];
  unclaimed: readonly StreamedItem[];
  opened: number;
  /** Whether the model has replied. */
  hasReply: boolean;
  growing: OpenText | undefined;
  texts: Record<TextKind, OpenText[]>;
  calls: ReplyCall[];
  openedCalls: number;
  /** A delta arrived while a call before it had to wait. To keep the order, nothing is opened until the reply arrives. */
  isOutOfOrder: boolean;
}

/** A call of an earlier response that this response executes. */
export interface BegunCall {
  readonly call: ToolCall;
  /** What the client decided about it; absent if that was not needed. */
  readonly approval?: ApprovedCall | undefined;
}

interface TurnOptions {
  /** The response's id. */
  readonly response: string;
  readonly kinds: CallKinds;
  readonly seal: ReasoningSeal | undefined;
  readonly carrier: ReasoningSeal | undefined;
  /** Reasoning is shown as a summary of it. */
  readonly asSummary: boolean;
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

/**
 * Projects the items of a run onto the output items of one turn, from the deltas, the whole reply and the results of its calls.
 *
 * 1. A reply makes the same items however it was split into deltas, and also without deltas: items are opened in the
 *    order of the reply, and what the deltas did not contain is added when the reply arrives.
 * 2. A text is complete when another part begins. Its item is closed then, unless a property of it, or of a text before it,
 *    is known only with the whole reply: the phase of a message before reasoning, and the `encrypted_content` of reasoning.
 * 3. A call for the client is closed when the reply arrives, a call of the server when it has a result.
 * 4. A call that the client has to approve has an item when it is judged: the request for the approval. The call itself has
 *    one when it starts or has a result, in this response or, as a call that it begins with, in a later one.
 */
export function turnProjection({ response, kinds, seal, carrier, asSummary }: TurnOptions) {
  function newId({ turn }: TurnScope, kind: ItemKind): string {
    return itemId(kind, response, turn.number, turn.opened++);
  }

  function beginText(state: TurnScope, kind: TextKind): OpenText {
    const { out, items, turn } = state;
    const id = newId(state, isMessage(kind) ? 'message' : 'reasoning');
    const item: OpenText = { type: 'text', kind, id, index: items.length, text: '', isWhole: false, done: undefined };
    items.push(item);
    turn.texts[kind].push(item);
    openText(out, item);
    return item;
  }

  /** Another part begins. */
  function endGrowing({ out, items, turn }: TurnScope, next: 'text' | 'call'): void {
    const { growing } = turn;
    if (!growing) return;
    endText(out, growing);
    const isKnown = isMessage(growing.kind) ? next === 'call' : !seal;
    // Texts are closed in the order of the output: if the one before is closed, all are.
    const before = items.findLast((item) => item !== growing && item.type === 'text');
    if (isKnown && (!before || before.done)) closeText(out, growing, 'completed', { phase: 'commentary' });
    turn.growing = undefined;
  }

  function beginCall(state: TurnScope, call: ReplyCall, index: number): void {
    endGrowing(state, 'call');
    call.kind = kinds.kindOf(call.name, index);
    state.turn.openedCalls = index + 1;
    if (isLater(call.kind)) return;
    addCallItem(state, call, { index, type: call.kind === 'client' ? clientCallType(call) : 'mcp_call' });
  }

  function clientCallType({ name }: ReplyCall): OpenCall['type'] {
    if (kinds.isSearch?.(name)) return 'tool_search_call';
    const builtIn = kinds.builtInOf?.(name);
    if (builtIn) return `${builtIn}_call`;
    return kinds.isCustom?.(name) ? 'custom_tool_call' : 'function_call';
  }

  /** The name of a call in its item. */
  function shownName(name: string, type: OpenCall['type']): Pick<OpenCall, 'name' | 'namespace'> {
    return (type === 'mcp_call' ? undefined : kinds.ownNameOf?.(name)) ?? { name: storedCallName(name) };
  }

  function addCallItem(state: TurnScope, call: ReplyCall, as: CallPlace): OpenCall {
    const before = claimCall(state, call, as);
    if (before) return (call.item = before);
    const { out, items, turn } = state;
    const { type, index } = as;
    const item: OpenCall = {
      type,
      id: newId(state, type),
      index: items.length,
      callId: callIdFor(response, turn.number, index),
      label: kinds.labelOf(call.name),
      approval: call.approval ?? null,
      ...shownName(call.name, type),
      // Its item is never incomplete.
      arguments: isBuiltInCallType(type) ? call.whole!.arguments : '',
      isWhole: isBuiltInCallType(type),
      hasStarted: false,
      done: undefined,
    };
    items.push(item);
    openCall(out, item);
    if (!isBuiltInCallType(type)) addArguments(out, item, call.whole?.arguments ?? call.buffered);
    call.item = item;
    return item;
  }

  /** The item of a call that is opened after the reply, if it was sent before a crash. */
  function claimCall(
    { turn }: TurnScope,
    { whole, approval }: ReplyCall,
    { type, index }: CallPlace,
  ): OpenCall | undefined {
    if (turn.unclaimed.length === 0 || !whole) return undefined;
    const part: ShownPart = { type: 'call', index, call: whole };
    const item = turn.unclaimed.find(
      (one): one is OpenCall => one.type === type && one.approval === (approval ?? null) && isPartOf(one, part, true),
    );
    turn.unclaimed = turn.unclaimed.filter((one) => one !== item);
    return item;
  }

  /** Connects the parts of a reply with their items that were sent before a crash, and closes the other items. */
  function claimSent({ out, turn }: TurnScope, parts: readonly ShownPart[], wasCut: boolean): void {
    const kindOf = (part: ShownPart): CallKind | undefined =>
      part.type === 'call' ? kinds.kindOf(part.call.name, part.index) : undefined;
    const early = parts.filter((part) => !isLater(kindOf(part)));
    const later = parts.filter((part) => isLater(kindOf(part)));
    const claimed = sentPartsOf(early, turn.unclaimed, wasCut);
    for (const [item, part] of claimed) {
      if ('text' in item) turn.texts[item.kind].push(item);
      else if (part.type === 'call' && item.type !== 'whole') {
        Object.assign(replyCall(turn, part.index), { name: part.call.name, kind: kindOf(part), item });
        turn.openedCalls = part.index + 1;
      }
    }
    turn.unclaimed = turn.unclaimed.filter((item) => !claimed.has(item));
    // A call that was approved has an item when it starts, and that of a built-in tool when it waits.
    const isStarted = (item: StreamedItem): boolean =>
      isWholeLater(item) && later.some((part) => isPartOf(item, part, true));
    closeInterrupted(
      out,
      turn.unclaimed.filter((item) => !isStarted(item)),
    );
  }

  /** Opens calls in the order of the reply, once their names are known. Their deltas may arrive in any order. */
  function beginReadyCalls(state: TurnScope): void {
    const { turn } = state;
    if (turn.isOutOfOrder) return;
    for (let call = turn.calls[turn.openedCalls]; call && call.name !== ''; call = turn.calls[turn.openedCalls])
      beginCall(state, call, turn.openedCalls);
  }

  function completeText(state: TurnScope, part: ShownText, { nth, phase, isCut }: PartEnd): void {
    const { out, turn } = state;
    let item = turn.texts[part.type][nth];
    if (!item) {
      endGrowing(state, 'text');
      item = beginText(state, part.type);
    }
    endText(out, item, part.text, part.logprobs);
    const sealed = part.first && seal ? { encrypted: seal.seal(part.first) } : {};
    closeText(out, item, isCut ? 'incomplete' : 'completed', { phase, ...sealed });
  }

  function completeCall(state: TurnScope, { call: whole, index }: ShownCall, wasCut: boolean): void {
    const { out, turn } = state;
    const call = replyCall(turn, index);
    call.name = whole.name;
    call.whole = whole;
    if (call.kind === undefined) beginCall(state, call, index);
    if (!call.item) return;
    call.item.name = shownName(whole.name, call.item.type).name;
    endArguments(out, call.item, whole.arguments);
    // No call of a reply that was cut off or filtered is executed.
    if (call.item.type !== 'mcp_call') closeCall(out, call.item, wasCut ? 'incomplete' : 'completed');
  }

  /** Adds reasoning without text as the last item: a stream contains it only at its end. */
  function addHiddenReasoning(state: TurnScope, { part, after }: HiddenReasoning): void {
    const { turn } = state;
    const before = turn.unclaimed.find((item) => 'text' in item && item.text === '');
    if (before) turn.unclaimed = turn.unclaimed.filter((item) => item !== before);
    else closeText(state.out, beginText(state, 'reasoning'), 'completed', { encrypted: seal!.seal(part, after) });
  }

  return {
    textDelta(state: TurnScope, kind: TextKind, delta: string, tokens?: readonly TokenLogprob[]): void {
      const { turn } = state;
      if (delta === '') return;
      turn.isOutOfOrder ||= turn.openedCalls < turn.calls.length;
      if (turn.isOutOfOrder) return;
      if (turn.growing?.kind !== kind) {
        endGrowing(state, 'text');
        turn.growing = beginText(state, kind);
      }
      addText(state.out, turn.growing, delta, tokens);
    },
    callDelta(state: TurnScope, index: number, name: string, delta: string): void {
      const call = replyCall(state.turn, index);
      if (call.item) return addArguments(state.out, call.item, delta);
      if (call.kind !== undefined) return;
      call.name ||= name;
      call.buffered += delta;
      beginReadyCalls(state);
    },
    modelReplied(state: TurnScope, content: readonly AssistantPart[], finish: Finish): void {
      const { out, items, turn } = state;
      const { parts, calls: whole, hidden } = shownReply(content, { asSummary });
      const phase = whole.length > 0 ? 'commentary' : 'final_answer';
      const wasCut = finish === 'length' || finish === 'content-filter';
      const seen = { message: 0, refusal: 0, reasoning: 0, summary: 0 };
      turn.hasReply = true;
      if (turn.unclaimed.length > 0) claimSent(state, parts, wasCut);
      for (const [position, part] of parts.entries()) {
        const isCut = wasCut && position === parts.length - 1;
        if (part.type === 'call') completeCall(state, part, wasCut);
        else completeText(state, part, { nth: seen[part.type]++, phase, isCut });
      }
      closeInterrupted(out, items.slice(turn.first).filter(isMissingInReply));
      if (seal) for (const one of hidden) addHiddenReasoning(state, one);
    },
    /** The model is called again: its deltas so far do not belong to a reply. */
    modelFailed({ out, items, turn }: TurnScope): void {
      closeInterrupted(out, items);
      Object.assign(turn, { unclaimed: NONE, ...noReply() });
    },
    callStarted(state: TurnScope, index: number): void {
      const { out, turn } = state;
      const call = turn.calls[index];
      if (call?.kind === 'approved-later') {
        endArguments(out, call.item ?? addCallItem(state, call, { type: 'mcp_call', index }));
      }
      if (call?.item) startCall(out, call.item);
    },
    callAnswered(state: TurnScope, index: number, result: ToolResult): void {
      const call = state.turn.calls[index];
      if (!call) return;
      call.isAnswered = true;
      answerCall(state.out, call.item ?? addCallItem(state, call, { type: 'mcp_call', index }), result);
    },
    /** The client has to execute the call. */
    callWaits(state: TurnScope, { index, arguments: json }: WaitingCall): void {
      const call = state.turn.calls[index];
      if (call?.kind !== 'client-later' || call.item) return;
      const type = clientCallType(call);
      // The loop may have repaired the arguments. Those of functions are returned as they were written.
      if (isBuiltInCallType(type)) call.whole = { ...call.whole!, arguments: json };
      const item = addCallItem(state, call, { type, index });
      endArguments(state.out, item, call.whole?.arguments);
      closeCall(state.out, item, 'completed');
    },
    /** The verdicts on the calls that could run, in order. */
    callsJudged({ out, items, turn }: TurnScope, verdicts: readonly RecordedVerdict[]): void {
      let judged = 0;
      for (const [index, call] of turn.calls.entries()) {
        if (!call || call.isAnswered) continue;
        const verdict = verdicts[judged++];
        const isAsked = verdict?.type === 'ask' && isClientAsked({ type: 'approval', rule: verdict.rule });
        if (!isAsked || call.kind !== 'approved-later' || call.approval !== undefined) continue;
        call.approval = approvalIdFor(response, turn.number, index);
        if (turn.sent.some(({ done }) => done?.id === call.approval)) continue;
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
    /** The run begins with these calls, of a reply that it has not made. */
    beginWith({ turn }: TurnScope, begun: ReadonlyMap<number, BegunCall>): void {
      turn.hasReply = true;
      for (const [index, { call, approval }] of begun) {
        turn.calls[index] = {
          name: call.name,
          buffered: '',
          kind: 'approved-later',
          item: undefined,
          whole: call,
          ...(approval && { approval: approval.requestId }),
        };
      }
    },
    /** Adds an item with the results of the server's calls, for clients that do not send those calls back. */
    carryResults(state: TurnScope): void {
      if (!carrier) return;
      const { out, turn } = state;
      const made = turn.calls.flatMap(({ item }) => (item?.done?.type === 'mcp_call' ? item.done : []));
      turn.calls = [];
      if (made.length === 0) return;
      closeText(out, beginText(state, 'reasoning'), 'completed', { encrypted: carrier.sealCalls(made) });
    },
    /** Older turns were summarised after this one, or because the model refused it. `effect`: that of the summary. */
    addCompaction({ out, items, turn }: TurnScope, encryptedContent: string, effect: string): void {
      // A turn can have one before its reply, and one after it.
      const id = itemId('compaction', response, turn.number, effect.endsWith('.1') ? 2 : 1);
      if (turn.sent.some(({ done }) => done?.id === id)) return;
      const item = compactionItem(id, encryptedContent);
      items.push(item);
      sendWhole(out, item, items.length - 1);
    },
  };
}

interface WaitingCall {
  readonly index: number;
  readonly arguments: string;
}

interface CallPlace {
  readonly type: OpenCall['type'];
  /** The position of the call in its reply. */
  readonly index: number;
}

type ShownCall = Extract<ShownPart, { type: 'call' }>;

const NONE: readonly never[] = [];

/** Begins a turn. `sent`: its items that were sent before a crash. They are added to those of the response. */
export function newTurn(number: number, items: StreamedItem[], sent: readonly StreamedItem[]): TurnState {
  const first = items.length;
  items.push(...sent);
  const opened = sent.filter(({ type }) => type !== 'whole').length;
  return { number, first, sent, unclaimed: sent, opened, hasReply: false, ...noReply() };
}

/** The fields of a turn whose reply has not begun. */
function noReply(): Pick<TurnState, 'growing' | 'texts' | 'calls' | 'openedCalls' | 'isOutOfOrder'> {
  const texts = { message: [], refusal: [], reasoning: [], summary: [] };
  return { growing: undefined, texts, calls: [], openedCalls: 0, isOutOfOrder: false };
}

function replyCall({ calls }: TurnState, index: number): ReplyCall {
  return (calls[index] ??= { name: '', buffered: '', kind: undefined, item: undefined, whole: undefined });
}

/** Whether a call has an item only after the reply. */
function isLater(kind: CallKind | undefined): boolean {
  return kind === 'client-later' || kind === 'approved-later';
}

function isMessage(kind: TextKind): boolean {
  return kind === 'message' || kind === 'refusal';
}

interface PartEnd {
  /** How many texts of its kind come before it in the reply. */
  readonly nth: number;
  readonly phase: 'commentary' | 'final_answer';
  readonly isCut: boolean;
}

/** Deltas opened the item, and the whole reply does not contain it. */
function isMissingInReply(item: StreamedItem): boolean {
  return !item.done && !isWholeLater(item);
}

/** Whether a call was sent with all of its arguments, and may be closed only after the reply. */
function isWholeLater(item: StreamedItem): item is OpenCall {
  return item.type !== 'whole' && (item.type === 'mcp_call' || isBuiltInCallType(item.type)) && item.isWhole;
}

/**
 * Finds the items that were sent of a reply, with their parts, in the order of the reply. Other items are of an attempt of the
 * model that failed, or that was lost in a crash.
 */
function sentPartsOf(
  parts: readonly ShownPart[],
  items: readonly StreamedItem[],
  wasCut: boolean,
): ReadonlyMap<StreamedItem, ShownPart> {
  const found = new Map<StreamedItem, ShownPart>();
  for (const item of items) {
    const part = parts[found.size];
    if (part && isPartOf(item, part, wasCut)) found.set(item, part);
  }
  return found;
}

/** Whether an item of the turn was sent for a part. `wasCut`: an item that is incomplete may be the last one. */
function isPartOf(item: StreamedItem, part: ShownPart, wasCut: boolean): boolean {
  if (item.type === 'whole') return false;
  if (item.done?.status === 'incomplete' && !wasCut) return false;
  if ('text' in item) return item.text !== '' && part.type === item.kind && part.text.startsWith(item.text);
  if (part.type !== 'call' || storedCallName(part.call.name) !== modelName(item.name, item.namespace)) return false;
  if (item.type !== 'mcp_call' && itemOrigin(item.callId)?.number !== part.index) return false;
  const { arguments: text } = part.call;
  // There are no events for its arguments.
  if (item.type === 'tool_search_call' || isBuiltInCallType(item.type)) return true;
  if (item.type === 'custom_tool_call') return !item.isWhole || customInput(text) === item.arguments;
  return item.isWhole ? parsableArguments(text) === item.arguments : text.startsWith(item.arguments);
}
