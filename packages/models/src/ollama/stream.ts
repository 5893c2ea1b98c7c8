import type { AssistantPart, Finish, ModelError, ModelReply, TokenLogprob, ToolCall, Usage } from '@treadle/core';
import type { WireEvent } from '../framing.ts';
import { cutOff, failureOfBody, failureOfFrame, notJson } from '../http/failures.ts';
import { isRecord, parsed, textIn } from '../json.ts';
import { addLogprobs, logprobsOf, type WithLogprobs } from '../logprobs.ts';
import { DONE, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { usageOf } from '../usage.ts';

/** The fields that are read of a line of a stream, or of a whole answer. */
interface WireChunk {
  readonly model?: unknown;
  readonly message?: WireMessage | null;
  readonly logprobs?: unknown;
  readonly done?: unknown;
  readonly done_reason?: unknown;
  readonly prompt_eval_count?: unknown;
  /** The cached part of `prompt_eval_count`. */
  readonly prompt_eval_cached_count?: unknown;
  readonly eval_count?: unknown;
  readonly error?: unknown;
}

interface WireMessage {
  readonly content?: unknown;
  readonly thinking?: unknown;
  readonly tool_calls?: readonly (WireCall | null)[] | null;
}

/** A call always arrives complete. */
interface WireCall {
  /** Only newer servers send one. */
  readonly id?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown } | null;
}

/** A reply while it arrives. */
export interface OllamaStream {
  readonly parts: OpenPart[];
  calls: number;
  /** The line with `done`. It has the finish reason and the usage. */
  last: WireChunk | undefined;
  model: string;
}

type OpenPart = ({ readonly type: 'text' | 'reasoning'; readonly pieces: string[] } & WithLogprobs) | ToolCall;

export function startOllama(): OllamaStream {
  return { parts: [], calls: 0, last: undefined, model: '' };
}

export function stepOllama(stream: OllamaStream, { data }: WireEvent, emit: Emit): StreamStatus {
  const chunk = parsed(data) as WireChunk | null | undefined;
  if (chunk === undefined) return notJson(data);
  if (!isRecord(chunk)) return MORE;
  if (chunk.error) return { type: 'failure', error: failureOfLine(chunk.error) };
  if (typeof chunk.model === 'string' && chunk.model !== '') stream.model = chunk.model;
  if (isRecord(chunk.message)) readOllamaMessage(stream, chunk.message, emit, logprobsOf(chunk.logprobs));
  if (chunk.done !== true) return MORE;
  stream.last = chunk;
  return DONE;
}

/** A whole answer is a stream of one line. */
export function decodeOllama(text: string): ModelReply {
  const stream = startOllama();
  const status = stepOllama(stream, { name: '', data: text }, () => {});
  return status.type === 'failure' ? status : endOllama(stream);
}

export function endOllama({ parts, calls, last, model }: OllamaStream): ModelReply {
  if (last === undefined) return cutOff('it ended before "done"');
  const reason = textIn(last.done_reason);
  return {
    type: 'reply',
    content: parts.map(ollamaPart),
    finish: ollamaFinish(reason, calls > 0),
    ...(reason !== '' && { rawFinish: reason }),
    usage: ollamaUsage(last),
    model,
  };
}

function readOllamaMessage(
  stream: OllamaStream,
  { thinking, content, tool_calls: calls }: WireMessage,
  emit: Emit,
  logprobs: readonly TokenLogprob[] | undefined,
): void {
  addOllamaPiece(stream, 'reasoning', textIn(thinking), emit);
  addOllamaPiece(stream, 'text', textIn(content), emit, logprobs);
  if (!Array.isArray(calls)) return;
  for (const wire of calls as readonly (WireCall | null)[]) {
    if (!isRecord(wire)) continue;
    const call = ollamaCall(wire);
    stream.parts.push(call);
    emit({ type: 'call-delta', call: stream.calls++, name: call.name, arguments: call.arguments });
  }
}

/** Most servers send no ids. The loop adds them. */
function ollamaCall({ id, function: called }: WireCall): ToolCall {
  const json = called?.arguments;
  return {
    type: 'tool-call',
    id: textIn(id),
    name: textIn(called?.name),
    arguments: typeof json === 'string' ? json : JSON.stringify(json ?? {}),
  };
}

function addOllamaPiece(
  { parts }: OllamaStream,
  type: 'text' | 'reasoning',
  text: string,
  emit: Emit,
  logprobs?: readonly TokenLogprob[],
): void {
  if (text === '') return;
  let part = parts.at(-1);
  if (part?.type === type) part.pieces.push(text);
  else parts.push((part = { type, pieces: [text] }));
  if (!logprobs) return void emit({ type: type === 'text' ? 'text-delta' : 'reasoning-delta', text });
  addLogprobs(part, logprobs);
  emit({ type: 'text-delta', text, logprobs });
}

function ollamaPart(part: OpenPart): AssistantPart {
  if (part.type === 'tool-call') return part;
  const text = part.pieces.join('');
  return part.logprobs ? { type: 'text', text, logprobs: part.logprobs } : { type: part.type, text };
}

/** The reasons are `stop`, also with calls, and `length`; `load` and `unload` if the request had no messages. */
function ollamaFinish(reason: string, hasCalls: boolean): Finish {
  if (reason === 'length') return 'length';
  return hasCalls ? 'tool-calls' : 'stop';
}

/** The server omits a count of 0. */
function ollamaUsage(last: WireChunk): Usage {
  return usageOf({
    input: last.prompt_eval_count,
    output: last.eval_count,
    cached: last.prompt_eval_cached_count,
  });
}

/** Errors have the shape `{"error":"message"}`, which hosts of the Chat Completions API use too. */
export function failureOfOllamaBody(model: string, status: number, text: string): ModelError {
  const error = failureOfBody(status, text);
  const advice = adviceFor(model, error);
  return advice === undefined ? error : { ...error, message: `${error.message} ${advice}` };
}

/** The server reports what is wrong, but not what to change. Models without tools are handled for all protocols alike. */
function adviceFor(model: string, { status, message }: ModelError): string | undefined {
  if (/does not support thinking|think value/.test(message)) {
    return `The model "${model}" does not support this way of thinking: remove settings.reasoning and "think".`;
  }
  if (status === 404 && /not found/.test(message)) return `Run "ollama pull ${model}", or check the model's name.`;
  return undefined;
}

/** The failure in a line of an answer that started without an error. It would have had status 500. */
function failureOfLine(error: unknown): ModelError {
  const failure = failureOfFrame({ error });
  return failure.code === 'protocol' ? { ...failure, code: 'overloaded' } : failure;
}
