/**
 * The rules for every stream of a response, independent of the code that creates it: for unit tests, and for streams
 * over HTTP. Throws at the first event that breaks a rule.
 *
 * 1. Events are numbered from 0 without gaps, and are of a type that the official client knows, with every field.
 * 2. `response.created`, `response.in_progress`, then items, then one terminal event, which is the last. Before
 *    `response.failed` there is one `error`, and nowhere else.
 * 3. Every item is opened once and closed once. Indices count up from 0; item ids and call ids are unique.
 * 4. Events of an item are sent while it is open, in the order that its type requires, and with its own id.
 * 5. A text grows only in an open part, and only until another item opens. The final text equals the concatenated
 *    deltas, in every event that contains it. Texts are closed in the order of the output.
 * 6. Only a client's call is a `function_call`; a server's call ends completed with an output, failed with an
 *    error, or incomplete with neither.
 * 7. The response at the end has the items as they were closed. If it is completed, so are they, or failed. One that
 *    `wasResumed` after a crash may have incomplete items, and the same calls again.
 */
export function checkStream(events: readonly WireEvent[], { wasResumed = false } = {}): Checked {
  const items: Item[] = [];
  const ids = new Set<string>();
  let isOver = false;
  let errors = 0;
  /** The number of `response.in_progress`. A background response is queued before. */
  const begun = events[1]?.type === 'response.queued' ? 2 : 1;

  for (const [at, event] of events.entries()) {
    const where = `event ${at} (${event.type})`;
    const check: Check = (holds, what) => {
      if (!holds) throw new Error(`${where}: ${what}\n${JSON.stringify(event)}`);
    };
    check(!isOver, 'nothing may follow the terminal event');
    check(event.sequence_number === at, `its number must be ${at}`);
    checkFields(event, check);
    check((at === 0) === (event.type === 'response.created'), 'response.created is the first, once');
    check((at === begun) === (event.type === 'response.in_progress'), `response.in_progress is event ${begun}, once`);
    check(event.type !== 'response.queued' || at === 1, 'response.queued is the second');
    check(errors === 0 || event.type === 'response.failed', 'only response.failed may follow an error');

    if (at <= begun) {
      const { status, output } = responseIn(event);
      const isFirst = status === (at < begun && begun > 1 ? 'queued' : 'in_progress');
      check(isFirst && output.length === 0, 'a response must start in progress and without output');
    } else if (TERMINAL.includes(event.type)) {
      isOver = true;
      checkEnd(event, events[0]!, { items, wasResumed }, check);
      check(
        (event.type === 'response.failed') === errors > 0,
        'an error must precede response.failed, and nothing else',
      );
    } else if (event.type === 'error') {
      errors++;
      const nested = event['error'] as Record<string, unknown>;
      for (const field of ['code', 'message', 'param']) {
        check(nested[field] === event[field], `"${field}" must be the same flat and nested`);
      }
      check(
        items.every(({ done }) => done),
        'items are closed before the error',
      );
    } else if (event.type === 'response.output_item.added') {
      const item = opened(event, items.length, check);
      for (const id of item.callId === undefined || wasResumed ? [item.id] : [item.id, item.callId]) {
        check(!ids.has(id), `"${id}" is not unique`);
        ids.add(id);
      }
      for (const other of items) other.isOvertaken = true;
      items.push(item);
    } else {
      const item = items[event['output_index'] as number];
      check(item !== undefined, 'there is no item at its index');
      check(!item!.done, 'its item is closed');
      if (event.type === 'response.output_item.done') {
        const before = items.slice(0, items.indexOf(item!)).filter(isTextItem);
        check(!isTextItem(item!) || before.every(({ done }) => done), 'a text before it is still open');
        closed(event, item!, check);
      } else moved(event, item!, check);
    }
  }
  if (!isOver) throw new Error(`the stream of ${events.length} events has no terminal event`);
  return { response: events.at(-1)!['response'] as WireResponse, types: events.map(({ type }) => type) };
}

export interface WireEvent {
  readonly type: string;
  readonly sequence_number: number;
  readonly [field: string]: unknown;
}

export interface WireResponse {
  readonly id: string;
  readonly status: string;
  readonly output: readonly WireItem[];
  readonly [field: string]: unknown;
}

