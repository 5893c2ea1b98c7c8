/**
 * Restores the conversation behind a client's request.
 *
 * Clients of this API store the conversation themselves, and do not see what the server did: its calls, their results, and
 * the turns before the last one. The server stores that with a completion that waits for its client. An assistant
 * message with calls of this server represents all turns of its completion, so the stored turns replace it, and the
 * client's results are merged with those of the server. A message without a stored completion is left unchanged.
 *
 * Whatever the client sends explicitly is used: a call that it dropped is dropped, and changed arguments stay changed.
 */
import type { AssistantMessage, AssistantPart, Message, ToolCall, ToolResult } from '@treadle/core';
import type { ConversationBefore } from './conversation.ts';
import { callIdFor, itemOrigin, RESPONSE_PREFIX } from '../ids.ts';

const COMPLETION_PREFIX = 'chatcmpl-';

/** A completion is a run like any response. Only its id on the wire differs. */
export function completionId(runId: string): string {
  return COMPLETION_PREFIX + runId.slice(RESPONSE_PREFIX.length);
}

/** The id of a call on the wire. It contains the completion. */
export function completionCallId(completion: string, turn: number, index: number): string {
  return callIdFor(RESPONSE_PREFIX + completion.slice(COMPLETION_PREFIX.length), turn, index);
}

/** The turns of a completion that waits for its client. Stored as JSON, so its fields must not change. */
export interface StoredTurns {
  /** Only the messages that the run has added. The last one has the calls of `open`. */
  readonly messages: readonly Message[];
  readonly open: NonNullable<ConversationBefore['open']>;
}

/**
 * What has to be stored of a run that started with `inputCount` messages. Undefined if the client has everything, as in
 * single-shot inference.
 */
export function turnsToStore(
  { messages, open }: Pick<ConversationBefore, 'messages' | 'open'>,
  inputCount: number,
): StoredTurns | undefined {
  const added = messages.slice(inputCount);
  if (!open) return undefined;
  const isComplete =
    added.length === 1 && open.calls.every(({ result }) => !result) && !added[0]!.content.some(isReasoning);
  return isComplete ? undefined : { messages: added, open };
}

function isReasoning({ type }: { readonly type: string }): boolean {
  return type === 'reasoning';
}

/** `lookUp` resolves to the stored turns of a completion. */
export async function restoreTurns(
  messages: readonly Message[],
  lookUp: (completion: string) => Promise<StoredTurns | undefined>,
): Promise<readonly Message[]> {
  const restored: Message[] = [];
  for (let index = 0; index < messages.length;) {
    const turn = clientTurnAt(messages, index);
    const stored = turn && (await lookUp(turn.completion));
    const end = turn?.end ?? index + 1;
    restored.push(...((stored && mergedTurns(turn, stored)) ?? messages.slice(index, end)));
    index = end;
  }
  return restored;
}

/** The calls of one turn as the client sent them. */
interface ClientTurn {
  readonly completion: string;
  readonly calls: readonly ToolCall[];
  readonly results: readonly ToolResult[];
  /** The index of the first message after it. */
  readonly end: number;
}

/** Some clients send each call as a message of its own, so one turn may consist of several messages. */
function clientTurnAt(messages: readonly Message[], start: number): ClientTurn | undefined {
  const origin = commonOrigin(messages[start]!);
  if (!origin) return undefined;
  const calls: ToolCall[] = [];
  const results: ToolResult[] = [];
  let end = start;
  for (; end < messages.length && commonOrigin(messages[end]!)?.turnKey === origin.turnKey; end += 2) {
    calls.push(...callsOf(messages[end]!));
    const answers = messages[end + 1];
    if (answers?.role === 'tool') results.push(...answers.content);
  }
  return { completion: completionId(origin.response), calls, results, end };
}

/** The origin of the calls of a message, if all belong to the same turn. */
function commonOrigin(message: Message): ReturnType<typeof itemOrigin> {
  const [first, ...others] = callsOf(message).map(({ id }) => (id.startsWith('call_') ? itemOrigin(id) : undefined));
  return first && others.every((origin) => origin?.turnKey === first.turnKey) ? first : undefined;
}

function callsOf(message: Message): readonly ToolCall[] {
  return message.role === 'assistant' ? message.content.filter((part) => part.type === 'tool-call') : [];
}

/** Undefined if the client's calls are not those that were stored. */
function mergedTurns({ calls, results }: ClientTurn, { messages, open }: StoredTurns): readonly Message[] | undefined {
  const last = messages.at(-1);
  const waiting = new Set(open.calls.flatMap(({ wireId, result }) => (result ? [] : wireId)));
  if (last?.role !== 'assistant' || !calls.every(({ id }) => waiting.has(id))) return undefined;
  const clientCalls = new Map(calls.map((call) => [call.id, call]));
  const clientResults = new Map(results.map((result) => [result.callId, result]));
  const content = open.calls.flatMap(({ wireId, callId, name, result }) => {
    const clientResult = clientResults.get(wireId);
    return result ?? (clientResult ? { ...clientResult, callId, name } : []);
  });
  return [...messages.slice(0, -1), withClientCalls(last, open, clientCalls), { role: 'tool', content }];
}

/** The stored reply, with the client's calls as the client sent them. */
function withClientCalls(
  { content }: AssistantMessage,
  { calls }: StoredTurns['open'],
  clientCalls: ReadonlyMap<string, ToolCall>,
): AssistantMessage {
  let index = 0;
  const parts = content.flatMap((part): AssistantPart | readonly AssistantPart[] => {
    if (part.type !== 'tool-call') return part;
    const { wireId, result } = calls[index++]!;
    if (result) return part;
    const sent = clientCalls.get(wireId);
    if (!sent) return [];
    return isSameJson(sent.arguments, part.arguments) ? part : { ...part, arguments: sent.arguments };
  });
  return { role: 'assistant', content: parts };
}

/** Clients format the same arguments differently. The model's own text is used then, for the provider's cache. */
export function isSameJson(one: string, other: string): boolean {
  if (one === other) return true;
  try {
    return JSON.stringify(JSON.parse(one)) === JSON.stringify(JSON.parse(other || '{}'));
  } catch {
    return false;
  }
}
