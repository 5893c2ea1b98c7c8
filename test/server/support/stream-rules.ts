import { isDeepStrictEqual } from 'node:util';
import type { Item, StreamEvent, WireResponse } from './responses-client.ts';
import { eventProblems } from './schema-check.ts';

/**
 * Validates a whole stream and returns its final response. Throws if the stream violates the schema, the order of
 * events, the event sequence of an item, or if the final response contradicts the events. One that `wasResumed` after a
 * crash may have incomplete items, and the same calls again.
 */
export function validateStream(events: readonly StreamEvent[], { wasResumed = false } = {}): WireResponse {
  const problems = [
    ...events.flatMap(eventProblems),
    ...orderProblems(events),
    ...itemProblems(events, wasResumed),
    ...finalResponseProblems(events, wasResumed),
  ];
  if (problems.length > 0) throw new Error(`${problems.join('\n')}\nin ${JSON.stringify(events)}`);
  return events.at(-1)!.response!;
}

/** The statuses that each terminal event allows. */
const STATUSES: Readonly<Record<string, readonly string[]>> = {
  'response.completed': ['completed', 'requires_action'],
  'response.incomplete': ['incomplete', 'cancelled'],
  'response.failed': ['failed'],
};

function* orderProblems(events: readonly StreamEvent[]): Generator<string> {
  let wasError = false;
  // A background response is queued first.
  const isQueued = events[1]?.type === 'response.queued';
  const begun = isQueued ? 2 : 1;
  for (const [position, { type, sequence_number: number }] of events.entries()) {
    const at = `${position} ${type}`;
    if (number !== position) yield `${at}: sequence_number is ${number}.`;
    if ((position === 0) !== (type === 'response.created'))
      yield `${at}: response.created must be the first event, and only the first.`;
    if ((position === begun) !== (type === 'response.in_progress'))
      yield `${at}: response.in_progress must be event ${begun}, and only that.`;
    if (type === 'response.queued' && position !== 1) yield `${at}: response.queued must be the second event.`;
    if ((position === events.length - 1) !== type in STATUSES)
      yield `${at}: the last event, and only the last, must be terminal.`;
    if (wasError && type !== 'response.failed') yield `${at}: only response.failed may follow an error.`;
    if (type === 'response.failed' && !wasError) yield `${at}: response.failed requires an error event before it.`;
    wasError ||= type === 'error';
  }
}

/** The allowed event sequence of each item type, one letter per event: see `LETTERS`. */
const SEQUENCES: Readonly<Record<string, RegExp>> = {
  message: /^\+p(d*D|n*N)Px$/,
  reasoning: /^\+(rs*SR|pt*TP)?x$/,
  function_call: /^\+a*Ax$/,
  mcp_call: /^\+m*M(i[cf]?)?x$/,
};