export interface WireItem {
  readonly type: string;
  readonly id: string;
  readonly status: string;
  readonly [field: string]: unknown;
}

export interface Checked {
  /** Of the terminal event. */
  readonly response: WireResponse;
  readonly types: readonly string[];
}

type Check = (holds: boolean, what: string) => void;

const TERMINAL = ['response.completed', 'response.incomplete', 'response.failed'];

interface Item {
  readonly type: string;
  readonly id: string;
  readonly callId: string | undefined;
  /** Its position in the sequence of events that its type requires. */
  stage: number;
  /** The type of its part, once there is one. */
  part: string | undefined;
  /** The concatenated deltas. */
  said: string;
  name: string;
  /** Another item was opened after it. */
  isOvertaken: boolean;
  done: WireItem | undefined;
}

/** The fields of each event beside `type` and `sequence_number`, in the official client and in Open Responses. */
const ITEM = ['item_id', 'output_index'];
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  'response.created': ['response'],
  'response.in_progress': ['response'],
  'response.queued': ['response'],
  'response.completed': ['response'],
  'response.incomplete': ['response'],
  'response.failed': ['response'],
  error: ['code', 'message', 'param', 'error'],
  'response.output_item.added': ['output_index', 'item'],
  'response.output_item.done': ['output_index', 'item'],
  'response.content_part.added': [...ITEM, 'content_index', 'part'],
  'response.content_part.done': [...ITEM, 'content_index', 'part'],
  'response.output_text.delta': [...ITEM, 'content_index', 'delta', 'logprobs'],
  'response.output_text.done': [...ITEM, 'content_index', 'text', 'logprobs'],
  'response.refusal.delta': [...ITEM, 'content_index', 'delta'],
  'response.refusal.done': [...ITEM, 'content_index', 'refusal'],
  'response.reasoning_text.delta': [...ITEM, 'content_index', 'delta'],
  'response.reasoning_text.done': [...ITEM, 'content_index', 'text'],
  'response.reasoning_summary_part.added': [...ITEM, 'summary_index', 'part'],
  'response.reasoning_summary_part.done': [...ITEM, 'summary_index', 'part'],
  'response.reasoning_summary_text.delta': [...ITEM, 'summary_index', 'delta'],
  'response.reasoning_summary_text.done': [...ITEM, 'summary_index', 'text'],
  'response.function_call_arguments.delta': [...ITEM, 'delta'],
  'response.function_call_arguments.done': [...ITEM, 'name', 'arguments'],
  'response.mcp_call_arguments.delta': [...ITEM, 'delta'],
  'response.mcp_call_arguments.done': [...ITEM, 'name', 'arguments'],
  'response.mcp_call.in_progress': ITEM,
  'response.mcp_call.completed': ITEM,
  'response.mcp_call.failed': ITEM,
};

const NESTED: Readonly<Record<string, readonly string[]>> = {
  message: ['content', 'id', 'role', 'status', 'type'],
  reasoning: ['id', 'status', 'summary', 'type'],
  function_call: ['arguments', 'call_id', 'id', 'name', 'status', 'type'],
  mcp_call: ['approval_request_id', 'arguments', 'error', 'id', 'name', 'output', 'server_label', 'status', 'type'],
  output_text: ['annotations', 'logprobs', 'text', 'type'],
  refusal: ['refusal', 'type'],
  reasoning_text: ['text', 'type'],
  summary_text: ['text', 'type'],
};
const OPTIONAL: Readonly<Record<string, readonly string[]>> = {
  message: ['phase'],
  reasoning: ['content', 'encrypted_content'],
};

function checkFields(event: WireEvent, check: Check): void {
  const fields = FIELDS[event.type];
  check(fields !== undefined, 'official clients do not know the event');
  const names = new Set(Object.keys(event));
  for (const field of ['type', 'sequence_number', ...fields!]) check(names.delete(field), `"${field}" is missing`);
  check(names.size === 0, `unknown fields ${[...names].join(', ')}`);
  for (const nested of [event['item'], event['part']] as (WireItem | undefined)[]) {
    if (nested) checkShape(nested, check);
  }
}

