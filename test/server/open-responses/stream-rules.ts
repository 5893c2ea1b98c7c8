import { isDeepStrictEqual } from 'node:util';
import type { Item, StreamEvent, WireResponse } from './asking.ts';

interface Open {
  readonly index: number;
  readonly id: string;
  readonly type: string;
  /** A part that was added, and what its deltas have said; absent before and after. */
  part?: string;
  /** Of a call. */
  arguments: string;
  /** The text of all its parts. */
  said: string;
  /** The part, or the arguments, were told as a whole. */
  isWhole: boolean;
}

const TERMINAL = ['response.completed', 'response.incomplete', 'response.failed'];

/** How a stream breaks the rules of what may follow what; nothing if it keeps them. */
export function* brokenRules(events: readonly StreamEvent[]): Generator<string> {
  const open = new Map<number, Open>();
  const done: Item[] = [];
  const ids = new Set<string>();
  let wasError = false;
  for (const [position, event] of events.entries()) {
    const { type, sequence_number: number, output_index: index, item_id: id } = event;
    const at = `${position} ${type}`;
    if (number !== position) yield `${at}: has the number ${number}.`;
    if ((position === 0) !== (type === 'response.created')) yield `${at}: created is the first event, and only that.`;
    if ((position === 1) !== (type === 'response.in_progress'))
      yield `${at}: in_progress is the second, and only that.`;
    if ((position === events.length - 1) !== TERMINAL.includes(type))
      yield `${at}: the last event ends it, and only that.`;
    if (wasError && type !== 'response.failed') yield `${at}: after the error.`;
    wasError ||= type === 'error';
    if (index === undefined) continue;
    const item = open.get(index);

    if (type === 'response.output_item.added') {
      const added = event.item!;
      if (index !== open.size + done.filter(Boolean).length) yield `${at}: the index ${index} is not the next one.`;
      if (ids.has(added.id)) yield `${at}: the id ${added.id} was there before.`;
      ids.add(added.id);
      if (added.call_id !== undefined && ids.has(added.call_id)) yield `${at}: the call id was there before.`;
      if (added.call_id !== undefined) ids.add(added.call_id);
      open.set(index, { index, id: added.id, type: added.type, arguments: '', said: '', isWhole: false });
      continue;
    }
    if (!item) {
      yield `${at}: the item ${index} is not open.`;
      continue;
    }
    if (type === 'response.output_item.done') {
      const ended = event.item!;
      if (ended.id !== item.id) yield `${at}: ${ended.id} is not what was opened.`;
      if (ended.status === 'in_progress') yield `${at}: it is still in progress.`;
      if (item.part !== undefined) yield `${at}: its part is open.`;
      if (textOf(ended) !== item.said) yield `${at}: the deltas said ${item.said}, and the item ${textOf(ended)}.`;
      if (ended.arguments !== undefined && (ended.arguments !== item.arguments || !item.isWhole))
        yield `${at}: other arguments than those that were told.`;
      open.delete(index);
      done[index] = ended;
      continue;
    }
    if (id !== item.id) yield `${at}: ${id} is not the item ${index}.`;
    if (type.endsWith('_part.added')) {
      if (item.part !== undefined) yield `${at}: there is a part that is open.`;
      item.part = '';
      item.isWhole = false;
    } else if (type.endsWith('_part.done')) {
      if (item.part === undefined || !item.isWhole) yield `${at}: no part of which all was said is open.`;
      delete item.part;
    } else if (type.endsWith('text.delta')) {
      if (item.part === undefined || item.isWhole) yield `${at}: no part is open that is not whole.`;
      item.part += event.delta!;
      item.said += event.delta!;
    } else if (type.endsWith('text.done')) {
      if (event.text !== item.part || item.isWhole) yield `${at}: not the whole text, once.`;
      item.isWhole = true;
    } else if (type.endsWith('arguments.delta')) {
      if (item.isWhole) yield `${at}: they were whole.`;
      item.arguments += event.delta!;
    } else if (type.endsWith('arguments.done')) {
      if (event.arguments !== item.arguments || item.isWhole) yield `${at}: not the whole arguments, once.`;
      item.isWhole = true;
    }
  }
  for (const { index } of open.values()) yield `The item ${index} is never closed.`;
  const last = events.at(-1)?.response as WireResponse | undefined;
  if (!isDeepStrictEqual(last?.output, done)) yield 'The response does not have the items as they were closed.';
  if (last?.status === 'completed' && done.some(({ status }) => status === 'incomplete'))
    yield 'It is completed, and one of its items is not.';
  if ((last?.status === 'failed') !== wasError) yield 'An error comes before a failed response, and only then.';
}

function textOf({ content = [], summary = [] }: Item): string {
  return [...content, ...summary].map(({ text }) => text).join('');
}
