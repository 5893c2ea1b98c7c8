import type { AssistantPart, Finish, ModelReply, TokenLogprob, ToolCall, ToolSpec, Usage } from '@treadle/core';
import type { WireEvent } from '../framing.ts';
import { cutOff, failureOfFrame, isErrorFrame, notJson } from '../http/failures.ts';
import { isJsonObject, isRecord, parsed } from '../json.ts';
import { addLogprobs, logprobsOf, type WithLogprobs } from '../logprobs.ts';
import { DONE, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { usageOf } from '../usage.ts';
import {
  readCallPieces,
  startCalls,
  takesNothing,
  toolCallOf,
  type OpenCall,
  type OpenCalls,
  type WireCall,
  type WireFunction,
} from './call-pieces.ts';
import { readDetails, signatureOf, startDetails, type OpenDetails } from './reasoning-details.ts';

/** The fields of a chunk that are read. Hosts omit, repeat and add fields, so none is certain to be present. */
interface WireChunk {
  readonly model?: unknown;
  readonly choices?: readonly (WireChoice | null)[] | null;
  readonly usage?: WireUsage | null;
  /** Where Groq reports usage. */
  readonly x_groq?: { readonly usage?: WireUsage | null } | null;
  readonly error?: unknown;
  /** `error` if the chunk is an error (vLLM). */
  readonly object?: unknown;
}

interface WireChoice {
  readonly index?: number;
  /** In a stream. */
  readonly delta?: WireMessage | null;
  /** In a whole answer. */
  readonly message?: WireMessage | null;
  readonly finish_reason?: string | null;
  readonly logprobs?: { readonly content?: unknown } | null;
}

interface WireMessage {
  readonly content?: string | readonly WireContent[] | null;
  readonly refusal?: string | null;
  readonly reasoning_content?: string | null;
  readonly reasoning?: string | null;
  /** From OpenRouter. */
  readonly reasoning_details?: readonly unknown[] | null;
  readonly tool_calls?: readonly (WireCall | null)[] | null;
  /** The older form of a single call. */
  readonly function_call?: WireFunction | null;
}

/** Mistral sends content in parts. */
interface WireContent {
  readonly type?: string;
  readonly text?: string;
  readonly thinking?: readonly WireContent[];
}

interface WireUsage {
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number; readonly cache_write_tokens?: number } | null;
  readonly completion_tokens_details?: { readonly reasoning_tokens?: number } | null;
  /** Where DeepSeek reports cached tokens. */
  readonly prompt_cache_hit_tokens?: number;
  /** From OpenRouter: in credits, which are dollars. */
  readonly cost?: number;
}

/** A reply while it arrives. */
export interface ChatStream {
  readonly signer: string;
  readonly parts: OpenPart[];
  readonly calls: OpenCalls;
  /** The number of calls in `parts`. */
  placedCalls: number;
  details: OpenDetails | undefined;
  finish: string | undefined;
  /** The host has said that nothing follows. */
  isDone: boolean;
  usage: WireUsage | undefined;
  model: string;
}

type OpenPart =
  | ({ readonly type: 'text' | 'refusal' | 'reasoning'; readonly pieces: string[] } & WithLogprobs)
  | { readonly type: 'call'; readonly call: OpenCall };

export function startChat(signer: string, tools?: readonly ToolSpec[]): ChatStream {
  return {
    signer,
    parts: [],
    calls: startCalls(tools),
    placedCalls: 0,
    details: undefined,
    finish: undefined,
    isDone: false,
    usage: undefined,
    model: '',
  };
}

const LAST_EVENT = '[DONE]';

export function stepChat(stream: ChatStream, event: WireEvent, emit: Emit): StreamStatus {
  const text = event.data.trim();
  if (text === '' || event.name === 'ping') return MORE;
  // After the finish reason the reply is complete, even if the last event was truncated.
  if (text === LAST_EVENT || (stream.finish !== undefined && LAST_EVENT.startsWith(text))) {
    stream.isDone = true;
    return DONE;
  }
  const chunk = parsed(text);
  return chunk === undefined ? notJson(text) : readChatChunk(stream, chunk as WireChunk | null, emit);
}

