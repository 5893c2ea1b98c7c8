import { customInput } from '@treadle/core';
import { callIdFor, itemOrigin } from '../../ids.ts';
import { parsableArguments } from '../../engine/tools.ts';
import {
  newCall,
  storedCallName,
  type OpenCall,
  type OpenText,
  type ResponseEvent,
  type StreamedItem,
  type TextKind,
} from './output-items.ts';
import type { ShownPart } from './turn-items.ts';
import type { McpListToolsItem, OutputItem, ResponseResource, WireLogprob } from './wire.ts';

/*
 * What the stored events of a background response say about its items, for the process that continues the response after a
 * crash. The journal has the replies, but not their deltas, so it alone does not tell what readers already have.
 *
 * The events of one item of the run are stored together. So a text that is open has a part, and no item is half closed.
 */

/** The events of a response that were stored before it was resumed. */
export interface SentEvents {
  readonly count: number;
  /** The items of a turn, in the order in which they were opened. Those before the first turn, which the request has, are absent. */
  itemsOf(turn: number): readonly SentItem[];
  /** The last turn that has items; 0 if there is none. */
  readonly lastTurn: number;
  /** The response in the terminal event, if that is the last one. */
  readonly ended: ResponseResource | undefined;
}

export type SentItem = StreamedItem;

type Growing<T> = { -readonly [K in keyof T]: T[K] };
type GrowingItem = Growing<OpenText> | Growing<OpenCall>;

export function sentEvents(events: readonly ResponseEvent[]): SentEvents {
  const items: GrowingItem[] = [];
  const turns = new Map<number, SentItem[]>();
  let lastTurn = 0;
  for (const event of events) {
    const index = event['output_index'] as number | undefined;
    if (index === undefined) continue;
    if (event.type === 'response.output_item.added') {
      const opened = event['item'] as OutputItem;
      // The request has the compaction that the response begins with.
      if (opened.type === 'mcp_list_tools' || (opened.type === 'compaction' && index === 0)) continue;
      const item = openedItem(opened, index);
      if (item.type !== 'whole') items[index] = item;
      lastTurn = itemOrigin(opened.id)!.turn;
      turns.set(lastTurn, [...(turns.get(lastTurn) ?? []), item]);
      continue;
    }
    if (items[index]) applyEvent(items[index], event);
  }
  const last = events.at(-1);
  return {
    count: events.length,
    itemsOf: (turn) => turns.get(turn) ?? [],
    lastTurn,
    ended: last && isTerminal(last) ? (last['response'] as ResponseResource) : undefined,
  };
}

/** Whether an event is the last of its response. */
export function isTerminal({ type }: ResponseEvent): boolean {
  return type === 'response.completed' || type === 'response.incomplete' || type === 'response.failed';
}

function openedItem(item: Exclude<OutputItem, McpListToolsItem>, index: number): SentItem {
  const { type, id } = item;
  if (type === 'mcp_approval_request' || type === 'compaction') return { type: 'whole', done: item };
  if (type === 'message' || type === 'reasoning') {
    return { type: 'text', kind: type, id, index, text: '', isWhole: false, done: undefined };
  }
  return newCall(item, index);
}

/** The kinds of texts, by the types of their parts. */
const KINDS: Readonly<Record<string, TextKind>> = {
  output_text: 'message',
  refusal: 'refusal',
  reasoning_text: 'reasoning',
  summary_text: 'summary',
};

function applyEvent(item: GrowingItem, event: ResponseEvent): void {
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

/** A part of a whole reply, and the item of it that was sent. */
export interface SentPart {
  readonly part: ShownPart;
  readonly item: SentItem;
}

interface SentReply {
  /** The id of the response. */
  readonly response: string;
  readonly turn: number;
  /** The reply was cut off. */
  readonly wasCut: boolean;
}

/**
 * Finds the items that were sent of a reply. They are in the order of its parts. Items that do not belong to it are of an
 * attempt of the model that failed, or that was lost in a crash.
 */
export function sentPartsOf(parts: readonly ShownPart[], items: readonly SentItem[], reply: SentReply): SentPart[] {
  const found: SentPart[] = [];
  for (const item of items) {
    const part = parts[found.length];
    if (part && isPartOf(item, part, reply)) found.push({ part, item });
  }
  return found;
}

/** Whether an item was sent for a part. */
export function isPartOf(item: SentItem, part: ShownPart, { response, turn, wasCut }: SentReply): boolean {
  if (item.type === 'whole') return false;
  if (item.done?.status === 'incomplete' && !wasCut) return false;
  if ('text' in item) return item.text !== '' && part.type === item.kind && part.text.startsWith(item.text);
  if (part.type !== 'call' || storedCallName(part.call.name) !== item.name) return false;
  if (item.type !== 'mcp_call' && item.callId !== callIdFor(response, turn, part.index)) return false;
  const { arguments: text } = part.call;
  if (item.type === 'custom_tool_call') return !item.isWhole || customInput(text) === item.arguments;
  return item.isWhole ? parsableArguments(text) === item.arguments : text.startsWith(item.arguments);
}
