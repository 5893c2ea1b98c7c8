import type {
  AssistantPart,
  Finish,
  ReasoningPart,
  RecordedVerdict,
  TokenLogprob,
  ToolCall,
  ToolResult,
} from '@treadle/core';
import type { ApprovedCall } from '../../history/conversation.ts';
import { isClientAsked } from '../../requests/run.ts';
import type { CallKind, CallKinds } from '../../engine/tools.ts';
import { approvalIdFor, callIdFor, itemId, type ItemKind } from '../../ids.ts';
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
  type EventSender,
  type OpenCall,
  type OpenText,
  type TextKind,
  type StreamedItem,
  type WholeItem,
} from './output-items.ts';
import type { ReasoningSeal } from './reasoning-seal.ts';
import { isPartOf, sentPartsOf, type SentItem } from './sent-items.ts';

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
export interface TurnItems {
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

/** A call of an earlier response that this response executes. */
export interface BegunCall {
  readonly call: ToolCall;
  /** What the client decided about it; absent if that was not needed. */
  readonly approval?: ApprovedCall | undefined;
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

export function turnItems(
  number: number,
  { out, items, response, kinds, seal, carrier, sent }: TurnOptions,
): TurnItems {
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
    // Texts are closed in the order of the output: if the one before is closed, all are.
    const before = items.findLast((item) => item !== growing && item.type === 'text');
    if (isKnown && (!before || before.done)) closeText(out, growing, 'completed', { phase: 'commentary' });
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
      unclaimed = [];
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
      const item = compactionItem(id, encryptedContent);
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
