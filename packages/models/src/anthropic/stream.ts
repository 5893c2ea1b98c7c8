import type { AssistantPart, Finish, ModelError, ModelReply, Usage } from '@treadle/core';
import type { WireEvent } from '../framing.ts';
import { cutOff, failureOfBody, failureOfFrame, isErrorFrame, notJson } from '../http/failures.ts';
import { fieldsOf, isRecord, listOf, parsed, textIn } from '../json.ts';
import { DONE, isKeepAlive, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { countOf, usageOf } from '../usage.ts';
import { redactedThoughtPart, thoughtPart } from './thinking.ts';
import type {
  AnthropicBlock,
  AnthropicDelta,
  AnthropicEvent,
  AnthropicMessage,
  AnthropicUsage,
  Loose,
} from './wire.ts';

/** The fields of an event that are read, with those of errors. */
type WireStreamEvent = Loose<AnthropicEvent | Failed>;

/** A whole answer, or the empty start of a streamed one. */
type WireMessage = Loose<AnthropicMessage | Failed>;

type WireBlock = Loose<AnthropicBlock>;
type WireUsage = Loose<AnthropicUsage>;

/** A delta of a block or of the message. */
type WireDelta = Loose<AnthropicDelta | Pick<AnthropicMessage, 'stop_reason'>>;

/** What answers of hosts have instead if they are errors. */
interface Failed {
  readonly error: unknown;
  readonly object: unknown;
}

/** A reply while it arrives. */
export interface AnthropicStream {
  readonly signer: string;
  readonly blocks: OpenBlock[];
  /** The newest block at each index of the wire. */
  readonly byIndex: Map<unknown, OpenBlock>;
  calls: number;
  finish: string | undefined;
  usage: WireUsage;
  model: string;
}

/** A content block while its pieces arrive, which are joined once. */
type OpenBlock =
  | { readonly type: 'text'; readonly pieces: string[] }
  | { readonly type: 'thinking'; readonly pieces: string[]; signature: string }
  | { readonly type: 'redacted'; readonly data: string }
  | OpenCall
  /** Tools of the provider, and unknown types. */
  | { readonly type: 'other' };

interface OpenCall {
  readonly type: 'call';
  /** The position among the calls of the reply, from 0. */
  readonly number: number;
  readonly id: string;
  readonly name: string;
  /** Pieces of the arguments. */
  readonly pieces: string[];
}

export function startAnthropic(signer: string): AnthropicStream {
  return { signer, blocks: [], byIndex: new Map(), calls: 0, finish: undefined, usage: {}, model: '' };
}

export function stepAnthropic(stream: AnthropicStream, wire: WireEvent, emit: Emit): StreamStatus {
  if (isKeepAlive(wire)) return MORE;
  const { name, data } = wire;
  const event = parsed(data) as WireStreamEvent | null | undefined;
  if (event === undefined) {
    return name === 'error' ? { type: 'failure', error: failureOfAnthropicFrame({ error: data }) } : notJson(data);
  }
  if (!isRecord(event)) return MORE;
  if (isErrorFrame(event) || event.type === 'error') return { type: 'failure', error: failureOfAnthropicFrame(event) };
  switch (event.type) {
    case 'message_start':
      if (isRecord(event.message)) readAnthropicMessage(stream, event.message, emit);
      return MORE;
    case 'content_block_start':
      if (isRecord(event.content_block)) startBlock(stream, event.index, event.content_block, emit);
      return MORE;
    case 'content_block_delta':
      if (isRecord(event.delta)) readBlockDelta(stream, event.index, event.delta, emit);
      return MORE;
    case 'message_delta':
      readUsage(stream, event.usage);
      if (isRecord(event.delta)) readFinish(stream, event.delta.stop_reason);
      return MORE;
    case 'message_stop':
      return DONE;
    default:
      return MORE;
  }
}

/** A whole answer is the first event of a stream, with everything in it. */
export function decodeAnthropic(text: string, signer: string): ModelReply {
  const answer = parsed(text);
  if (answer === undefined) return notJson(text);
  const message = fieldsOf<WireMessage>(answer);
  if (isErrorFrame(message)) return { type: 'failure', error: failureOfAnthropicFrame(message) };
  const stream = startAnthropic(signer);
  readAnthropicMessage(stream, message, () => {});
  return endAnthropic(stream);
}

/** A reply with a stop reason is complete; `message_stop` adds nothing. */
export function endAnthropic(stream: AnthropicStream): ModelReply {
  const { finish: rawFinish, model, signer } = stream;
  if (rawFinish === undefined) return cutOff('it ended without a stop reason');
  const finish = anthropicFinish(rawFinish, stream.calls > 0);
  const content = stream.blocks.flatMap((block) => blockParts(block, { isTruncated: finish === 'length', signer }));
  return { type: 'reply', content, finish, rawFinish, usage: anthropicUsage(stream.usage), model };
}

function readAnthropicMessage(stream: AnthropicStream, message: WireMessage, emit: Emit): void {
  if (typeof message.model === 'string') stream.model = message.model;
  readUsage(stream, message.usage);
  readFinish(stream, message.stop_reason);
  for (const [index, block] of listOf(message.content).entries()) {
    if (isRecord(block)) startBlock(stream, index, block, emit);
  }
}

function startBlock(stream: AnthropicStream, index: unknown, wire: WireBlock, emit: Emit): OpenBlock {
  const block = openBlock(wire, stream.calls, emit);
  if (block.type === 'call') stream.calls++;
  stream.blocks.push(block);
  stream.byIndex.set(index, block);
  return block;
}

function readBlockDelta(stream: AnthropicStream, index: unknown, delta: WireDelta, emit: Emit): void {
  const block = stream.byIndex.get(index);
  if (block !== undefined) return addDelta(block, delta, emit);
  // Some hosts do not open blocks. A call without a name cannot be used, but text and thoughts can.
  const type = UNOPENED.get(delta.type);
  if (type !== undefined) addDelta(startBlock(stream, index, { type }, emit), delta, emit);
}

const UNOPENED: ReadonlyMap<unknown, string> = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
]);

