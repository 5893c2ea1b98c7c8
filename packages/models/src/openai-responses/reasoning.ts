import type { ReasoningPart } from '@treadle/core';
import { fieldsOf, listOf, wordsOf, type WireItem, type WirePart } from './wire.ts';

/** Under this name the signatures of this protocol are kept. */
const PROTOCOL = 'openai-responses';

/** Between two thoughts of one item. */
export const THOUGHT_BREAK = '\n\n';

/** The signature is the whole item as JSON, so that what goes back is what came. */
export function reasoningPart(item: WireItem): ReasoningPart {
  const text = [...listOf(item.summary), ...listOf(item.content)]
    .map((part) => wordsOf(fieldsOf<WirePart>(part).text))
    .filter((thought) => thought !== '')
    .join(THOUGHT_BREAK);
  const known = wordsOf(item.id) !== '' || wordsOf(item.encrypted_content) !== '';
  return { type: 'reasoning', text, ...(known && { signature: JSON.stringify(item), protocol: PROTOCOL }) };
}

/**
 * The item to send back, if there is one: a summary alone proves nothing and is refused. A provider that has stored the
 * response knows its items by their ids; any other needs all of the thoughts, encrypted or plain.
 */
export function reasoningItem({ signature, protocol }: ReasoningPart, stored: boolean): unknown {
  if (protocol !== PROTOCOL || signature === undefined) return undefined;
  let item: Partial<WireItem>;
  try {
    item = fieldsOf<WireItem>(JSON.parse(signature));
  } catch {
    return undefined;
  }
  if (item.type !== 'reasoning') return undefined;
  return stored || wordsOf(item.encrypted_content) !== '' || listOf(item.content).length > 0 ? item : undefined;
}
