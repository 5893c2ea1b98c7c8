import { isDeepStrictEqual } from 'node:util';
import type { Item, StreamEvent, WireResponse } from './asking.ts';
import { eventProblems } from './check.ts';

/**
 * The response that a whole stream tells of. Throws if the stream breaks a rule: of the specification, of the order over
 * all events, of the course that each item takes, or of what the end has to say.
 */
export function checkedStream(events: readonly StreamEvent[]): WireResponse {
  const found = [...events.flatMap(eventProblems), ...outOfOrder(events), ...offCourse(events), ...untrue(events)];
  if (found.length > 0) throw new Error(`${found.join('\n')}\nin ${JSON.stringify(events)}`);
  return events.at(-1)!.response!;
}

const STATUSES: Readonly<Record<string, readonly string[]>> = {
  'response.completed': ['completed', 'requires_action'],
  'response.incomplete': ['incomplete', 'cancelled'],
  'response.failed': ['failed'],
};

function* outOfOrder(events: readonly StreamEvent[]): Generator<string> {
  let wasError = false;
  for (const [position, { type, sequence_number: number }] of events.entries()) {
    const at = `${position} ${type}`;
    if (number !== position) yield `${at}: has the number ${number}.`;
    if ((position === 0) !== (type === 'response.created')) yield `${at}: created is the first event, and only that.`;
    if ((position === 1) !== (type === 'response.in_progress'))
      yield `${at}: in_progress is the second, and only that.`;
    if ((position === events.length - 1) !== type in STATUSES) yield `${at}: the last event ends it, and only that.`;
    if (wasError && type !== 'response.failed') yield `${at}: after the error.`;
    if (type === 'response.failed' && !wasError) yield `${at}: without an error before it.`;
    wasError ||= type === 'error';
  }
}

/** By type of item: which events tell of it, in which order. A letter each, see `LETTERS`. */
const COURSES: Readonly<Record<string, RegExp>> = {
  message: /^\+pd*DPx$/,
  reasoning: /^\+(rs*SR)?x$/,
  function_call: /^\+a*Ax$/,
  mcp_call: /^\+m*M(i[cf]?)?x$/,
};

const LETTERS: Readonly<Record<string, string>> = {
  'response.output_item.added': '+',
  'response.output_item.done': 'x',
  'response.content_part.added': 'p',
  'response.output_text.delta': 'd',
  'response.output_text.done': 'D',
  'response.content_part.done': 'P',
  'response.reasoning_summary_part.added': 'r',
  'response.reasoning_summary_text.delta': 's',
  'response.reasoning_summary_text.done': 'S',
  'response.reasoning_summary_part.done': 'R',
  'response.function_call_arguments.delta': 'a',
  'response.function_call_arguments.done': 'A',
  'response.mcp_call_arguments.delta': 'm',
  'response.mcp_call_arguments.done': 'M',
  'response.mcp_call.in_progress': 'i',
  'response.mcp_call.completed': 'c',
  'response.mcp_call.failed': 'f',
};

/** What the end of an `mcp_call` has to say. */
const ENDS: Readonly<Record<string, string>> = { c: 'completed', f: 'failed', i: 'incomplete', M: 'incomplete' };

/** What the stream has told of an item. */
interface Told {
  readonly opened: Item;
  closed: Item | undefined;
  course: string;
  /** What its deltas come to. */
  said: string;
}

