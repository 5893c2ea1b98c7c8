import type { ReasoningPart } from '@treadle/core';
import { fieldsOf, listOf, parsed, textIn } from '../json.ts';
import type { WireItem, WirePart } from './wire.ts';

/** Between two thoughts of one item. */
export const THOUGHT_BREAK = '\n\n';

/** The signature is the whole item as JSON, so that what goes back is what came. */
export function reasoningPart(item: WireItem, signer: string): ReasoningPart {
  const text = [...listOf(item.summary), ...listOf(item.content)]
    .map((part) => textIn(fieldsOf<WirePart>(part).text))
    .filter((thought) => thought !== '')
    .join(THOUGHT_BREAK);
  const known = textIn(item.id) !== '' || textIn(item.encrypted_content) !== '';
  return { type: 'reasoning', text, ...(known && { signature: JSON.stringify(item), protocol: signer }) };
}

/** Who sends a history. */
export interface Sender {
  /** Whose signatures go back. */
  readonly signer: string;
  /** The provider keeps the responses. */
  readonly stored: boolean;
}

/**
 * The item to send back, if there is one: a summary alone proves nothing and is refused. A provider that has stored the
 * response knows its items by their ids; any other needs all of the thoughts, encrypted or plain.
 */
export function reasoningItem({ signature, protocol }: ReasoningPart, { stored, signer }: Sender): unknown {
  if (protocol !== signer || signature === undefined) return undefined;
  const item = fieldsOf<WireItem>(parsed(signature));
  if (item.type !== 'reasoning') return undefined;
  return stored || textIn(item.encrypted_content) !== '' || listOf(item.content).length > 0 ? item : undefined;
}
