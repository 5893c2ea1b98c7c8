import type { AssistantPart, Finish, ModelError, ModelReply, Usage } from '@treadle/core';
import { protocolFailure } from '../http/failures.ts';
import { isRecord, textIn } from '../json.ts';
import type { Emit } from '../protocol.ts';
import { countOf, usageOf } from '../usage.ts';
import { failureOfPart } from './failures.ts';
import type { ProviderOptions, ReplyPart, WholeAnswer } from './language-model.ts';
import { signedPart, type Signed } from './signature.ts';

/** A reply while its parts arrive. */
export interface OpenReply {
  readonly parts: OpenPart[];
  /** Parts that may still grow, by their ids in the stream. */
  readonly open: Map<string, OpenPart>;
  calls: number;
  finish: unknown;
  usage: unknown;
  model: string;
  /** The ids of calls that the provider executes itself. */
  readonly providerCalls: Set<string>;
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

export function newOpenReply(model: string): OpenReply {
  return { parts: [], open: new Map(), calls: 0, finish: undefined, usage: undefined, model, providerCalls: new Set() };
}

/** Adds the next part of a stream. Returns the failure that it contains, if any. */
export function addPart(reply: OpenReply, part: ReplyPart, emit: Emit): ModelError | undefined {
  switch (part.type) {
    case 'text-start':
    case 'reasoning-start':
    case 'text-delta':
    case 'reasoning-delta':
    case 'text-end':
    case 'reasoning-end':
      addText(reply, part, emit);
      return undefined;
    case 'tool-input-start':
      if (part.providerExecuted) reply.providerCalls.add(String(part.id));
      else addCallPiece(reply, String(part.id), part, '', emit);
      return undefined;
    case 'tool-input-delta':
      if (!reply.providerCalls.has(String(part.id)))
        addCallPiece(reply, String(part.id), part, textIn(part.delta), emit);
      return undefined;
    case 'tool-call':
      addWholeCall(reply, part, emit);
      return undefined;
    case 'file':
    case 'reasoning-file':
      addNote(reply, `(The model returned a file of type ${textIn(part.mediaType)}, which is not stored.)`, emit);
      return undefined;
    case 'tool-approval-request':
      return {
        code: 'protocol',
        message:
          'The provider asks for approval of a tool that it executes itself, which is not supported. Disable it at the provider.',
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
    // Warnings, sources, pings, results of the provider's own tools, and parts of later versions.
    default:
      return undefined;
  }
}

/** Adds the parts of an answer that was not streamed. */
export function addWholeAnswer(reply: OpenReply, answer: WholeAnswer): ModelError | undefined {
  const silent: Emit = () => {};
  for (const [index, part] of (answer.content ?? []).entries()) {
    const type = part?.type;
    const failure =
      type === 'text' || type === 'reasoning'
        ? addPart(reply, { ...part, type: `${type}-delta`, id: `${index}`, delta: part!.text }, silent)
        : addPart(reply, part ?? {}, silent);
    if (failure !== undefined) return failure;
  }
  if (typeof answer.response?.modelId === 'string') reply.model = answer.response.modelId;
  reply.finish = answer.finishReason;
  reply.usage = answer.usage;
  return undefined;
}

export function finishReply(reply: OpenReply, protocol: string): ModelReply {
  const { unified, raw } = finishParts(reply.finish);
  const failure = truncationOf(unified, raw);
  if (failure !== undefined) return { type: 'failure', error: failure };
  return {
    type: 'reply',
    content: contentOf(reply.parts, protocol),
    finish: finishOf(unified!, reply.calls > 0),
    rawFinish: raw ?? unified!,
    usage: replyUsage(reply.usage),
    model: reply.model,
  };
}

function addText(reply: OpenReply, part: ReplyPart, emit: Emit): void {
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

function addCallPiece(reply: OpenReply, id: string, part: ReplyPart, piece: string, emit: Emit): OpenCall {
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

/** The whole call, after its pieces or instead of them. A later one with the same id is another call. */
function addWholeCall(reply: OpenReply, part: ReplyPart, emit: Emit): void {
  const id = String(part.toolCallId ?? '');
  const input = typeof part.input === 'string' ? part.input : JSON.stringify(part.input ?? {});
  if (part.providerExecuted) {
    addNote(reply, `(The provider executed ${textIn(part.toolName)} ${input})`, emit);
    return;
  }
  const isStarted = reply.open.has(`call ${id}`);
  const call = addCallPiece(reply, id, part, isStarted ? '' : input, emit);
  call.pieces = [input];
  reply.open.delete(`call ${id}`);
}

/** Adds something that is neither text of the answer nor a call of the loop, as reasoning. */
function addNote(reply: OpenReply, text: string, emit: Emit): void {
  reply.parts.push({ type: 'reasoning', pieces: [text], metadata: undefined });
  emit({ type: 'reasoning-delta', text });
}

function contentOf(open: readonly OpenPart[], protocol: string): AssistantPart[] {
  const content: AssistantPart[] = [];
  // Reasoning is held until the next part, because it carries the metadata of that part.
  let held: { readonly text: string; readonly signed: Signed } | undefined;
  const releaseReasoning = (next?: ProviderOptions): void => {
    if (held === undefined && next === undefined) return;
    const { text, signed } = held ?? { text: '', signed: {} };
    held = undefined;
    content.push(signedPart(text, next === undefined ? signed : { ...signed, next }, protocol));
  };
  for (const part of open) {
    const text = part.pieces.join('');
    const { metadata } = part;
    if (part.type === 'reasoning') {
      releaseReasoning();
      if (text !== '' || metadata) held = { text, signed: metadata ? { own: metadata } : {} };
    } else if (part.type === 'call') {
      releaseReasoning(metadata);
      content.push({ type: 'tool-call', id: part.id || `call_${part.number}`, name: part.name, arguments: text });
    } else if (text !== '') {
      releaseReasoning(metadata);
      content.push({ type: 'text', text });
    }
  }
  releaseReasoning();
  return content;
}

/** `{ unified, raw }`. In early versions of V3 it is a string. */
function finishParts(reason: unknown): { readonly unified?: string; readonly raw?: string } {
  if (typeof reason === 'string') return { unified: reason, raw: reason };
  if (typeof reason !== 'object' || reason === null) return {};
  const { unified, raw } = reason as Record<string, unknown>;
  return { ...(typeof unified === 'string' && { unified }), ...(typeof raw === 'string' && { raw }) };
}

/** Several providers report `other` without a raw reason for a stream that was cut off. */
function truncationOf(unified: string | undefined, raw: string | undefined): ModelError | undefined {
  if (unified === 'error') {
    return { code: 'overloaded', message: 'The provider ended the reply with an error.', retryable: true };
  }
  const isCut = unified === undefined || unified === 'interrupted' || (unified === 'other' && raw === undefined);
  return isCut ? protocolFailure('The reply was cut off: it ended without a finish reason.') : undefined;
}

function finishOf(unified: string, hasCalls: boolean): Finish {
  if (unified === 'length' || unified === 'content-filter') return unified;
  return hasCalls ? 'tool-calls' : 'stop';
}

/** A count is an object with a total and its parts. In early versions of V3 it is a number. */
function replyUsage(usage: unknown): Usage {
  const { inputTokens, outputTokens, cachedInputTokens, reasoningTokens } = recordOf(usage);
  const input = recordOf(inputTokens);
  const output = recordOf(outputTokens);
  return usageOf({
    input: totalOf(inputTokens, [input['noCache'], input['cacheRead'], input['cacheWrite']]),
    output: totalOf(outputTokens, [output['text'], output['reasoning']]),
    cached: input['cacheRead'] ?? cachedInputTokens,
    cacheWrite: input['cacheWrite'],
    reasoning: output['reasoning'] ?? reasoningTokens,
  });
}

function totalOf(count: unknown, parts: readonly unknown[]): number {
  const total = countOf(count) ?? countOf(recordOf(count)['total']);
  return total ?? parts.reduce<number>((sum, part) => sum + (countOf(part) ?? 0), 0);
}

function recordOf(value: unknown): Record<string, unknown> {
  return isRecord(value) ? value : {};
}
