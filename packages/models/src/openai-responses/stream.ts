import type { Finish, ModelDelta, ModelError, ModelReply, TokenLogprob, Usage } from '@treadle/core';
import type { WireEvent } from '../framing.ts';
import { cutOff, failureOfFrame, isErrorFrame, protocolFailure, notJson } from '../http/failures.ts';
import { fieldsOf, listOf, parsed, textIn } from '../json.ts';
import { logprobsOf } from '../logprobs.ts';
import { DONE, isKeepAlive, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { usageOf } from '../usage.ts';
import { partsOf, THOUGHT_BREAK, type WireItem } from './items.ts';

/** The fields of a response that are read. Hosts omit and add fields, so no field and no type is certain. */
interface WireResponse {
  readonly status?: unknown;
  readonly model?: unknown;
  readonly output?: unknown;
  readonly usage?: unknown;
  readonly error?: unknown;
  /** `error` if the answer is an error (vLLM). */
  readonly object?: unknown;
  readonly incomplete_details?: unknown;
}

/** One event of a stream. Its type decides which fields it has. */
interface StreamEvent {
  readonly type?: unknown;
  readonly response?: unknown;
  readonly output_index?: unknown;
  readonly item_id?: unknown;
  readonly item?: unknown;
  readonly summary_index?: unknown;
  readonly content_index?: unknown;
  readonly delta?: unknown;
  readonly logprobs?: unknown;
  readonly error?: unknown;
  readonly object?: unknown;
}

interface WireUsage {
  readonly input_tokens?: unknown;
  readonly input_tokens_details?: unknown;
  readonly output_tokens?: unknown;
  readonly output_tokens_details?: unknown;
}

/** A response while it arrives. */
export interface ResponsesStream {
  readonly signer: string;
  readonly items: OpenItem[];
  /** The newest item for each output index and each id. */
  readonly byKey: Map<number | string, OpenItem>;
  calls: number;
  /** Set when the stream has reported the end of the response. */
  response: WireResponse | undefined;
}

/** An item of the output while its pieces arrive. */
interface OpenItem {
  readonly type: string;
  /** The position among the calls of the reply, from 0; -1 if the item is not a call. */
  readonly call: number;
  readonly parts: OpenPart[];
  /** The item as it was first sent, replaced by the complete item at its end. */
  wire: Partial<WireItem>;
  isComplete: boolean;
}

/** A part of an item while its pieces arrive. The arguments of a call are one part. */
interface OpenPart {
  readonly type: PartType;
  readonly pieces: string[];
  /** The tokens as the provider sent them. */
  logprobs?: unknown[];
  /** The thought that the newest piece belongs to. */
  thought: unknown;
}

type PartType = 'output_text' | 'refusal' | 'summary_text' | 'reasoning_text' | 'arguments';

export function startResponses(signer: string): ResponsesStream {
  return { signer, items: [], byKey: new Map(), calls: 0, response: undefined };
}

export function stepResponses(stream: ResponsesStream, wire: WireEvent, emit: Emit): StreamStatus {
  if (isKeepAlive(wire)) return MORE;
  const text = wire.data.trim();
  if (text === '[DONE]') return DONE;
  if (isRepetition(wire.name, text)) return MORE;
  const frame = parsed(text);
  if (frame === undefined) return notJson(text);
  const event = fieldsOf<StreamEvent>(frame);
  const type = textIn(event.type) || wire.name;
  switch (type) {
    case 'response.output_item.added':
      startItem(stream, event, fieldsOf(event.item), emit);
      return MORE;
    case 'response.output_item.done':
      completeItem(stream, event, emit);
      return MORE;
    case 'response.output_text.delta':
      addOutputText(itemFor(stream, event, 'message', emit), event, emit);
      return MORE;
    case 'response.refusal.delta':
      addPiece(itemFor(stream, event, 'message', emit), 'refusal', textIn(event.delta), emit);
      return MORE;
    case 'response.reasoning_summary_text.delta':
      addThought(stream, event, 'summary_text', emit);
      return MORE;
    case 'response.reasoning_text.delta':
      addThought(stream, event, 'reasoning_text', emit);
      return MORE;
    case 'response.function_call_arguments.delta':
      addPiece(itemFor(stream, event, 'function_call', emit), 'arguments', textIn(event.delta), emit);
      return MORE;
    case 'response.completed':
    case 'response.incomplete':
      endResponse(stream, { ...fieldsOf<WireResponse>(event.response), status: type.slice('response.'.length) }, emit);
      return DONE;
    case 'response.failed':
      return { type: 'failure', error: failureOfResponse({ status: 'failed', ...fieldsOf(event.response) }) };
    case 'error':
      return { type: 'failure', error: failureOfFrame(event) };
    default:
      // Some hosts send an error as an event without a type.
      if (type.startsWith('response.') || !isErrorFrame(event)) return MORE;
      return { type: 'failure', error: failureOfFrame(event) };
  }
}

/** Events of the official protocol that only repeat what others contain. Some are as long as the whole answer. */
const REPETITIONS: ReadonlySet<string> = new Set([
  'response.created',
  'response.in_progress',
  'response.content_part.added',
  'response.content_part.done',
  'response.output_text.done',
  'response.function_call_arguments.done',
]);

/** Decided without parsing. An event whose data has another type than its name is not one of them. */
function isRepetition(name: string, text: string): boolean {
  return REPETITIONS.has(name) && text.startsWith(`{"type":"${name}"`) && text.endsWith('}');
}

export function endResponses({ response, items, signer }: ResponsesStream): ModelReply {
  if (response === undefined) return cutOff('it ended before the last event of the response');
  const output = listOf(response.output);
  return replyOfResponse(response, output.length === items.length ? output : items.map(itemOf), signer);
}

/** The reply of an answer that was not streamed. */
export function decodeResponses(text: string, signer: string): ModelReply {
  const answer = parsed(text);
  if (answer === undefined) return notJson(text);
  const response = fieldsOf<WireResponse>(answer);
  return replyOfResponse(response, listOf(response.output), signer);
}

/** Stores the response and reads items that were not streamed: some hosts send them only at the end. */
function endResponse(stream: ResponsesStream, response: WireResponse, emit: Emit): void {
  stream.response = response;
  for (const item of listOf(response.output).slice(stream.items.length)) completeItem(stream, { item }, emit);
}

function startItem(stream: ResponsesStream, event: StreamEvent, wire: Partial<WireItem>, emit: Emit): OpenItem {
  const type = textIn(wire.type);
  const isCall = type === 'function_call' || type === 'custom_tool_call';
  const item: OpenItem = { type, call: isCall ? stream.calls++ : -1, parts: [], wire, isComplete: false };
  stream.items.push(item);
  if (typeof event.output_index === 'number') stream.byKey.set(event.output_index, item);
  stream.byKey.set(textIn(event.item_id) || textIn(wire.id), item);
  if (isCall) emit({ type: 'call-delta', call: item.call, name: textIn(wire.name), arguments: '' });
  return item;
}

/** The item that an event belongs to, by its index: some hosts change the id of an item with each event. */
function itemFor(stream: ResponsesStream, event: StreamEvent, type: string, emit: Emit): OpenItem {
  const { output_index: index, item_id, item } = event;
  const key = typeof index === 'number' ? index : textIn(item_id) || textIn(fieldsOf<WireItem>(item).id);
  const found = stream.byKey.get(key);
  return found?.type === type && !found.isComplete
    ? found
    : startItem(stream, event, { ...fieldsOf(item), type }, emit);
}

function completeItem(stream: ResponsesStream, event: StreamEvent, emit: Emit): void {
  const wire = fieldsOf<WireItem>(event.item);
  const item = itemFor(stream, event, textIn(wire.type), emit);
  item.wire = wire;
  item.isComplete = true;
  if (item.parts.length > 0) return;
  for (const part of partsOf([wire], stream.signer)) {
    if (part.type === 'tool-call') addPiece(item, 'arguments', part.arguments, emit);
    else if (part.type === 'text')
      addPiece(item, part.refusal ? 'refusal' : 'output_text', part.text, emit, part.logprobs);
    else addPiece(item, part.summary ? 'summary_text' : 'reasoning_text', part.text, emit);
  }
}

function addThought(stream: ResponsesStream, event: StreamEvent, type: PartType, emit: Emit): void {
  const piece = textIn(event.delta);
  if (piece === '') return;
  const item = itemFor(stream, event, 'reasoning', emit);
  const thought = event.summary_index ?? event.content_index;
  const last = item.parts.at(-1);
  if (last?.type === type && last.thought !== thought) addPiece(item, type, THOUGHT_BREAK, emit);
  addPiece(item, type, piece, emit);
  item.parts.at(-1)!.thought = thought;
}

function addOutputText(item: OpenItem, { delta, logprobs: wire }: StreamEvent, emit: Emit): void {
  const logprobs = logprobsOf(wire);
  addPiece(item, 'output_text', textIn(delta), emit, logprobs);
  const part = item.parts.at(-1);
  if (logprobs && part) (part.logprobs ??= []).push(...listOf(wire));
}

function addPiece(item: OpenItem, type: PartType, piece: string, emit: Emit, logprobs?: readonly TokenLogprob[]): void {
  if (piece === '') return;
  const last = item.parts.at(-1);
  if (last?.type === type) last.pieces.push(piece);
  else item.parts.push({ type, pieces: [piece], thought: undefined });
  emit(logprobs ? { type: 'text-delta', text: piece, logprobs } : deltaOf(item, type, piece));
}

function deltaOf({ call, wire }: OpenItem, type: PartType, text: string): ModelDelta {
  switch (type) {
    case 'output_text':
      return { type: 'text-delta', text };
    case 'refusal':
      return { type: 'text-delta', text, refusal: true };
    case 'summary_text':
      return { type: 'reasoning-delta', text, summary: true };
    case 'reasoning_text':
      return { type: 'reasoning-delta', text };
    case 'arguments':
      return { type: 'call-delta', call, name: textIn(wire.name), arguments: text };
    default:
      return type satisfies never;
  }
}

/** The complete item, assembled from its pieces if the provider has not sent it. */
function itemOf({ wire, isComplete, type, parts }: OpenItem): Partial<WireItem> {
  if (isComplete || parts.length === 0) return wire;
  const whole = parts.map(({ type, pieces, logprobs }) => ({
    type,
    [type === 'refusal' ? type : 'text']: pieces.join(''),
    ...(logprobs && { logprobs }),
  }));
  switch (type) {
    case 'message':
      return { ...wire, content: whole };
    case 'reasoning':
      return {
        type,
        summary: whole.filter((part) => part.type === 'summary_text'),
        content: whole.filter((part) => part.type === 'reasoning_text'),
      };
    case 'function_call':
      return { ...wire, arguments: parts[0]!.pieces.join('') };
    default:
      return wire;
  }
}

/** The reply of a response that has ended, with these items as its output. */
function replyOfResponse(response: WireResponse, items: readonly unknown[], signer: string): ModelReply {
  const status = textIn(response.status);
  if (status !== 'completed' && status !== 'incomplete') {
    return { type: 'failure', error: failureOfResponse(response) };
  }
  const content = partsOf(items, signer);
  let finish: Finish = content.some((part) => part.type === 'tool-call') ? 'tool-calls' : 'stop';
  let rawFinish: string = status;
  if (status === 'incomplete') {
    rawFinish = textIn(fieldsOf<{ reason: unknown }>(response.incomplete_details).reason) || status;
    finish = rawFinish === 'content_filter' ? 'content-filter' : 'length';
  }
  const model = textIn(response.model);
  return { type: 'reply', content, finish, rawFinish, usage: responsesUsage(response.usage), model };
}

/** The failure of a response that failed, or of an answer that is not a response. */
function failureOfResponse(response: WireResponse): ModelError {
  const { error } = response;
  if (isErrorFrame(response)) return failureOfFrame(error ? { error } : response);
  const status = textIn(response.status);
  if (status === '') return protocolFailure('The answer is not a response: it has no status.');
  return protocolFailure(`The response failed without a reason: its status is "${status}".`);
}

function responsesUsage(value: unknown): Usage {
  const usage = fieldsOf<WireUsage>(value);
  const input = fieldsOf<{ cached_tokens: unknown; cache_write_tokens: unknown }>(usage.input_tokens_details);
  const output = fieldsOf<{ reasoning_tokens: unknown }>(usage.output_tokens_details);
  return usageOf({
    input: usage.input_tokens,
    output: usage.output_tokens,
    cached: input.cached_tokens,
    cacheWrite: input.cache_write_tokens,
    reasoning: output.reasoning_tokens,
  });
}
