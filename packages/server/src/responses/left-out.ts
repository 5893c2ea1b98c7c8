import type { OutputItem } from '../wire/items.ts';
import type { InputItem } from './input-items.ts';
import { placeOf } from './ids.ts';
import type { OutputOf } from './references.ts';

/**
 * The items, with the server's own calls of responses whose calls for the client are sent back. Some clients know nothing
 * of `mcp_call` items and leave them out, and then the model would not see what it has called and what came of it. Who
 * sends any of them of a response is taken at his word, and so is who sends none of its calls at all.
 */
export async function withServerCalls(items: readonly InputItem[], outputOf: OutputOf): Promise<readonly InputItem[]> {
  const lacking = new Set<string>();
  for (const item of items) if (item.type === 'function_call') addTo(lacking, placeOf(item.call_id)?.response);
  for (const item of items) {
    if (item.type !== 'mcp_call') continue;
    const place = placeOf(item.id);
    // One whose id the client has not kept may be of any of them.
    if (!place) return items;
    lacking.delete(place.response);
  }
  let whole = items;
  for (const response of lacking) whole = spliced(whole, (await outputOf(response)) ?? []);
  return whole;
}

function addTo(set: Set<string>, one: string | undefined): void {
  if (one !== undefined) set.add(one);
}

/** Each call goes before what came after it, as far as the client has that. */
function spliced(items: readonly InputItem[], output: readonly OutputItem[]): readonly InputItem[] {
  if (!output.some(({ type }) => type === 'mcp_call')) return items;
  const places = new Map(output.map((item, index) => [nameOf(item), index]));
  const own = items.map((item) => ('id' in item ? places.get(nameOf(item)) : undefined));
  const last = own.findLastIndex((index) => index !== undefined);
  const whole: InputItem[] = [];
  let next = 0;
  const addCalls = (end: number): void => {
    for (; next < end; next++) if (output[next]!.type === 'mcp_call') whole.push(output[next]!);
  };
  for (const [position, item] of items.entries()) {
    const index = own[position];
    if (index !== undefined) addCalls(index);
    whole.push(item);
    if (position === last) addCalls(output.length);
  }
  return whole;
}

/** Clients keep the ids of calls, but not always those of their items. */
function nameOf(item: InputItem): string {
  return item.type === 'function_call' ? item.call_id : item.id;
}
