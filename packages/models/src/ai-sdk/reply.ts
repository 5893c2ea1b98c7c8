import type { AssistantPart, Finish, ModelError, ModelReply } from '@treadle/core';
import { misunderstood } from '../http/failures.ts';
import type { Emit } from '../protocol.ts';
import { failureOfPart } from './failures.ts';
import type { ProviderOptions, ReplyPart, WholeAnswer } from './language-model.ts';
import { signedPart, type Signed } from './signature.ts';
import { usageOf } from './usage.ts';

/** A reply while its parts arrive. */
export interface OpenReply {
  readonly parts: OpenPart[];
  /** Parts that may grow, by the stream's ids for them. */
  readonly open: Map<string, OpenPart>;
  calls: number;
  finish: unknown;
  usage: unknown;
  model: string;
  /** The provider runs a tool of its own under this id. */
  readonly foreign: Set<string>;
}

interface OpenText {
  readonly type: 'text' | 'reasoning';
  readonly pieces: string[];
  metadata: ProviderOptions | undefined;
}

interface OpenCall {
  readonly type: 'call';
  readonly number: number;
  readonly id: string;
  readonly name: string;
  pieces: string[];
  metadata: ProviderOptions | undefined;
}

type OpenPart = OpenText | OpenCall;

export function startReply(model: string): OpenReply {
  return { parts: [], open: new Map(), calls: 0, finish: undefined, usage: undefined, model, foreign: new Set() };
}

/** Takes the next part of a stream; gives the failure that it tells of, if it does. */
export function takePart(reply: OpenReply, part: ReplyPart, emit: Emit): ModelError | undefined {
  switch (part.type) {
    case 'text-start':
    case 'reasoning-start':
    case 'text-delta':
    case 'reasoning-delta':
    case 'text-end':
    case 'reasoning-end':
      takeText(reply, part, emit);
      return undefined;
    case 'tool-input-start':
      if (part.providerExecuted) reply.foreign.add(String(part.id));
      else takeCall(reply, String(part.id), part, '', emit);
      return undefined;
    case 'tool-input-delta':
      if (!reply.foreign.has(String(part.id))) takeCall(reply, String(part.id), part, textIn(part.delta), emit);
      return undefined;
    case 'tool-call':
      endCall(reply, part, emit);
      return undefined;
    case 'file':
    case 'reasoning-file':
      note(reply, `(The model gave a file of type ${textIn(part.mediaType)}, which is not kept.)`, emit);
      return undefined;
    case 'tool-approval-request':
      return {
        code: 'protocol',
        message:
          'The provider asks to approve a tool that it runs itself, which cannot be answered. Switch it off there.',
        retryable: false,
      };
    case 'response-metadata':
      if (typeof part.modelId === 'string' && part.modelId !== '') reply.model = part.modelId;
      return undefined;
    case 'finish':
      reply.finish = part.finishReason;
      reply.usage = part.usage;
      return undefined;
    case 'error':
      return failureOfPart(part.error);
    // Warnings, sources, pings, the provider's own results, and what later versions may add.
    default:
      return undefined;
  }
}

/** A whole answer, as if it had been a stream. */
export function takeWhole(reply: OpenReply, answer: WholeAnswer): ModelError | undefined {
  const silent: Emit = () => {};
  for (const [index, part] of (answer.content ?? []).entries()) {
    const type = part?.type;
    const failure =
      type === 'text' || type === 'reasoning'
        ? takePart(reply, { ...part, type: `${type}-delta`, id: `${index}`, delta: part!.text }, silent)
        : takePart(reply, part ?? {}, silent);
    if (failure !== undefined) return failure;
  }
  if (typeof answer.response?.modelId === 'string') reply.model = answer.response.modelId;
  reply.finish = answer.finishReason;
  reply.usage = answer.usage;
  return undefined;
}

export function endReply(reply: OpenReply, protocol: string): ModelReply {
  const { unified, raw } = finishParts(reply.finish);
  const failure = brokenOff(unified, raw);
  if (failure !== undefined) return { type: 'failure', error: failure };
  return {
    type: 'reply',
    content: closedParts(reply.parts, protocol),
    finish: finishOf(unified!, reply.calls > 0),
    rawFinish: raw ?? unified!,
    usage: usageOf(reply.usage),
    model: reply.model,
  };
}