/** A whole answer is a stream of one chunk. */
export function decodeChat(text: string, signer: string): ModelReply {
  const stream = startChat(signer);
  const status = stepChat(stream, { name: '', data: text }, () => {});
  stream.isDone = true;
  return status.type === 'failure' ? status : endChat(stream);
}

export function endChat(stream: ChatStream): ModelReply {
  const content = chatContent(stream);
  const { finish = stream.isDone && isWholeContent(content, stream.calls) ? '' : undefined } = stream;
  if (finish === undefined) return cutOff('it ended without a finish reason');
  return {
    type: 'reply',
    content,
    finish: chatFinish(finish, stream.calls.all.length > 0),
    rawFinish: finish,
    usage: chatUsage(stream.usage),
    model: stream.model,
  };
}

/**
 * Some hosts and proxies send no finish reason, or an empty one. Their reply counts only with its last event, with an answer in
 * it, and if every call has its arguments, or none where its tool takes none: a proxy whose provider broke off may send the last
 * event too.
 */
function isWholeContent(content: readonly AssistantPart[], { tools }: OpenCalls): boolean {
  const isWhole = ({ name, arguments: json }: ToolCall): boolean =>
    json === '' ? takesNothing(name, tools) : isJsonObject(parsed(json));
  return (
    content.some(({ type }) => type !== 'reasoning') &&
    content.every((part) => part.type !== 'tool-call' || isWhole(part))
  );
}

function readChatChunk(stream: ChatStream, chunk: WireChunk | null, emit: Emit): StreamStatus {
  if (!isRecord(chunk)) return MORE;
  if (isErrorFrame(chunk)) return { type: 'failure', error: failureOfFrame(chunk) };
  if (typeof chunk.model === 'string' && chunk.model !== '') stream.model = chunk.model;
  const usage = chunk.usage ?? chunk.x_groq?.usage;
  if (usage) stream.usage = usage;

  const choice = Array.isArray(chunk.choices) ? (chunk.choices[0] as WireChoice | null | undefined) : undefined;
  if (!choice || choice.index) return MORE;
  const { delta, message = null, finish_reason: reason, logprobs } = choice;
  const content = delta ?? message;
  if (isRecord(content)) readChatMessage(stream, content, emit, logprobs ? logprobsOf(logprobs.content) : undefined);
  if (typeof reason !== 'string' || reason === '') return MORE;
  const breakdown = BREAKDOWNS.get(reason);
  if (breakdown !== undefined) {
    return { type: 'failure', error: { code: 'overloaded', message: breakdown, retryable: true } };
  }
  stream.finish = reason;
  return MORE;
}

function readChatMessage(
  stream: ChatStream,
  message: WireMessage,
  emit: Emit,
  logprobs: readonly TokenLogprob[] | undefined,
): void {
  const reasoning = message.reasoning_content || message.reasoning;
  if (typeof reasoning === 'string') addChatPiece(stream, 'reasoning', reasoning, emit);
  if (Array.isArray(message.reasoning_details)) {
    readDetails((stream.details ??= startDetails()), message.reasoning_details);
  }
  if (typeof message.content === 'string') {
    if (logprobs) addTextWithLogprobs(stream, message.content, logprobs, emit);
    else addChatPiece(stream, 'text', message.content, emit);
  } else if (Array.isArray(message.content)) addChatContent(stream, message.content, emit);
  if (typeof message.refusal === 'string') addChatPiece(stream, 'refusal', message.refusal, emit);
  const calls = message.tool_calls ?? (message.function_call ? [{ index: 0, function: message.function_call }] : []);
  if (Array.isArray(calls) && calls.length > 0) {
    readCallPieces(stream.calls, calls, (call, piece) =>
      emit({ type: 'call-delta', call: call.number, name: call.name, arguments: piece }),
    );
    for (const call of stream.calls.all.slice(stream.placedCalls)) stream.parts.push({ type: 'call', call });
    stream.placedCalls = stream.calls.all.length;
  }
}

