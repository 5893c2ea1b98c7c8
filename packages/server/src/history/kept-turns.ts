import type { AssistantPart, Message, ToolCall, ToolResult } from '@treadle/core';
import { itemOrigin } from '../ids.ts';
import { isSameJson } from './restore-turns.ts';

/*
 * What the client of a message does not have of its turns with calls, and the model needs back: reasoning with the signature of
 * its provider, the provider's data of calls, and images in results of the server. The client sends the rest back itself, with
 * the ids of the calls, which name the turn.
 */

/** Stored as JSON, so its fields must not change. */
export interface KeptTurn {
  readonly turn: number;
  /** The whole reply. Absent: the client has it. */
  readonly content?: readonly AssistantPart[];
  /** Results of the server, by the index of their call. */
  readonly results?: readonly { readonly index: number; readonly result: ToolResult }[];
}

/** `lookUp` resolves to the kept turns of a run. `shown`: the text that the client got for a result. */
export async function restoreKeptTurns(
  messages: readonly Message[],
  lookUp: (runId: string) => Promise<readonly KeptTurn[]>,
  shown: (content: ToolResult['content']) => string,
): Promise<readonly Message[]> {
  const restored: Message[] = [];
  for (let index = 0; index < messages.length; index++) {
    const message = messages[index]!;
    const results = messages[index + 1];
    const origin = message.role === 'assistant' ? originOf(message.content) : undefined;
    const kept = origin && (await lookUp(origin.response)).find(({ turn }) => turn === origin.turn);
    if (!kept || message.role !== 'assistant' || results?.role !== 'tool') {
      restored.push(message);
      continue;
    }
    const parts = kept.content ? mergedParts(kept.content, message.content) : message.content;
    const answers = new Map((kept.results ?? []).map(({ index: at, result }) => [at, result]));
    restored.push(
      { role: 'assistant', content: parts },
      {
        role: 'tool',
        content: results.content.map((result) => {
          const answer = answers.get(itemOrigin(result.callId)?.number ?? -1);
          const isSame = answer && shown(answer.content) === shown(result.content);
          return isSame ? { ...result, content: answer.content } : result;
        }),
      },
    );
    index += 1;
  }
  return restored;
}

/** The turn that all calls of a reply belong to. Undefined if there is none. */
function originOf(content: readonly AssistantPart[]): ReturnType<typeof itemOrigin> {
  const [first, ...others] = callsIn(content).map(({ id }) => itemOrigin(id));
  return first && others.every((origin) => origin?.turnKey === first.turnKey) ? first : undefined;
}

function callsIn(content: readonly AssistantPart[]): readonly ToolCall[] {
  return content.filter((part) => part.type === 'tool-call');
}

/** The reply with the calls that the client has sent back, and their ids on the wire: models repeat the ids of calls. */
function mergedParts(content: readonly AssistantPart[], sent: readonly AssistantPart[]): readonly AssistantPart[] {
  const calls = new Map(callsIn(sent).map((call) => [itemOrigin(call.id)!.number, call]));
  let index = 0;
  return content.flatMap((part): readonly AssistantPart[] => {
    if (part.type !== 'tool-call') return [part];
    const call = calls.get(index++);
    if (!call) return [];
    const json = isSameJson(call.arguments, part.arguments) ? part.arguments : call.arguments;
    return [{ ...part, id: call.id, arguments: json }];
  });
}
