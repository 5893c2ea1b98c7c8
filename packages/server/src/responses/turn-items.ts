import type { AssistantPart, Finish, ToolCall, ToolResult } from '@treadle/core';
import type { CallKind, CallKinds } from '../engine/call-kinds.ts';
import { acceptedName } from './call-name.ts';
import { encryptedContent } from './encrypted-content.ts';
import type { EventsOut } from './events-out.ts';
import { callIdFor, itemId, type ItemKind } from './ids.ts';
import { addArguments, answerCall, closeCall, endArguments, openCall, startCall, type OpenCall } from './open-call.ts';
import { addText, closeText, endText, openText, type OpenText } from './open-text.ts';
import { shownReply, type FurtherThought, type ShownPart } from './reply-parts.ts';

/**
 * The items of one turn, from the pieces of the reply, the reply itself and what becomes of its calls.
 *
 * 1. A reply makes the same items however it was cut into pieces, and also if it came without any: parts begin in the
 *    order in which they stand in it, and what the pieces lacked at the end is told when it is there.
 * 2. A text is whole when something else begins, and its item is closed then, unless it has to wait for what only the
 *    reply tells: the phase of a message before a thought, and what the model has to get back of a thought.
 * 3. A call of the client is closed when the reply is there, one of the server when it is answered.
 */
export interface TurnItems {
  readonly turn: number;
  text(type: 'message' | 'reasoning', piece: string): void;
  call(index: number, name: string, piece: string): void;
  replied(content: readonly AssistantPart[], finish: Finish): void;
  /** The model is asked again: what it has said so far was not its reply. */
  failed(): void;
  started(index: number): void;
  answered(index: number, result: ToolResult): void;
  /** The client has to execute it. */
  waits(index: number): void;
}

export interface TurnOptions {
  readonly out: EventsOut;
  /** Of the whole response; this turn's are added. */
  readonly items: (OpenText | OpenCall)[];
  /** The response's id. */
  readonly response: string;
  readonly kinds: CallKinds;
  readonly encrypted: boolean;
}

interface ReplyCall {
  name: string;
  /** Of the arguments, while the call has to wait for those before it. */
  held: string;
  /** There when it has begun. */
  kind: CallKind | undefined;
  item: OpenCall | undefined;
  /** There when the reply is. */
  whole: ToolCall | undefined;
}

