import type { AssistantMessage, AssistantPart, Message, ToolCall, ToolResult } from '@treadle/core';
import { originOf, type Origin } from './ids.ts';
import type { Kept } from './kept.ts';

/**
 * Clients of this API keep the conversation themselves, and have not seen what the server did on its own. A message with
 * calls of ours stands for all the turns of the completion that it is, so these are put in its place, and its results
 * between those that the server has. What is not to be found stays as the client has it.
 *
 * The client's word counts where it has one: calls that it has left out or whose arguments it has changed are so.
 */
export async function splice(
  messages: readonly Message[],
  stored: (completion: string) => Promise<Kept | undefined>,
): Promise<readonly Message[]> {
  const spliced: Message[] = [];
  for (let index = 0; index < messages.length;) {
    const turn = turnAt(messages, index);
    const kept = turn && (await stored(turn.origin.completion));
    const whole = kept && wholeOf(turn, kept);
    const end = turn?.end ?? index + 1;
    spliced.push(...(whole ?? messages.slice(index, end)));
    index = end;
  }
  return spliced;
}

/** The calls of one turn as the client has them. */
interface ClientTurn {
  readonly origin: Origin;
  readonly calls: readonly ToolCall[];
  readonly results: readonly ToolResult[];
  /** The index of the first message that is no longer part of it. */
  readonly end: number;
}

/** Some clients make a message of each call, so one turn may be several of them. */
function turnAt(messages: readonly Message[], start: number): ClientTurn | undefined {
  const origin = commonOrigin(messages[start]!);
  if (!origin) return undefined;
  const calls: ToolCall[] = [];
  const results: ToolResult[] = [];
  let end = start;
  for (; end < messages.length && isSame(commonOrigin(messages[end]!), origin); end += 2) {
    calls.push(...callsOf(messages[end]!));
    const answers = messages[end + 1];
    if (answers?.role === 'tool') results.push(...answers.content);
  }
  return { origin, calls, results, end };
}

/** Where the calls of a message come from, if all are from the same turn. */
function commonOrigin(message: Message): Origin | undefined {
  const [first, ...others] = callsOf(message).map(({ id }) => originOf(id));
  return first && others.every((origin) => isSame(origin, first)) ? first : undefined;
}

function isSame(one: Origin | undefined, other: Origin): boolean {
  return one?.turn === other.turn;
}

function callsOf(message: Message): readonly ToolCall[] {
  return message.role === 'assistant' ? message.content.filter((part) => part.type === 'tool-call') : [];
}

/** Absent: what the client has is not what was kept. */
function wholeOf({ calls, results }: ClientTurn, { messages, open }: Kept): readonly Message[] | undefined {
  const last = messages.at(-1);
  const waiting = new Set(open.calls.flatMap(({ wireId, result }) => (result ? [] : wireId)));
  if (last?.role !== 'assistant' || !calls.every(({ id }) => waiting.has(id))) return undefined;
  const given = new Map(calls.map((call) => [call.id, call]));
  const answers = new Map(results.map((result) => [result.callId, result]));
  const content = open.calls.flatMap(({ wireId, callId, name, result }) => {
    const answer = answers.get(wireId);
    return result ?? (answer ? { ...answer, callId, name } : []);
  });
  return [...messages.slice(0, -1), asGiven(last, open, given), { role: 'tool', content }];
}

/** The reply, with the client's calls as the client has them. */
function asGiven(
  { content }: AssistantMessage,
  { calls }: Kept['open'],
  given: ReadonlyMap<string, ToolCall>,
): AssistantMessage {
  let index = 0;
  const parts = content.flatMap((part): AssistantPart | readonly AssistantPart[] => {
    if (part.type !== 'tool-call') return part;
    const { wireId, result } = calls[index++]!;
    const own = given.get(wireId);
    if (result) return part;
    if (!own) return [];
    return isSameJson(own.arguments, part.arguments) ? part : { ...part, arguments: own.arguments };
  });
  return { role: 'assistant', content: parts };
}

/** Clients write the same arguments with other white space; the model's own text keeps its provider's cache. */
function isSameJson(one: string, other: string): boolean {
  if (one === other) return true;
  try {
    return JSON.stringify(JSON.parse(one)) === JSON.stringify(JSON.parse(other || '{}'));
  } catch {
    return false;
  }
}