function checkShape(value: WireItem, check: Check): void {
  const keys = Object.keys(value).filter((key) => !OPTIONAL[value.type]?.includes(key));
  check(NESTED[value.type] !== undefined, `unknown type ${value.type}`);
  check(same(keys.sort(), NESTED[value.type]), `a ${value.type} has ${NESTED[value.type]!.join(', ')}`);
  for (const part of partsOf(value)) checkShape(part as WireItem, check);
}

function opened({ item: sent, output_index: index }: WireEvent, count: number, check: Check): Item {
  const item = sent as WireItem;
  check(index === count, `the next index is ${count}`);
  check(item.status === 'in_progress', 'an item opens in progress');
  check(
    PREFIXES[item.type] !== undefined && item.id.startsWith(PREFIXES[item.type]!),
    'its id must have the prefix of its type',
  );
  check(textOf(item) === '' && partsOf(item).length === 0, 'an item opens empty');
  return {
    type: item.type,
    id: item.id,
    callId: item['call_id'] as string | undefined,
    stage: 0,
    part: undefined,
    said: '',
    name: String(item['name']),
    isOvertaken: false,
    done: undefined,
  };
}

const PREFIXES: Readonly<Record<string, string>> = {
  message: 'msg_',
  reasoning: 'rs_',
  function_call: 'fc_',
  mcp_call: 'mcp_',
};

/** For each type of item: the stages between which an event leads. The first stage is 0. */
const COURSES: Readonly<Record<string, Readonly<Record<string, readonly [number, number]>>>> = {
  message: {
    'response.content_part.added': [0, 1],
    'response.output_text.delta': [1, 1],
    'response.output_text.done': [1, 2],
    'response.refusal.delta': [1, 1],
    'response.refusal.done': [1, 2],
    'response.content_part.done': [2, 3],
  },
  reasoning: {
    'response.content_part.added': [0, 1],
    'response.reasoning_text.delta': [1, 1],
    'response.reasoning_text.done': [1, 2],
    'response.content_part.done': [2, 3],
    'response.reasoning_summary_part.added': [0, 1],
    'response.reasoning_summary_text.delta': [1, 1],
    'response.reasoning_summary_text.done': [1, 2],
    'response.reasoning_summary_part.done': [2, 3],
  },
  function_call: {
    'response.function_call_arguments.delta': [0, 0],
    'response.function_call_arguments.done': [0, 1],
  },
  mcp_call: {
    'response.mcp_call_arguments.delta': [0, 0],
    'response.mcp_call_arguments.done': [0, 1],
    'response.mcp_call.in_progress': [1, 2],
    'response.mcp_call.completed': [2, 3],
    'response.mcp_call.failed': [2, 4],
  },
};

/** The part that an event adds to. */
const PART_OF: Readonly<Record<string, string>> = {
  'response.output_text.delta': 'output_text',
  'response.output_text.done': 'output_text',
  'response.refusal.delta': 'refusal',
  'response.refusal.done': 'refusal',
  'response.reasoning_text.delta': 'reasoning_text',
  'response.reasoning_text.done': 'reasoning_text',
  'response.reasoning_summary_text.delta': 'summary_text',
  'response.reasoning_summary_text.done': 'summary_text',
};

function moved(event: WireEvent, item: Item, check: Check): void {
  check(event['item_id'] === item.id, `its item is ${item.id}`);
  check((event['content_index'] ?? event['summary_index'] ?? 0) === 0, 'there is one part');
  const [from, to] = COURSES[item.type]![event.type] ?? [];
  check(from === item.stage, `it does not fit a ${item.type} at stage ${item.stage}`);
  item.stage = to!;
  const part = event['part'] as WirePart | undefined;
  if (part) {
    check(part.type === (item.part ?? part.type), `its part is a ${item.part}`);
    item.part = part.type;
  }
  const partType = PART_OF[event.type];
  check(partType === undefined || partType === item.part, `its part is a ${item.part}`);
  if (typeof event['delta'] === 'string') {
    check(event['delta'] !== '', 'a delta must not be empty');
    check(!isTextItem(item) || !item.isOvertaken, 'a text must not grow after another item opened');
    item.said += event['delta'];
  }
  const whole = event['text'] ?? event['refusal'] ?? event['arguments'] ?? (to === 3 && part && textOfPart(part));
  if (typeof whole === 'string') check(whole === item.said, `its deltas add up to ${JSON.stringify(item.said)}`);
  if ('name' in event) check(event['name'] === item.name, `its name is ${item.name}`);
}