function addChatContent(stream: ChatStream, content: readonly (WireContent | null)[], emit: Emit): void {
  for (const part of content) {
    if (typeof part?.text === 'string') addChatPiece(stream, 'text', part.text, emit);
    if (!Array.isArray(part?.thinking)) continue;
    for (const thought of part.thinking as readonly (WireContent | null)[]) {
      if (typeof thought?.text === 'string') addChatPiece(stream, 'reasoning', thought.text, emit);
    }
  }
}

function addChatPiece({ parts }: ChatStream, type: 'text' | 'refusal' | 'reasoning', text: string, emit: Emit): void {
  if (text === '') return;
  const part = parts.at(-1);
  if (part?.type === type) part.pieces.push(text);
  else parts.push({ type, pieces: [text] });
  if (type === 'refusal') emit({ type: 'text-delta', text, refusal: true });
  else emit({ type: type === 'text' ? 'text-delta' : 'reasoning-delta', text });
}

function addTextWithLogprobs({ parts }: ChatStream, text: string, logprobs: readonly TokenLogprob[], emit: Emit): void {
  let part = parts.at(-1);
  if (part?.type !== 'text') parts.push((part = { type: 'text', pieces: [] }));
  part.pieces.push(text);
  addLogprobs(part, logprobs);
  emit({ type: 'text-delta', text, logprobs });
}

/** The signature goes with the first part of the reasoning. If the reasoning has no text, it becomes a part of its own. */
function chatContent(stream: ChatStream): readonly AssistantPart[] {
  const content: AssistantPart[] = [];
  // Not `map`: once compiled, it creates arrays of another kind, and all code that reads a history is compiled again.
  for (const part of stream.parts) content.push(chatPart(part, stream.signer));
  const signature = stream.details && signatureOf(stream.details);
  if (signature === undefined) return content;
  const at = content.findIndex(({ type }) => type === 'reasoning');
  const first = content[at];
  const text = first?.type === 'reasoning' ? first.text : '';
  const signed: AssistantPart = { type: 'reasoning', text, signature, protocol: stream.signer };
  return at === -1 ? [signed, ...content] : content.with(at, signed);
}

function chatPart(part: OpenPart, signer: string): AssistantPart {
  if (part.type === 'call') return toolCallOf(part.call, signer);
  const text = part.pieces.join('');
  if (part.type === 'refusal') return { type: 'text', text, refusal: true };
  return part.logprobs ? { type: 'text', text, logprobs: part.logprobs } : { type: part.type, text };
}

/** Finish reasons of OpenRouter and DeepSeek that mean a failure of the provider. */
const BREAKDOWNS: ReadonlyMap<string, string> = new Map([
  ['error', 'The provider broke off the reply with an error.'],
  ['insufficient_system_resource', 'The provider broke off the reply: it has too little capacity at the moment.'],
]);

function chatFinish(raw: string, hasCalls: boolean): Finish {
  switch (raw) {
    case 'length':
    case 'max_tokens':
      return 'length';
    case 'content_filter':
      return 'content-filter';
    default:
      return hasCalls ? 'tool-calls' : 'stop';
  }
}

function chatUsage(usage: WireUsage | undefined): Usage {
  return usageOf({
    input: usage?.prompt_tokens,
    output: usage?.completion_tokens,
    cached: usage?.prompt_tokens_details?.cached_tokens ?? usage?.prompt_cache_hit_tokens,
    cacheWrite: usage?.prompt_tokens_details?.cache_write_tokens,
    reasoning: usage?.completion_tokens_details?.reasoning_tokens,
    cost: usage?.cost,
  });
}
