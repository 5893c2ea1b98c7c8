import type { AssistantPart } from '@treadle/core';
import { encryptedContent } from './encrypted-content.ts';
import type { InputItem } from './input-items.ts';
import { inputItemId, placeOf } from './ids.ts';
import { shownReply } from './reply-parts.ts';

/** What the model said in the turns of a stored response, by their numbers; undefined: the caller has none of that id. */
export type RepliesOf = (response: string) => Promise<ReadonlyMap<number, readonly AssistantPart[]> | undefined>;

/**
 * The items, with what the model needs to get back of its thoughts. Clients that do not ask for `encrypted_content` rely
 * on us to have it, and some providers do not let a model go on thinking without. It is needed only for turns with calls
 * since the user last spoke. A turn whose thoughts the client has left out is taken as it is.
 */
export async function withThoughts(items: readonly InputItem[], repliesOf: RepliesOf): Promise<readonly InputItem[]> {
  const sealed = new Map<number, InputItem>();
  const hidden = new Map<number, readonly InputItem[]>();
  const replies = new Map<string, Awaited<ReturnType<RepliesOf>>>();
  for (const { response, number, thoughts, last } of turnsIn(items)) {
    if (!replies.has(response)) replies.set(response, await repliesOf(response));
    const reply = replies.get(response)?.get(number);
    if (!reply) continue;
    const { parts, further } = shownReply(reply);
    const shown = parts.filter((part) => part.type === 'reasoning');
    if (shown.length !== thoughts.length) continue;
    for (const [nth, index] of thoughts.entries()) {
      const { first } = shown[nth]!;
      const item = items[index] as Thought;
      if (first.signature !== undefined) sealed.set(index, { ...item, encrypted_content: encryptedContent(first) });
    }
    hidden.set(
      last,
      further.map(({ part, after }) => ({
        type: 'reasoning',
        id: inputItemId('rs'),
        status: 'completed',
        summary: [],
        encrypted_content: encryptedContent(part, after),
      })),
    );
  }
  return items.flatMap((item, index) => [sealed.get(index) ?? item, ...(hidden.get(index) ?? [])]);
}

type Thought = Extract<InputItem, { type: 'reasoning' }>;

interface SentTurn {
  readonly response: string;
  readonly number: number;
  /** Where its thoughts stand among the items, and the last of its items. */
  readonly thoughts: number[];
  last: number;
  hasCalls: boolean;
  isSealed: boolean;
}

/** The turns of ours that lack their seals. */
function turnsIn(items: readonly InputItem[]): readonly SentTurn[] {
  const from = items.findLastIndex((item) => item.type === 'message' && item.role === 'user') + 1;
  const turns = new Map<string, SentTurn>();
  for (const [offset, item] of items.slice(from).entries()) {
    const index = from + offset;
    const place = placeOf(item.type === 'function_call' ? item.call_id : item.id);
    if (!place || item.type === 'function_call_output') continue;
    const { response, turn: key, turnNumber: number } = place;
    const turn = turns.get(key) ?? { response, number, thoughts: [], last: index, hasCalls: false, isSealed: false };
    turns.set(key, turn);
    turn.last = index;
    if (item.type === 'function_call' || item.type === 'mcp_call') turn.hasCalls = true;
    if (item.type !== 'reasoning') continue;
    turn.thoughts.push(index);
    if (item.encrypted_content !== undefined) turn.isSealed = true;
  }
  return [...turns.values()].filter(({ hasCalls, isSealed }) => hasCalls && !isSealed);
}
