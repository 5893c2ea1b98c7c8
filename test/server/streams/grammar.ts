import { brokenRules } from '../open-responses/stream-rules.ts';
import { eventProblems } from '../open-responses/check.ts';
import type { Item, StreamEvent, WireResponse } from '../open-responses/asking.ts';

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

/**
 * The response that a whole stream tells of. Throws if the stream breaks a rule: of the specification, of the order over
 * all events (`brokenRules`), or of the course that each item takes.
 */
export function checkedStream(events: readonly StreamEvent[]): WireResponse {
  const found = [...brokenRules(events), ...events.flatMap(eventProblems), ...offCourse(events), ...untrue(events)];
  if (found.length > 0) throw new Error(`${found.join('\n')}\nin ${JSON.stringify(events)}`);
  return events.at(-1)!.response!;
}

const NONE: Item = { type: 'none', id: '' };

function* offCourse(events: readonly StreamEvent[]): Generator<string> {
  const courses: string[] = [];
  const opened: Item[] = [];
  for (const { type, output_index: index, item } of events) {
    if (index === undefined) continue;
    const letter = LETTERS[type];
    if (letter === undefined) yield `Nobody expects ${type}.`;
    // A text is closed in one go when something else opens, so that nobody shows two texts growing at once.
    const isText = letter === 'd' || letter === 's';
    if (isText && courses.length > index + 1) yield `The text of item ${index} grows after ${index + 1} was opened.`;
    courses[index] = (courses[index] ?? '') + letter;
    if (letter === '+') opened[index] = item!;
  }
  for (const [index, course] of courses.entries()) {
    const { type, id, status: first, name, call_id: call, content, summary, arguments: json } = opened[index] ?? NONE;
    if (!COURSES[type]?.test(course)) yield `Item ${index}, a ${type}, takes the course ${course}.`;
    if (first !== 'in_progress') yield `Item ${index} opens ${first}.`;
    if (content?.length || summary?.length || json) yield `Item ${index} opens with something in it.`;
    const item = events.find((event) => event.type.endsWith('item.done') && event.output_index === index)?.item;
    const isSame = item?.type === type && item.id === id && item.name === name && item.call_id === call;
    if (!isSame) yield `Item ${index} is another one when it is closed.`;
    if (item?.type !== 'mcp_call') continue;
    const status = ENDS[course.at(-2)!];
    if (item.status !== status) yield `Item ${index} is ${item.status} after the course ${course}.`;
    if ((item.output !== null) !== (status === 'completed')) yield `The output of item ${index} is ${item.output}.`;
    if ((item.error !== null) !== (status === 'failed')) yield `The error of item ${index} is ${item.error}.`;
  }
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

const STATUSES: Readonly<Record<string, readonly string[]>> = {
  'response.completed': ['completed', 'requires_action'],
  'response.incomplete': ['incomplete', 'cancelled'],
  'response.failed': ['failed'],
};