function closed(event: WireEvent, item: Item, check: Check): void {
  const sent = event['item'] as WireItem;
  check(sent.id === item.id && sent.type === item.type, `its item is the ${item.type} ${item.id}`);
  check(sent['call_id'] === item.callId, `its call is ${item.callId}`);
  check(item.callId === undefined || sent['name'] === item.name, `its name is ${item.name}`);
  check(textOf(sent) === item.said, `its deltas add up to ${JSON.stringify(item.said)}`);
  item.done = sent;
  const { stage } = item;
  switch (item.type) {
    case 'mcp_call': {
      const status = { 1: 'incomplete', 2: 'incomplete', 3: 'completed', 4: 'failed' }[stage];
      check(sent.status === status, `its events require the status ${status}`);
      check((sent['output'] === null) === (status !== 'completed'), 'only a completed call has an output');
      check((sent['error'] === null) === (status !== 'failed'), 'only a failure has an error');
      break;
    }
    case 'function_call':
      check(stage === 1, 'its whole arguments were not sent');
      check(sent.status === 'completed' || sent.status === 'incomplete', 'it is completed or incomplete');
      break;
    default:
      check(stage === 3 || (stage === 0 && item.type === 'reasoning'), 'its part was not closed');
      check(partsOf(sent).length === (stage === 3 ? 1 : 0), 'it must have the parts that were sent');
      check(sent.status === 'completed' || sent.status === 'incomplete', 'it is completed or incomplete');
  }
}

interface StreamEnd {
  readonly items: readonly Item[];
  readonly wasResumed: boolean;
}

function checkEnd(event: WireEvent, first: WireEvent, { items, wasResumed }: StreamEnd, check: Check): void {
  const response = responseIn(event);
  check(response.id === responseIn(first).id, 'it is another response');
  check(
    items.every(({ done }) => done),
    'an item is still open',
  );
  check(
    same(
      response.output,
      items.map(({ done }) => done),
    ),
    'its output must be the items as they were closed',
  );
  const status = event.type.slice('response.'.length);
  const fine = {
    completed: ['completed', 'requires_action'],
    incomplete: ['incomplete', 'cancelled'],
    failed: ['failed'],
  };
  check(fine[status as keyof typeof fine].includes(response.status), `its status is not ${response.status}`);
  check((response['error'] !== null) === (status === 'failed'), 'only a failure has an error');
  const isCut = response.status === 'incomplete';
  check((response['incomplete_details'] !== null) === isCut, 'only an incomplete response has incomplete_details');
  check((response['completed_at'] !== null) === (status === 'completed'), 'only a completed response has completed_at');
  check(response['usage'] !== null, 'usage is missing');
  const whole = response.output.every((item) => item.status === 'completed' || item.status === 'failed');
  check(whole || wasResumed || status !== 'completed', 'an item of a completed response is incomplete');
  const pending = (response['pending_call_ids'] ?? []) as string[];
  const asked = response.output.map((item) => item['call_id']).filter((id) => id !== undefined);
  check(
    pending.every((id) => asked.includes(id)),
    'a pending call is not in the output',
  );
  check(
    status !== 'completed' || asked.every((id) => pending.includes(id as string)),
    'a call for the client is not pending',
  );
}

function isTextItem({ type }: Item): boolean {
  return type === 'message' || type === 'reasoning';
}

function responseIn(event: WireEvent): WireResponse {
  return event['response'] as WireResponse;
}

interface WirePart {
  readonly type: string;
  readonly text?: string;
  readonly refusal?: string;
}

function partsOf({ content, summary }: WireItem): readonly WirePart[] {
  return [...((summary ?? []) as WirePart[]), ...((content ?? []) as WirePart[])];
}

function textOf(item: WireItem): string {
  if (typeof item['arguments'] === 'string') return item['arguments'];
  return partsOf(item).map(textOfPart).join('');
}

function textOfPart({ text, refusal }: WirePart): string | undefined {
  return refusal ?? text;
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