function* offCourse(events: readonly StreamEvent[]): Generator<string> {
  const items: Told[] = [];
  const ids = new Set<string>();
  for (const [position, event] of events.entries()) {
    const { type, output_index: index, item } = event;
    if (index === undefined) continue;
    const at = `${position} ${type}`;
    const letter = LETTERS[type];
    if (letter === undefined) yield `${at}: nobody expects it.`;
    if (letter === '+') {
      const { id, call_id: call } = item!;
      if (index !== items.length) yield `${at}: the index ${index} is not the next one.`;
      for (const one of call === undefined ? [id] : [id, call]) {
        if (ids.has(one)) yield `${at}: the id ${one} was there before.`;
        ids.add(one);
      }
      items.push({ opened: item!, closed: undefined, course: letter, said: '' });
      continue;
    }
    const told = items[index];
    if (!told) {
      yield `${at}: the item ${index} was not opened.`;
      continue;
    }
    told.course += letter;
    if (letter === 'x') told.closed = item;
    else if (event.item_id !== told.opened.id) yield `${at}: ${event.item_id} is not the item ${index}.`;
    // A text is closed in one go when something else opens, so that nobody shows two texts growing at once.
    const isText = letter === 'd' || letter === 's';
    if (isText && items.length > index + 1) yield `${at}: the text grows after another item was opened.`;
    told.said += event.delta ?? '';
    const whole = wholeIn(event);
    if (whole !== undefined && whole !== told.said) yield `${at}: it says ${whole}, and the deltas said ${told.said}.`;
  }
  for (const [index, told] of items.entries()) yield* untrueItem(told, `Item ${index}`);
  const closed = items.map((told) => told.closed);
  if (!isDeepStrictEqual(events.at(-1)?.response?.output, closed))
    yield 'The response does not have the items as they were closed.';
}

/** The text or the arguments that an event tells as a whole. */
function wholeIn({ type, text, arguments: json, part }: StreamEvent): string | undefined {
  return type.endsWith('_part.done') ? (part as { readonly text: string }).text : (text ?? json);
}

function* untrueItem({ opened, closed, course, said }: Told, at: string): Generator<string> {
  const { type, id, name, call_id: call, status } = opened;
  if (!COURSES[type]?.test(course)) yield `${at}, a ${type}, takes the course ${course}.`;
  if (status !== 'in_progress') yield `${at} opens ${status}.`;
  if (textOf(opened) !== '' || opened.content?.length || opened.summary?.length)
    yield `${at} opens with something in it.`;
  const isSame = closed?.type === type && closed.id === id && closed.name === name && closed.call_id === call;
  if (!isSame) return yield `${at} is another one when it is closed.`;
  if (closed.status === 'in_progress') yield `${at} is still in progress when it is closed.`;
  if (textOf(closed) !== said) yield `${at} has ${textOf(closed)}, and the deltas said ${said}.`;
  if (type !== 'mcp_call') return;
  const end = ENDS[course.at(-2)!];
  if (closed.status !== end) yield `${at} is ${closed.status} after the course ${course}.`;
  if ((closed.output !== null) !== (end === 'completed')) yield `The output of ${at} is ${closed.output}.`;
  if ((closed.error !== null) !== (end === 'failed')) yield `The error of ${at} is ${JSON.stringify(closed.error)}.`;
}

function textOf({ arguments: json, content = [], summary = [] }: Item): string {
  return json ?? [...content, ...summary].map(({ text }) => text).join('');
}

/** What the last event says of the response fits its name and its items. */
function* untrue(events: readonly StreamEvent[]): Generator<string> {
  const { type, response } = events.at(-1)!;
  if (!response) return;
  const { status, error, incomplete_details: details, completed_at: at, usage, output } = response;
  if (!STATUSES[type]?.includes(status)) yield `${type} has the status ${status}.`;
  if ((error !== null) !== (status === 'failed')) yield `It is ${status} with the error ${JSON.stringify(error)}.`;
  if ((details !== null) !== (status === 'incomplete')) yield `It is ${status} because of ${JSON.stringify(details)}.`;
  if ((at !== null) !== (type === 'response.completed')) yield `It is ${status} and completed at ${String(at)}.`;
  if (usage === null) yield 'It has no usage.';
  const pending = response.pending_call_ids ?? [];
  const asked = output.flatMap((item) => item.call_id ?? []);
  if (type === 'response.completed') {
    const isWhole = output.every((item) => item.status === 'completed' || item.status === 'failed');
    if (!isWhole) yield 'It is completed, and has an item that is not.';
    if (String(pending) !== String(asked)) yield `The client has to answer ${asked}, and is told ${pending}.`;
  } else if (pending.length > 0) yield `It is ${status}, and ${pending} are to be answered.`;
}