function readFinish(stream: AnthropicStream, reason: unknown): void {
  if (typeof reason === 'string' && reason !== '') stream.finish = reason;
}

function readUsage(stream: AnthropicStream, usage: unknown): void {
  if (!isRecord(usage)) return;
  const reported = Object.entries(usage).filter(([, value]) => value != null);
  stream.usage = { ...stream.usage, ...(Object.fromEntries(reported) as WireUsage) };
}

function anthropicFinish(raw: string, hasCalls: boolean): Finish {
  switch (raw) {
    case 'max_tokens':
    case 'model_context_window_exceeded':
      return 'length';
    case 'refusal':
      return 'content-filter';
    default:
      return hasCalls ? 'tool-calls' : 'stop';
  }
}

function anthropicUsage(usage: WireUsage): Usage {
  const { cache_read_input_tokens: cached, cache_creation_input_tokens: cacheWrite } = usage;
  return usageOf({
    input: (countOf(usage.input_tokens) ?? 0) + (countOf(cached) ?? 0) + (countOf(cacheWrite) ?? 0),
    output: usage.output_tokens,
    cached,
    cacheWrite,
    reasoning: fieldsOf<Loose<{ thinking_tokens: number }>>(usage.output_tokens_details).thinking_tokens,
  });
}

/** `number` is used if the block is a call. */
function openBlock(wire: WireBlock, number: number, emit: Emit): OpenBlock {
  switch (wire.type) {
    case 'text': {
      const block: OpenBlock = { type: 'text', pieces: [] };
      addDelta(block, { type: 'text_delta', text: wire.text }, emit);
      return block;
    }
    case 'thinking': {
      const block: OpenBlock = { type: 'thinking', pieces: [], signature: textIn(wire.signature) };
      addDelta(block, { type: 'thinking_delta', thinking: wire.thinking }, emit);
      return block;
    }
    case 'redacted_thinking':
      return { type: 'redacted', data: textIn(wire.data) };
    case 'tool_use': {
      const id = textIn(wire.id) || `call_${number}`;
      const block: OpenBlock = { type: 'call', number, id, name: textIn(wire.name), pieces: [] };
      const input = inputText(wire.input);
      if (input !== '') block.pieces.push(input);
      emit({ type: 'call-delta', call: number, name: block.name, arguments: input });
      return block;
    }
    default:
      return { type: 'other' };
  }
}

