import type { AssistantPart, Finish, ModelReply, ToolCall, Usage } from '@treadle/core';
import type { WireEvent } from '../framing.ts';
import { cutOff, failureOfFrame, isErrorFrame, notJson, protocolFailure } from '../http/failures.ts';
import { fieldsOf, isRecord, listOf, parsed, textIn } from '../json.ts';
import { isKeepAlive, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { countOf, usageOf } from '../usage.ts';
import { signedText, type CallData } from './signatures.ts';

/** An object of the wire. No field is certain to be present. */
type Wire = Readonly<Record<string, unknown>>;

/** A reply while it arrives. */
export interface GoogleStream {
  readonly signer: string;
  readonly parts: (OpenText | ToolCall)[];
  calls: number;
  /** The finish reason, and the message that explains it. */
  finish: string;
  finishMessage: string;
  usage: Wire;
  model: string;
}

/** A signature belongs to the last piece, and closes the text. */
interface OpenText {
  readonly type: 'text' | 'reasoning';
  readonly pieces: string[];
  signature: string;
}

export function startGoogle(signer: string): GoogleStream {
  return { signer, parts: [], calls: 0, finish: '', finishMessage: '', usage: {}, model: '' };
}

/** Older models send a finish reason with each event, so only the end of the stream is its end. */
export function stepGoogle(stream: GoogleStream, event: WireEvent, emit: Emit): StreamStatus {
  if (isKeepAlive(event)) return MORE;
  const value = parsed(event.data);
  if (value === undefined) return notJson(event.data);
  // Without `alt=sse`, an answer is an array of what would be events.
  for (const each of Array.isArray(value) ? (value as unknown[]) : [value]) {
    const status = readChunk(stream, fieldsOf<Wire>(each), emit);
    if (status.type === 'failure') return status;
  }
  return MORE;
}

/** A whole answer is a stream of one event. */
export function decodeGoogle(text: string, signer: string): ModelReply {
  const stream = startGoogle(signer);
  const status = stepGoogle(stream, { name: '', data: text }, () => {});
  return status.type === 'failure' ? status : endGoogle(stream);
}

function readChunk(stream: GoogleStream, chunk: Partial<Wire>, emit: Emit): StreamStatus {
  const { candidates, promptFeedback, usageMetadata, modelVersion } = chunk;
  if (isErrorFrame(chunk)) return { type: 'failure', error: failureOfFrame(chunk) };
  const { blockReason, blockReasonMessage } = fieldsOf<Wire>(promptFeedback);
  if (textIn(blockReason) !== '') {
    const message = `The provider blocked the request: ${withDetails(blockReason, blockReasonMessage)}. Change the input or the instructions.`;
    return { type: 'failure', error: { code: 'content-filter', message, retryable: false } };
  }
  stream.usage = { ...stream.usage, ...fieldsOf<Wire>(usageMetadata) };
  stream.model = textIn(modelVersion) || stream.model;
  const { content, finishReason, finishMessage } = fieldsOf<Wire>(listOf(candidates)[0]);
  for (const part of listOf(fieldsOf<Wire>(content)['parts'])) readPart(stream, fieldsOf<Wire>(part), emit);
  stream.finish = textIn(finishReason) || stream.finish;
  stream.finishMessage = textIn(finishMessage) || stream.finishMessage;
  return MORE;
}

function readPart(stream: GoogleStream, wire: Partial<Wire>, emit: Emit): void {
  const { parts, signer } = stream;
  const { functionCall, thought, thoughtSignature } = wire;
  const signature = textIn(thoughtSignature);
  if (isRecord(functionCall)) {
    const call = callOf(functionCall, signature, signer);
    parts.push(call);
    return void emit({ type: 'call-delta', call: stream.calls++, name: call.name, arguments: call.arguments });
  }
  const text = textIn(wire['text']);
  if (text === '' && signature === '') return;
  const type = thought === true ? 'reasoning' : 'text';
  let part = parts.at(-1);
  if (part?.type !== type || part.signature !== '') parts.push((part = { type, pieces: [], signature: '' }));
  part.pieces.push(text);
  part.signature = signature;
  if (text !== '')
    emit(type === 'text' ? { type: 'text-delta', text } : { type: 'reasoning-delta', text, summary: true });
}

/** Calls arrive complete. Only newer models send ids; the loop adds missing ones. */
function callOf({ id, name, args }: Wire, thoughtSignature: string, protocol: string): ToolCall {
  const data: CallData = { ...(textIn(id) && { id: textIn(id) }), ...(thoughtSignature && { thoughtSignature }) };
  const call: ToolCall = {
    type: 'tool-call',
    id: textIn(id),
    name: textIn(name),
    arguments: JSON.stringify(args ?? {}),
  };
  return Object.keys(data).length === 0 ? call : { ...call, provider: { protocol, data } };
}

export function endGoogle({ parts, calls, finish, finishMessage, usage, model, signer }: GoogleStream): ModelReply {
  if (finish === '') return cutOff('it ended without a finish reason');
  if (BROKEN_OFF.test(finish)) {
    const message = `The model broke off its reply: ${withDetails(finish, finishMessage)}.`;
    return { type: 'failure', error: protocolFailure(message) };
  }
  return {
    type: 'reply',
    content: parts.flatMap((part) => (part.type === 'tool-call' ? part : textParts(part, signer))),
    finish: FINISHES.get(finish) ?? (calls > 0 ? 'tool-calls' : 'stop'),
    rawFinish: finish,
    usage: googleUsage(usage),
    model,
  };
}

/** Failures of the model, such as `MALFORMED_FUNCTION_CALL`. Another attempt may succeed. */
const BROKEN_OFF = /^(MALFORMED_|MISSING_|UNEXPECTED_TOOL_CALL|TOO_MANY_TOOL_CALLS|OTHER)/;
const FILTERED = 'SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY'.split(' ');
const FINISHES = new Map<string, Finish>(FILTERED.map((reason) => [reason, 'content-filter'])).set(
  'MAX_TOKENS',
  'length',
);

function withDetails(reason: unknown, message: unknown): string {
  return textIn(message) === '' ? String(reason) : `${String(reason)} (${textIn(message)})`;
}

function textParts({ type, pieces, signature }: OpenText, protocol: string): readonly AssistantPart[] {
  const text = pieces.join('');
  if (type === 'reasoning') {
    return [{ type, text, ...(text && { summary: true as const }), ...(signature && { signature, protocol }) }];
  }
  const parts: AssistantPart[] = text === '' ? [] : [{ type, text }];
  return signature === '' ? parts : [...parts, signedText(signature, pieces.at(-1)!.length, protocol)];
}

/** The candidates do not include thoughts, nor the prompt what the provider's own tools returned. */
function googleUsage(usage: Wire): Usage {
  const { promptTokenCount, toolUsePromptTokenCount, candidatesTokenCount, thoughtsTokenCount } = usage;
  return usageOf({
    input: (countOf(promptTokenCount) ?? 0) + (countOf(toolUsePromptTokenCount) ?? 0),
    output: (countOf(candidatesTokenCount) ?? 0) + (countOf(thoughtsTokenCount) ?? 0),
    cached: usage['cachedContentTokenCount'],
    reasoning: thoughtsTokenCount,
  });
}
