import type { ModelReply } from '@treadle/core';
import type { WireEvent } from '../framing/framing.ts';
import { misunderstood } from '../http/failures.ts';
import { failureOfFrame, isErrorFrame } from '../http/provider-failures.ts';
import { fieldsOf, listOf, notJson, parsed, textIn } from '../json.ts';
import { DONE, MORE, saysNothing, type Emit, type StreamStatus } from '../protocol.ts';
import { THOUGHT_BREAK } from './reasoning.ts';
import { failureOfResponse, partsOf, replyOf } from './reply.ts';
import type { StreamEvent, WireItem, WireResponse } from './wire.ts';

/** A response while it arrives. */
export interface ResponsesStream {
  readonly signer: string;
  readonly items: OpenItem[];
  /** The newest item at each output index and under each id. */
  readonly byPlace: Map<number | string, OpenItem>;
  calls: number;
  /** There when the stream has said that the response is over. */
  response: WireResponse | undefined;
}

/** An item of the output while its pieces arrive. */
interface OpenItem {
  readonly type: string;
  /** Counts the reply's calls from 0. */
  readonly call: number;
  readonly pieces: string[];
  /** The thought to which the newest piece belongs. */
  thought: string;
  /** The item as the provider first told of it, and in the end the whole of it. */
  wire: Partial<WireItem>;
  isWhole: boolean;
}

export function startResponses(signer: string): ResponsesStream {
  return { signer, items: [], byPlace: new Map(), calls: 0, response: undefined };
}

export function stepResponses(stream: ResponsesStream, wire: WireEvent, emit: Emit): StreamStatus {
  if (saysNothing(wire)) return MORE;
  const text = wire.data.trim();
  if (text === '[DONE]') return DONE;
  const frame = parsed(text);
  if (frame === undefined) return notJson(text);
  const event = fieldsOf<StreamEvent>(frame);
  const type = textIn(event.type) || wire.name;
  switch (type) {
    case 'response.output_item.added':
      open(stream, event, fieldsOf(event.item), emit);
      return MORE;
    case 'response.output_item.done':
      close(stream, event, emit);
      return MORE;
    case 'response.output_text.delta':
    case 'response.refusal.delta':
      tell(openItem(stream, event, 'message', emit), textIn(event.delta), emit);
      return MORE;
    case 'response.reasoning_summary_text.delta':
    case 'response.reasoning_text.delta':
      tellThought(stream, event, type, emit);
      return MORE;
    case 'response.function_call_arguments.delta':
      tell(openItem(stream, event, 'function_call', emit), textIn(event.delta), emit);
      return MORE;
    case 'response.completed':
    case 'response.incomplete':
      finish(stream, { ...fieldsOf<WireResponse>(event.response), status: type.slice('response.'.length) }, emit);
      return DONE;
    case 'response.failed':
      return { type: 'failure', error: failureOfResponse({ status: 'failed', ...fieldsOf(event.response) }) };
    case 'error':
      return { type: 'failure', error: failureOfFrame(event) };
    default:
      // Hosts put an error into a frame of its own, without a type.
      if (type.startsWith('response.') || !isErrorFrame(event)) return MORE;
      return { type: 'failure', error: failureOfFrame(event) };
  }
}

export function endResponses({ response, items, signer }: ResponsesStream): ModelReply {
  if (response === undefined) {
    return { type: 'failure', error: misunderstood('The reply was cut off: it ended before the response was over.') };
  }
  const output = listOf(response.output);
  return replyOf(response, output.length === items.length ? output : items.map(wholeItem), signer);
}

/** An answer that came whole. */
export function decodeResponses(text: string, signer: string): ModelReply {
  const answer = parsed(text);
  if (answer === undefined) return notJson(text);
  const response = fieldsOf<WireResponse>(answer);
  return replyOf(response, listOf(response.output), signer);
}

/** Takes what is over, and tells of items that nothing has told of before: some hosts send them only here. */
function finish(stream: ResponsesStream, response: WireResponse, emit: Emit): void {
  stream.response = response;
  for (const item of listOf(response.output).slice(stream.items.length)) close(stream, { item }, emit);
}

function open(stream: ResponsesStream, event: StreamEvent, wire: Partial<WireItem>, emit: Emit): OpenItem {
  const type = textIn(wire.type);
  const isCall = type === 'function_call';
  const item: OpenItem = { type, call: isCall ? stream.calls++ : -1, pieces: [], thought: '', wire, isWhole: false };
  stream.items.push(item);
  if (typeof event.output_index === 'number') stream.byPlace.set(event.output_index, item);
  stream.byPlace.set(textIn(event.item_id) || textIn(wire.id), item);
  if (isCall) emit({ type: 'call-delta', call: item.call, name: textIn(wire.name), arguments: '' });
  return item;
}

/** The item to which an event belongs. The index tells, since some hosts give an item a new id with each event. */
function openItem(stream: ResponsesStream, event: StreamEvent, type: string, emit: Emit): OpenItem {
  const { output_index: index, item_id, item } = event;
  const place = typeof index === 'number' ? index : textIn(item_id) || textIn(fieldsOf<WireItem>(item).id);
  const found = stream.byPlace.get(place);
  return found?.type === type && !found.isWhole ? found : open(stream, event, { ...fieldsOf(item), type }, emit);
}

function close(stream: ResponsesStream, event: StreamEvent, emit: Emit): void {
  const wire = fieldsOf<WireItem>(event.item);
  const item = openItem(stream, event, textIn(wire.type), emit);
  item.wire = wire;
  item.isWhole = true;
  const part = partsOf([wire], stream.signer)[0];
  if (item.pieces.length > 0 || part === undefined) return;
  tell(item, part.type === 'tool-call' ? part.arguments : part.text, emit);
}

function tellThought(stream: ResponsesStream, event: StreamEvent, type: string, emit: Emit): void {
  const piece = textIn(event.delta);
  if (piece === '') return;
  const item = openItem(stream, event, 'reasoning', emit);
  const index = event.summary_index ?? event.content_index;
  const thought = typeof index === 'number' ? `${type} ${index}` : type;
  if (item.pieces.length > 0 && item.thought !== thought) tell(item, THOUGHT_BREAK, emit);
  item.thought = thought;
  tell(item, piece, emit);
}

function tell(item: OpenItem, piece: string, emit: Emit): void {
  if (piece === '') return;
  item.pieces.push(piece);
  switch (item.type) {
    case 'message':
      return void emit({ type: 'text-delta', text: piece });
    case 'reasoning':
      return void emit({ type: 'reasoning-delta', text: piece });
    case 'function_call':
      return void emit({ type: 'call-delta', call: item.call, name: textIn(item.wire.name), arguments: piece });
  }
}

/** Where the provider has told of an item only in pieces, it is made of them. */
function wholeItem({ wire, isWhole, type, pieces }: OpenItem): Partial<WireItem> {
  if (isWhole) return wire;
  const text = pieces.join('');
  switch (type) {
    case 'message':
      return { ...wire, content: text };
    case 'reasoning':
      return { type, summary: [{ text }] };
    case 'function_call':
      return { ...wire, arguments: text };
    default:
      return wire;
  }
}
