import type { OutputItem } from '../wire/items.ts';
import type { InputItem } from './input-items.ts';
import { placeOf } from './ids.ts';
import { unknownItem } from './messages.ts';

/** The output of a stored response; undefined if the caller has none of that id. */
export type OutputOf = (response: string) => Promise<readonly OutputItem[] | undefined>;

/**
 * The items, with what they only refer to: each reference replaced by what it stands for, and the results of the
 * server's own calls, which some clients leave out when they send a call back. Rejects with a 400 for a reference that
 * stands for nothing.
 */
export async function resolved(items: readonly InputItem[], outputOf: OutputOf): Promise<readonly InputItem[]> {
  const named = new Set<string>();
  for (const item of items) {
    const place = isPartial(item) ? placeOf(item.id) : undefined;
    if (place) named.add(place.response);
  }
  const known = new Map<string, InputItem>();
  for (const response of named) for (const item of (await outputOf(response)) ?? []) known.set(item.id, item);
  return items.map((item, index) => {
    if (!isPartial(item)) return item;
    const found = known.get(item.id);
    if (item.type === 'mcp_call') return found?.type === 'mcp_call' ? found : item;
    if (found) return found;
    throw unknownItem(item.id, `input[${index}]`);
  });
}

function isPartial(item: InputItem): item is Extract<InputItem, { type: 'item_reference' | 'mcp_call' }> {
  return item.type === 'item_reference' || (item.type === 'mcp_call' && item.output === null && item.error === null);
}