export function turnItems(turn: number, { out, items, response, kinds, encrypted }: TurnOptions): TurnItems {
  let opened = 0;
  let growing: OpenText | undefined;
  let texts: Record<'message' | 'reasoning', OpenText[]> = { message: [], reasoning: [] };
  let calls: ReplyCall[] = [];
  let begun = 0;
  /** Something came while a call before it had to wait: to keep the order, nothing more begins until the reply is there. */
  let isOutOfStep = false;

  function newId(kind: ItemKind): string {
    return itemId(kind, response, turn, opened++);
  }

  function beginText(type: 'message' | 'reasoning'): OpenText {
    const item: OpenText = { type, id: newId(type), index: items.length, text: '', isWhole: false, done: undefined };
    items.push(item);
    texts[type].push(item);
    openText(out, item);
    return item;
  }

  /** Something else begins, maybe a call. */
  function endGrowing(before: 'text' | 'call'): void {
    if (!growing) return;
    endText(out, growing);
    const isKnown = growing.type === 'message' ? before === 'call' : !encrypted;
    if (isKnown) closeText(out, growing, 'completed', { phase: 'commentary' });
    growing = undefined;
  }

  function beginCall(call: ReplyCall, index: number): void {
    endGrowing('call');
    call.kind = kinds.kindOf(call.name, index);
    begun = index + 1;
    if (call.kind === 'client-later') return;
    show(call, index, call.kind === 'client' ? 'function_call' : 'mcp_call');
  }

  function show(call: ReplyCall, index: number, type: OpenCall['type']): OpenCall {
    const item: OpenCall = {
      type,
      id: newId(type),
      index: items.length,
      callId: callIdFor(response, turn, index),
      label: kinds.labelOf(call.name),
      name: acceptedName(call.name),
      arguments: '',
      isWhole: false,
      hasStarted: false,
      done: undefined,
    };
    items.push(item);
    openCall(out, item);
    addArguments(out, item, call.whole?.arguments ?? call.held);
    call.item = item;
    return item;
  }

  function replyCall(index: number): ReplyCall {
    return (calls[index] ??= { name: '', held: '', kind: undefined, item: undefined, whole: undefined });
  }

  /** In the order of the reply, though their pieces may come in any, and with a name. */
  function beginReady(): void {
    if (isOutOfStep) return;
    for (let call = calls[begun]; call && call.name !== ''; call = calls[begun]) beginCall(call, begun);
  }

  function takeText(part: Exclude<ShownPart, { type: 'call' }>, nth: number, end: PartEnd): void {
    let item = texts[part.type][nth];
    if (!item) {
      endGrowing('text');
      item = beginText(part.type);
    }
    endText(out, item, part.text);
    const seal = part.type === 'reasoning' && encrypted ? { encrypted: encryptedContent(part.first) } : {};
    closeText(out, item, end.isCut ? 'incomplete' : 'completed', { phase: end.phase, ...seal });
  }

  function takeCall(whole: ToolCall, index: number, isCut: boolean): void {
    const call = replyCall(index);
    call.name = whole.name;
    call.whole = whole;
    if (call.kind === undefined) beginCall(call, index);
    if (!call.item) return;
    call.item.name = acceptedName(whole.name);
    endArguments(out, call.item, whole.arguments);
    if (call.item.type === 'function_call') closeCall(out, call.item, isCut ? 'incomplete' : 'completed');
  }

  /** Nobody reads it, but the model has to get it back. A stream learns of it last, so it stands last. */
  function addHidden({ part, after }: FurtherThought): void {
    closeText(out, beginText('reasoning'), 'completed', { encrypted: encryptedContent(part, after) });
  }

  function forget(): void {
    growing = undefined;
    texts = { message: [], reasoning: [] };
    calls = [];
    begun = 0;
    isOutOfStep = false;
  }

  return {
    turn,
    text(type, piece) {
      if (piece === '') return;
      isOutOfStep ||= begun < calls.length;
      if (isOutOfStep) return;
      if (growing?.type !== type) {
        endGrowing('text');
        growing = beginText(type);
      }
      addText(out, growing, piece);
    },
    call(index, name, piece) {
      const call = replyCall(index);
      if (call.item) return addArguments(out, call.item, piece);
      if (call.kind !== undefined) return;
      call.name ||= name;
      call.held += piece;
      beginReady();
    },
    replied(content, finish) {
      const { parts, calls: whole, further } = shownReply(content);
      const phase = whole.length > 0 ? 'commentary' : 'final_answer';
      const wasCut = finish === 'length' || finish === 'content-filter';
      const seen = { message: 0, reasoning: 0 };
      for (const [position, part] of parts.entries()) {
        const isCut = wasCut && position === parts.length - 1;
        // Nobody is asked for calls of a reply that was cut off or filtered.
        if (part.type === 'call') takeCall(part.call, part.index, wasCut);
        else takeText(part, seen[part.type]++, { phase, isCut });
      }
      interrupt(out, items.slice(items.length - opened).filter(isUnsaid));
      if (encrypted) further.forEach(addHidden);
    },
    failed() {
      interrupt(out, items);
      forget();
    },
    started(index) {
      const item = calls[index]?.item;
      if (item) startCall(out, item);
    },
    answered(index, result) {
      const call = calls[index];
      if (call) answerCall(out, call.item ?? show(call, index, 'mcp_call'), result);
    },
    waits(index) {
      const call = calls[index];
      if (call?.kind === 'client-later' && !call.item) {
        closeCall(out, show(call, index, 'function_call'), 'completed');
      }
    },
  };
}

interface PartEnd {
  readonly phase: 'commentary' | 'final_answer';
  readonly isCut: boolean;
}

/** Pieces told of it, and the reply does not. */
function isUnsaid(item: OpenText | OpenCall): boolean {
  return !item.done && !(item.type === 'mcp_call' && item.isWhole);
}

/** Closes whatever is open, as far as it came. */
export function interrupt(out: EventsOut, items: readonly (OpenText | OpenCall)[]): void {
  for (const item of items) {
    if (item.done) continue;
    if ('text' in item) closeText(out, item, item.isWhole ? 'completed' : 'incomplete');
    else closeCall(out, item, 'incomplete');
  }
}
