import type { AssistantPart, Finish, ModelReply, ToolCall, Usage } from '@treadle/core';
import type { WireEvent } from '../framing/framing.ts';
import { misunderstood } from '../http/failures.ts';
import { isRecord, notJson, parsed, textIn } from '../json.ts';
import { DONE, MORE, type Emit, type StreamStatus } from '../protocol.ts';
import { usageOf } from '../usage.ts';
import { failureOfLine } from './failures.ts';
import type { WireCall, WireChunk, WireMessage } from './wire.ts';

/** A reply while it arrives. */
export interface OllamaStream {
  readonly parts: OpenPart[];
  calls: number;
  /** The line that says `done`: it has the finish reason and the usage. */
  last: WireChunk | undefined;
  model: string;
}

type OpenPart = { readonly type: 'text' | 'reasoning'; readonly pieces: string[] } | ToolCall;

export function startOllama(): OllamaStream {
  return { parts: [], calls: 0, last: undefined, model: '' };
}

export function stepOllama(stream: OllamaStream, { data }: WireEvent, emit: Emit): StreamStatus {
  const chunk = parsed(data) as WireChunk | null | undefined;
  if (chunk === undefined) return notJson(data);
  if (!isRecord(chunk)) return MORE;
  if (chunk.error) return { type: 'failure', error: failureOfLine(chunk.error) };
  if (typeof chunk.model === 'string' && chunk.model !== '') stream.model = chunk.model;
  if (isRecord(chunk.message)) takeMessage(stream, chunk.message, emit);
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
  if (last === undefined) {
    return { type: 'failure', error: misunderstood('The reply was cut off: it ended before it was done.') };
  }
  const reason = textIn(last.done_reason);
  return {
    type: 'reply',
    content: parts.map(closed),
    finish: finishOf(reason, calls > 0),
    ...(reason !== '' && { rawFinish: reason }),
    usage: usageIn(last),
    model,
  };
}

function takeMessage(stream: OllamaStream, { thinking, content, tool_calls: calls }: WireMessage, emit: Emit): void {
  if (typeof thinking === 'string' && thinking !== '') {
    add(stream, 'reasoning', thinking);
    emit({ type: 'reasoning-delta', text: thinking });
  }
  if (typeof content === 'string' && content !== '') {
    add(stream, 'text', content);
    emit({ type: 'text-delta', text: content });
  }
  if (!Array.isArray(calls)) return;
  for (const wire of calls as readonly (WireCall | null)[]) {
    if (!isRecord(wire)) continue;
    const call = callOf(wire);
    stream.parts.push(call);
    emit({ type: 'call-delta', call: stream.calls++, name: call.name, arguments: call.arguments });
  }
}

/** Most servers give no ids: the loop does. */
function callOf({ id, function: called }: WireCall): ToolCall {
  const json = called?.arguments;
  return {
    type: 'tool-call',
    id: textIn(id),
    name: textIn(called?.name),
    arguments: typeof json === 'string' ? json : JSON.stringify(json ?? {}),
  };
}

function add({ parts }: OllamaStream, type: 'text' | 'reasoning', text: string): void {
  const part = parts.at(-1);
  if (part?.type === type) part.pieces.push(text);
  else parts.push({ type, pieces: [text] });
}

function closed(part: OpenPart): AssistantPart {
  return part.type === 'tool-call' ? part : { type: part.type, text: part.pieces.join('') };
}

/** `stop`, also with calls, and `length`; `load` and `unload` where there was nothing to answer. */
function finishOf(reason: string, hasCalls: boolean): Finish {
  if (reason === 'length') return 'length';
  return hasCalls ? 'tool-calls' : 'stop';
}

/** The server leaves out a count of 0. */
function usageIn(last: WireChunk): Usage {
  return usageOf({
    input: last.prompt_eval_count,
    output: last.eval_count,
    cached: last.prompt_eval_cached_count,
  });
}