function addDelta(block: OpenBlock, delta: WireDelta, emit: Emit): void {
  if (delta.type === 'text_delta' && block.type === 'text') {
    const text = textIn(delta.text);
    if (text === '') return;
    block.pieces.push(text);
    emit({ type: 'text-delta', text });
  } else if (delta.type === 'thinking_delta' && block.type === 'thinking') {
    const text = textIn(delta.thinking);
    if (text === '') return;
    block.pieces.push(text);
    emit({ type: 'reasoning-delta', text, summary: true });
  } else if (delta.type === 'signature_delta' && block.type === 'thinking') {
    block.signature = textIn(delta.signature);
  } else if (delta.type === 'input_json_delta' && block.type === 'call') {
    const piece = textIn(delta.partial_json);
    if (piece === '') return;
    block.pieces.push(piece);
    emit({ type: 'call-delta', call: block.number, name: block.name, arguments: piece });
  }
}

interface BlockContext {
  /** The reply reached a limit of tokens. */
  readonly isTruncated: boolean;
  readonly signer: string;
}

/** The parts of a finished block; none if it is empty or of an unknown type. */
function blockParts(block: OpenBlock, { isTruncated, signer }: BlockContext): readonly AssistantPart[] {
  switch (block.type) {
    case 'text':
      return block.pieces.length === 0 ? [] : [{ type: 'text', text: block.pieces.join('') }];
    case 'thinking':
      if (block.pieces.length === 0 && block.signature === '') return [];
      return [thoughtPart(block.pieces.join(''), block.signature, signer)];
    case 'redacted':
      return block.data === '' ? [] : [redactedThoughtPart(block.data, signer)];
    case 'call': {
      const { id, name, pieces } = block;
      // Missing arguments are an empty object, unless the reply was truncated before them.
      return [{ type: 'tool-call', id, name, arguments: pieces.join('') || (isTruncated ? '' : '{}') }];
    }
    case 'other':
      return [];
    default:
      return block satisfies never;
  }
}

/** An empty object is a placeholder in a stream, and means no arguments in a whole answer. */
function inputText(input: unknown): string {
  if (typeof input === 'string') return input;
  const json = input == null ? '' : JSON.stringify(input);
  return json === '{}' ? '' : json;
}

/** Errors have the shape of OpenAI's, `{error: {type, message}}`, and the same types except for a few. */
export function failureOfAnthropicBody(status: number, text: string): ModelError {
  return specificAnthropicFailure(failureOfBody(status, text));
}

/** The failure in an event of an answer that started without an error. */
export function failureOfAnthropicFrame(frame: { readonly error?: unknown }): ModelError {
  const error = specificAnthropicFailure(failureOfFrame(frame));
  const { type } = (frame.error ?? {}) as { readonly type?: unknown };
  // An internal failure of the provider. As an answer of its own it would have status 500.
  return type === 'api_error' ? { ...error, code: 'overloaded', retryable: true } : error;
}

/** Failures that the API reports as an invalid request though the request was valid. */
function specificAnthropicFailure(error: ModelError): ModelError {
  if (error.code !== 'invalid-request') return error;
  if (/credit balance is too low/i.test(error.message)) return { ...error, code: 'rate-limit' };
  if (/blocked by content filtering/i.test(error.message)) return { ...error, code: 'content-filter' };
  return error;
}