const LETTERS: Readonly<Record<string, string>> = {
  'response.output_item.added': '+',
  'response.output_item.done': 'x',
  'response.content_part.added': 'p',
  'response.output_text.delta': 'd',
  'response.output_text.done': 'D',
  'response.refusal.delta': 'n',
  'response.refusal.done': 'N',
  'response.reasoning_text.delta': 't',
  'response.reasoning_text.done': 'T',
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

/** The final status of an `mcp_call`, by its last event before `x`. */
const FINAL_STATUSES: Readonly<Record<string, string>> = {
  c: 'completed',
  f: 'failed',
  i: 'incomplete',
  M: 'incomplete',
};

/** The events of an item so far. */
interface ItemHistory {
  readonly opened: Item;
  closed: Item | undefined;
  sequence: string;
  /** Its deltas, joined. */
  deltas: string;
}

function* itemProblems(events: readonly StreamEvent[], wasResumed: boolean): Generator<string> {
  const items: ItemHistory[] = [];
  const ids = new Set<string>();
  for (const [position, event] of events.entries()) {
    const { type, output_index: index, item } = event;
    if (index === undefined) continue;
    const at = `${position} ${type}`;
    const letter = LETTERS[type];
    if (letter === undefined) yield `${at}: this event has no item.`;
    if (letter === '+') {
      const { id, call_id: call } = item!;
      if (index !== items.length) yield `${at}: the index ${index} is not the next one.`;
      for (const one of call === undefined || wasResumed ? [id] : [id, call]) {
        if (ids.has(one)) yield `${at}: the id ${one} was used before.`;
        ids.add(one);
      }
      items.push({ opened: item!, closed: undefined, sequence: letter, deltas: '' });
      continue;
    }
    const history = items[index];
    if (!history) {
      yield `${at}: the item ${index} was not opened.`;
      continue;
    }
    history.sequence += letter;
    if (letter === 'x') history.closed = item;
    else if (event.item_id !== history.opened.id) yield `${at}: ${event.item_id} is not the id of item ${index}.`;
    // A text must be complete before the next item is opened, so that a client never shows two growing texts.
    const isText = 'dnst'.includes(letter!);
    if (isText && items.length > index + 1) yield `${at}: the text grows after another item was opened.`;
    history.deltas += event.delta ?? '';
    const whole = wholeIn(event);
    if (whole !== undefined && whole !== history.deltas)
      yield `${at}: the text is ${whole}, but the deltas are ${history.deltas}.`;
  }
  for (const [index, history] of items.entries()) yield* historyProblems(history, `Item ${index}`);
  const closed = items.map((history) => history.closed);
  if (!isDeepStrictEqual(events.at(-1)?.response?.output, closed))
    yield 'The output of the response differs from the closed items.';
}

/** The complete text or arguments that an event contains. */
function wholeIn({ type, text, refusal, arguments: json, part }: StreamEvent): string | undefined {
  return type.endsWith('_part.done') ? textOfPart(part as WirePart) : (text ?? refusal ?? json);
}

function* historyProblems({ opened, closed, sequence, deltas }: ItemHistory, at: string): Generator<string> {
  const { type, id, name, call_id: call, status } = opened;
  if (!SEQUENCES[type]?.test(sequence)) yield `${at}, a ${type}, has the event sequence ${sequence}.`;
  if (status !== 'in_progress') yield `${at} is opened with the status ${status}.`;
  if (textOf(opened) !== '' || opened.content?.length || opened.summary?.length)
    yield `${at} is not empty when it is opened.`;
  const isSame = closed?.type === type && closed.id === id && closed.name === name && closed.call_id === call;
  if (!isSame) return yield `${at} has another identity when it is closed.`;
  if (closed.status === 'in_progress') yield `${at} is still in progress when it is closed.`;
  if (textOf(closed) !== deltas) yield `${at} has ${textOf(closed)}, but the deltas are ${deltas}.`;
  if (type !== 'mcp_call') return;
  const expected = FINAL_STATUSES[sequence.at(-2)!];
  if (closed.status !== expected) yield `${at} is ${closed.status} after the event sequence ${sequence}.`;
  if ((closed.output !== null) !== (expected === 'completed')) yield `The output of ${at} is ${closed.output}.`;
  if ((closed.error !== null) !== (expected === 'failed'))
    yield `The error of ${at} is ${JSON.stringify(closed.error)}.`;
}

function textOf({ arguments: json, content = [], summary = [] }: Item): string {
  return json ?? [...content, ...summary].map(textOfPart).join('');
}

interface WirePart {
  readonly text?: string;
  readonly refusal?: string;
}

function textOfPart({ text, refusal }: WirePart): string | undefined {
  return refusal ?? text;
}

/** Checks the final response against the type of the terminal event and the items. */
function* finalResponseProblems(events: readonly StreamEvent[], wasResumed: boolean): Generator<string> {
  const { type, response } = events.at(-1)!;
  if (!response) return;
  const { status, error, incomplete_details: details, completed_at: at, usage, output } = response;
  if (!STATUSES[type]?.includes(status)) yield `${type} has the status ${status}.`;
  if ((error !== null) !== (status === 'failed')) yield `The status is ${status}, the error ${JSON.stringify(error)}.`;
  if ((details !== null) !== (status === 'incomplete'))
    yield `The status is ${status}, incomplete_details ${JSON.stringify(details)}.`;
  if ((at !== null) !== (type === 'response.completed')) yield `The status is ${status}, completed_at ${String(at)}.`;
  if (usage === null) yield 'The response has no usage.';
  const pending = response.pending_call_ids ?? [];
  const callIds = output.flatMap((item) => item.call_id ?? []);
  if (type === 'response.completed' && !wasResumed) {
    const allEnded = output.every((item) => item.status === 'completed' || item.status === 'failed');
    if (!allEnded) yield 'The response is completed, but one of its items is not.';
    if (String(pending) !== String(callIds)) yield `The open calls are ${callIds}, but pending_call_ids is ${pending}.`;
  } else if (pending.length > 0 && !wasResumed) yield `The status is ${status}, but pending_call_ids is ${pending}.`;
}
