import type { AssistantPart, Finish, ModelReply, Usage } from '@treadle/core';
import type { WireEvent } from '../framing/framing.ts';
import { misunderstood } from '../http/failures.ts';
import { failureOfFrame, isErrorFrame } from '../http/provider-failures.ts';
import { isRecord, notJson, parsed } from '../json.ts';
import { DONE, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { usageOf } from '../usage.ts';
import { closedCall, openCalls, takeCalls, type OpenCall, type OpenCalls } from './calls.ts';
import { openDetails, signatureOf, takeDetails, type OpenDetails } from './reasoning-details.ts';
import type { WireChoice, WireChunk, WireContent, WireMessage, WireUsage } from './wire.ts';

/** A reply while it arrives. */
export interface ChatStream {
  readonly signer: string;
  readonly parts: OpenPart[];
  readonly calls: OpenCalls;
  /** Calls that are among the parts. */
  placed: number;
  details: OpenDetails | undefined;
  finish: string | undefined;
  usage: WireUsage | undefined;
  model: string;
}

type OpenPart =
  | { readonly type: 'text' | 'reasoning'; readonly pieces: string[] }
  | { readonly type: 'call'; readonly call: OpenCall };

export function startChat(signer: string): ChatStream {
  return {
    signer,
    parts: [],
    calls: openCalls(),
    placed: 0,
    details: undefined,
    finish: undefined,
    usage: undefined,
    model: '',
  };
}

const LAST = '[DONE]';

export function stepChat(stream: ChatStream, event: WireEvent, emit: Emit): StreamStatus {
  const text = event.data.trim();
  if (text === '' || event.name === 'ping') return MORE;
  // With the reason for its end all of a reply is there, also where the last word was cut.
  if (text === LAST || (stream.finish !== undefined && LAST.startsWith(text))) return DONE;
  const chunk = parsed(text);
  return chunk === undefined ? notJson(text) : takeChunk(stream, chunk as WireChunk | null, emit);
}

/** A whole answer is a stream of one chunk. */
export function decodeChat(text: string, signer: string): ModelReply {
  const stream = startChat(signer);
  const status = stepChat(stream, { name: '', data: text }, unheard);
  return status.type === 'failure' ? status : endChat(stream);
}

function unheard(): void {}

export function endChat(stream: ChatStream): ModelReply {
  if (stream.finish === undefined) {
    return { type: 'failure', error: misunderstood('The reply was cut off: it ended without a finish reason.') };
  }
  return {
    type: 'reply',
    content: contentOf(stream),
    finish: finishOf(stream.finish, stream.calls.all.length > 0),
    rawFinish: stream.finish,
    usage: usageIn(stream.usage),
    model: stream.model,
  };
}

function takeChunk(stream: ChatStream, chunk: WireChunk | null, emit: Emit): StreamStatus {
  if (!isRecord(chunk)) return MORE;
  if (isErrorFrame(chunk)) return { type: 'failure', error: failureOfFrame(chunk) };
  if (typeof chunk.model === 'string' && chunk.model !== '') stream.model = chunk.model;
  const usage = chunk.usage ?? chunk.x_groq?.usage;
  if (usage) stream.usage = usage;

  const choice = Array.isArray(chunk.choices) ? (chunk.choices[0] as WireChoice | null | undefined) : undefined;
  if (!choice || choice.index) return MORE;
  const { delta, message = null, finish_reason: reason } = choice;
  const said = delta ?? message;
  if (isRecord(said)) takeMessage(stream, said, emit);
  if (typeof reason !== 'string' || reason === '') return MORE;
  const broken = BROKEN.get(reason);
  if (broken !== undefined) {
    return { type: 'failure', error: { code: 'overloaded', message: broken, retryable: true } };
  }
  stream.finish = reason;
  return MORE;
}

function takeMessage(stream: ChatStream, message: WireMessage, emit: Emit): void {
  const reasoning = message.reasoning_content || message.reasoning;
  if (typeof reasoning === 'string' && reasoning !== '') takeReasoning(stream, reasoning, emit);
  if (Array.isArray(message.reasoning_details)) {
    takeDetails((stream.details ??= openDetails()), message.reasoning_details);
  }
  if (typeof message.content === 'string') takeText(stream, message.content, emit);
  else if (Array.isArray(message.content)) takeContent(stream, message.content, emit);
  if (typeof message.refusal === 'string') takeText(stream, message.refusal, emit);
  const calls = message.tool_calls ?? (message.function_call ? [{ index: 0, function: message.function_call }] : []);
  if (Array.isArray(calls) && calls.length > 0) {
    takeCalls(stream.calls, calls, (call, piece) => {
      if (call.number === stream.placed) {
        stream.parts.push({ type: 'call', call });
        stream.placed++;
      }
      emit({ type: 'call-delta', call: call.number, name: call.name, arguments: piece });
    });
  }
}

function takeText(stream: ChatStream, text: string, emit: Emit): void {
  if (text === '') return;
  add(stream, 'text', text);
  emit({ type: 'text-delta', text });
}

function takeReasoning(stream: ChatStream, text: string, emit: Emit): void {
  if (text === '') return;
  add(stream, 'reasoning', text);
  emit({ type: 'reasoning-delta', text });
}

function takeContent(stream: ChatStream, content: readonly (WireContent | null)[], emit: Emit): void {
  for (const part of content) {
    if (typeof part?.text === 'string') takeText(stream, part.text, emit);
    if (!Array.isArray(part?.thinking)) continue;
    for (const thought of part.thinking as readonly (WireContent | null)[]) {
      if (typeof thought?.text === 'string') takeReasoning(stream, thought.text, emit);
    }
  }
}

function add(stream: ChatStream, type: 'text' | 'reasoning', text: string): void {
  const part = stream.parts.at(-1);
  if (part?.type === type) part.pieces.push(text);
  else stream.parts.push({ type, pieces: [text] });
}

/** What proves the reasoning goes with its first part; without any in the open, it is a part of its own. */
function contentOf(stream: ChatStream): readonly AssistantPart[] {
  const content: AssistantPart[] = [];
  // Not by `map`: once that is compiled it makes arrays of another kind, and all code that reads a history is compiled anew.
  for (const part of stream.parts) content.push(closed(part));
  const signature = stream.details && signatureOf(stream.details);
  if (signature === undefined) return content;
  const at = content.findIndex(({ type }) => type === 'reasoning');
  const first = content[at];
  const text = first?.type === 'reasoning' ? first.text : '';
  const signed: AssistantPart = { type: 'reasoning', text, signature, protocol: stream.signer };
  return at === -1 ? [signed, ...content] : content.with(at, signed);
}

function closed(part: OpenPart): AssistantPart {
  return part.type === 'call' ? closedCall(part.call) : { type: part.type, text: part.pieces.join('') };
}

/** Reasons that are no end of a reply but a breakdown: OpenRouter's and DeepSeek's. */
const BROKEN: ReadonlyMap<string, string> = new Map([
  ['error', 'The provider broke off the reply with an error.'],
  ['insufficient_system_resource', 'The provider broke off the reply: it has too little capacity at the moment.'],
]);

function finishOf(raw: string, hasCalls: boolean): Finish {
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

function usageIn(usage: WireUsage | undefined): Usage {
  return usageOf({
    input: usage?.prompt_tokens,
    output: usage?.completion_tokens,
    cached: usage?.prompt_tokens_details?.cached_tokens ?? usage?.prompt_cache_hit_tokens,
    cacheWrite: usage?.prompt_tokens_details?.cache_write_tokens,
    reasoning: usage?.completion_tokens_details?.reasoning_tokens,
    cost: usage?.cost,
  });
}