function takeText(reply: OpenReply, part: ReplyPart, emit: Emit): void {
  const kind = (part.type as string).startsWith('text') ? 'text' : 'reasoning';
  const key = `${kind} ${part.id}`;
  let open = reply.open.get(key) as OpenText | undefined;
  if (open === undefined || part.type === `${kind}-start`) {
    open = { type: kind, pieces: [], metadata: undefined };
    reply.parts.push(open);
    reply.open.set(key, open);
  }
  if (part.providerMetadata) open.metadata = part.providerMetadata;
  const text = textIn(part.delta);
  if (text === '') return;
  open.pieces.push(text);
  emit({ type: `${kind}-delta`, text });
}

function takeCall(reply: OpenReply, id: string, part: ReplyPart, piece: string, emit: Emit): OpenCall {
  const key = `call ${id}`;
  let call = reply.open.get(key) as OpenCall | undefined;
  const isNew = call === undefined;
  if (call === undefined) {
    call = { type: 'call', number: reply.calls, id, name: textIn(part.toolName), pieces: [], metadata: undefined };
    reply.calls++;
    reply.parts.push(call);
    reply.open.set(key, call);
  }
  if (part.providerMetadata) call.metadata = part.providerMetadata;
  if (piece !== '') call.pieces.push(piece);
  if (isNew || piece !== '') emit({ type: 'call-delta', call: call.number, name: call.name, arguments: piece });
  return call;
}

/** The whole call, after its pieces or instead of them. Another one with the same id is another call. */
function endCall(reply: OpenReply, part: ReplyPart, emit: Emit): void {
  const id = String(part.toolCallId ?? '');
  const input = typeof part.input === 'string' ? part.input : JSON.stringify(part.input ?? {});
  if (part.providerExecuted) {
    note(reply, `(The provider itself ran ${textIn(part.toolName)} ${input})`, emit);
    return;
  }
  const begun = reply.open.has(`call ${id}`);
  const call = takeCall(reply, id, part, begun ? '' : input, emit);
  call.pieces = [input];
  reply.open.delete(`call ${id}`);
}

/** Something that happened and is neither an answer nor a call of ours. */
function note(reply: OpenReply, text: string, emit: Emit): void {
  reply.parts.push({ type: 'reasoning', pieces: [text], metadata: undefined });
  emit({ type: 'reasoning-delta', text });
}

function closedParts(open: readonly OpenPart[], protocol: string): AssistantPart[] {
  const content: AssistantPart[] = [];
  // Reasoning waits for the part that follows, whose metadata it takes along.
  let waiting: { readonly text: string; readonly signed: Signed } | undefined;
  const release = (next?: ProviderOptions): void => {
    if (waiting === undefined && next === undefined) return;
    const { text, signed } = waiting ?? { text: '', signed: {} };
    waiting = undefined;
    content.push(signedPart(text, next === undefined ? signed : { ...signed, next }, protocol));
  };
  for (const part of open) {
    const text = part.pieces.join('');
    const { metadata } = part;
    if (part.type === 'reasoning') {
      release();
      if (text !== '' || metadata) waiting = { text, signed: metadata ? { own: metadata } : {} };
    } else if (part.type === 'call') {
      release(metadata);
      content.push({ type: 'tool-call', id: part.id || `call_${part.number}`, name: part.name, arguments: text });
    } else if (text !== '') {
      release(metadata);
      content.push({ type: 'text', text });
    }
  }
  release();
  return content;
}

/** `{ unified, raw }`; early versions of V3 had only the word. */
function finishParts(reason: unknown): { readonly unified?: string; readonly raw?: string } {
  if (typeof reason === 'string') return { unified: reason, raw: reason };
  if (typeof reason !== 'object' || reason === null) return {};
  const { unified, raw } = reason as Record<string, unknown>;
  return { ...(typeof unified === 'string' && { unified }), ...(typeof raw === 'string' && { raw }) };
}

/** `other` without the provider's word for it is what several providers make of a stream that was cut. */
function brokenOff(unified: string | undefined, raw: string | undefined): ModelError | undefined {
  if (unified === 'error') {
    return { code: 'overloaded', message: 'The provider broke off the reply with an error.', retryable: true };
  }
  const cut = unified === undefined || unified === 'interrupted' || (unified === 'other' && raw === undefined);
  return cut ? misunderstood('The reply was cut off: it ended without a finish reason.') : undefined;
}

function finishOf(unified: string, hasCalls: boolean): Finish {
  if (unified === 'length' || unified === 'content-filter') return unified;
  return hasCalls ? 'tool-calls' : 'stop';
}

function textIn(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
