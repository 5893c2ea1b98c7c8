import type { Finish, ModelReply, Usage } from '@treadle/core';
import type { WireEvent } from '../framing/framing.ts';
import { misunderstood } from '../http/failures.ts';
import { isErrorFrame } from '../http/provider-failures.ts';
import { fieldsOf, isRecord, listOf, notJson, parsed } from '../json.ts';
import { DONE, MORE, saysNothing, type Emit, type StreamStatus } from '../protocol.ts';
import { countOf, usageOf } from '../usage.ts';
import { closedBlock, openBlock, takeDelta, type OpenBlock } from './blocks.ts';
import { failureOfFrame } from './failures.ts';
import type { WireBlock, WireDelta, WireMessage, WireStreamEvent, WireUsage } from './wire.ts';

/** A reply while it arrives. */
export interface MessageStream {
  readonly signer: string;
  readonly blocks: OpenBlock[];
  /** The newest block at each of the wire's indexes. */
  readonly byIndex: Map<unknown, OpenBlock>;
  calls: number;
  finish: string | undefined;
  usage: WireUsage;
  model: string;
}

export function startMessage(signer: string): MessageStream {
  return { signer, blocks: [], byIndex: new Map(), calls: 0, finish: undefined, usage: {}, model: '' };
}

export function stepMessage(stream: MessageStream, wire: WireEvent, emit: Emit): StreamStatus {
  if (saysNothing(wire)) return MORE;
  const { name, data } = wire;
  const event = parsed(data) as WireStreamEvent | null | undefined;
  if (event === undefined) {
    return name === 'error' ? { type: 'failure', error: failureOfFrame({ error: data }) } : notJson(data);
  }
  if (!isRecord(event)) return MORE;
  if (isErrorFrame(event) || event.type === 'error') return { type: 'failure', error: failureOfFrame(event) };
  switch (event.type) {
    case 'message_start':
      if (isRecord(event.message)) takeMessage(stream, event.message, emit);
      return MORE;
    case 'content_block_start':
      if (isRecord(event.content_block)) open(stream, event.index, event.content_block, emit);
      return MORE;
    case 'content_block_delta':
      if (isRecord(event.delta)) takeBlockDelta(stream, event.index, event.delta, emit);
      return MORE;
    case 'message_delta':
      takeUsage(stream, event.usage);
      if (isRecord(event.delta)) takeFinish(stream, event.delta.stop_reason);
      return MORE;
    case 'message_stop':
      return DONE;
    default:
      return MORE;
  }
}

/** A whole answer is the first event of a stream, with everything in it. */
export function decodeMessage(text: string, signer: string): ModelReply {
  const answer = parsed(text);
  if (answer === undefined) return notJson(text);
  const message = fieldsOf<WireMessage>(answer);
  if (isErrorFrame(message)) return { type: 'failure', error: failureOfFrame(message) };
  const stream = startMessage(signer);
  takeMessage(stream, message, () => {});
  return endMessage(stream);
}

/** With the reason for its end all of a reply is there; `message_stop` adds nothing. */
export function endMessage(stream: MessageStream): ModelReply {
  const { finish: rawFinish, model, signer } = stream;
  if (rawFinish === undefined) {
    return { type: 'failure', error: misunderstood('The reply was cut off: it ended without a stop reason.') };
  }
  const finish = finishOf(rawFinish, stream.calls > 0);
  const content = stream.blocks.flatMap((block) => closedBlock(block, { cut: finish === 'length', signer }));
  return { type: 'reply', content, finish, rawFinish, usage: usageIn(stream.usage), model };
}

function takeMessage(stream: MessageStream, message: WireMessage, emit: Emit): void {
  if (typeof message.model === 'string') stream.model = message.model;
  takeUsage(stream, message.usage);
  takeFinish(stream, message.stop_reason);
  for (const [index, block] of listOf(message.content).entries()) {
    if (isRecord(block)) open(stream, index, block, emit);
  }
}

function open(stream: MessageStream, index: unknown, wire: WireBlock, emit: Emit): OpenBlock {
  const block = openBlock(wire, stream.calls, emit);
  if (block.type === 'call') stream.calls++;
  stream.blocks.push(block);
  stream.byIndex.set(index, block);
  return block;
}

function takeBlockDelta(stream: MessageStream, index: unknown, delta: WireDelta, emit: Emit): void {
  const block = stream.byIndex.get(index);
  if (block !== undefined) return takeDelta(block, delta, emit);
  // Some hosts forget to open a block. A call has no name then, but words need none.
  const type = UNOPENED.get(delta.type);
  if (type !== undefined) takeDelta(open(stream, index, { type }, emit), delta, emit);
}

const UNOPENED: ReadonlyMap<unknown, string> = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
]);

function takeFinish(stream: MessageStream, reason: unknown): void {
  if (typeof reason === 'string' && reason !== '') stream.finish = reason;
}

function takeUsage(stream: MessageStream, usage: WireUsage | null | undefined): void {
  if (!isRecord(usage)) return;
  const told = Object.entries(usage).filter(([, value]) => value != null);
  stream.usage = { ...stream.usage, ...(Object.fromEntries(told) as WireUsage) };
}

function finishOf(raw: string, hasCalls: boolean): Finish {
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

function usageIn(usage: WireUsage): Usage {
  const { cache_read_input_tokens: cached, cache_creation_input_tokens: cacheWrite } = usage;
  return usageOf({
    input: (countOf(usage.input_tokens) ?? 0) + (countOf(cached) ?? 0) + (countOf(cacheWrite) ?? 0),
    output: usage.output_tokens,
    cached,
    cacheWrite,
    reasoning: usage.output_tokens_details?.thinking_tokens,
  });
}
