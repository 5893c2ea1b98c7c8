import type { Message, ModelRequest } from '@treadle/core';

/** How a protocol writes a history. */
export interface HistoryForm<State> {
  readonly start: () => State;
  /**
   * The text that a message adds, a comma first; maybe none. It may change `state`, which belongs to that one history. So
   * what neighbours share can be left open and closed late.
   */
  readonly write: (message: Message, state: State) => string;
  /** The end of a request after such a history. */
  readonly close: (state: State) => string;
}

/** What a model says before the history, up to the bracket that opens it, and maybe a first element of the list. */
export interface Head<State> {
  readonly write: (request: ModelRequest, state: State) => string;
  /** What of the history it depends on. */
  readonly hangsOn?: (state: State) => unknown;
}

/** All of a request that a head may be made of. */
type Asked = Omit<ModelRequest, 'messages' | 'deadline' | 'key'>;

/**
 * A request as it was last written for a history. It must not lead to the array: until all of the memory is searched,
 * which is seldom, what is held for a key of a WeakMap holds the key.
 */
interface Written<State> {
  bytes: Buffer;
  /** Where the history begins, and where it ends. */
  from: number;
  to: number;
  count: number;
  last: Message | undefined;
  readonly state: State;
  /** Who wrote the head, for which request, and with what of the history. */
  head: unknown;
  asked: Asked | undefined;
  hungOn: unknown;
}

const FIRST_CAPACITY = 2_048;
const NOTHING = Buffer.alloc(0);
const COMMA = 44;
const SPACE = 32;

/**
 * Requests as bytes: the head, the history, its end, in one piece of memory that a turn only adds to. A message is
 * serialised once: the array that comes again, longer, costs only what it grew by, and a head is written anew only when
 * something of it is another object than before.
 *
 * What is given out holds as long as the array is as it was, which is until the reply is there. Then the end is written
 * over. A head that changes while the history does not, as when two models are asked at once, gets memory of its own.
 *
 * Models with the same `histories` share what has been written of a history.
 */
export function bodies<State>(
  { form, written: known }: Histories<State>,
  head: Head<State>,
): (request: ModelRequest) => Uint8Array {
  return (request) => {
    const { messages } = request;
    let written = known.get(messages);
    if (written === undefined || written.count > messages.length || messages[written.count - 1] !== written.last) {
      written = nothingYet(form.start());
      known.set(messages, written);
    }
    try {
      grow(written, form, head, request);
    } catch (thrown) {
      // The state may be ahead of what is written.
      known.delete(messages);
      throw thrown;
    }
    return written.bytes.subarray(0, written.to + written.bytes.write(form.close(written.state), written.to));
  };
}

/** By the messages that are new, with room for the end. */
function grow<State>(
  written: Written<State>,
  form: HistoryForm<State>,
  head: Head<State>,
  request: ModelRequest,
): void {
  const { messages } = request;
  const { state } = written;
  let added = '';
  for (let at = written.count; at < messages.length; at++) added += form.write(messages[at]!, state);
  written.count = messages.length;
  written.last = messages.at(-1);

  const end = form.close(state);
  const hungOn = head.hangsOn?.(state);
  const isBegun = written.head === head && written.to > written.from;
  if (isBegun && written.hungOn === hungOn && isSameHead(written.asked!, request)) return append(written, added, end);
  begin(written, head.write(request, state), added, end);
  written.head = head;
  written.asked = askedIn(request);
  written.hungOn = hungOn;
}

/** Histories in one form, by their arrays of messages. */
export interface Histories<State> {
  readonly form: HistoryForm<State>;
  readonly written: WeakMap<readonly Message[], Written<State>>;
}

export function histories<State>(form: HistoryForm<State>): Histories<State> {
  return { form, written: new WeakMap() };
}

/** Of messages that do not depend on each other; `serialise` gives their JSON, with commas where it is several. */
export function listOfMessages(serialise: (message: Message) => string): Histories<undefined> {
  return histories({
    start: () => undefined,
    write: (message) => {
      const json = serialise(message);
      return json === '' ? '' : `,${json}`;
    },
    close: () => ']}',
  });
}

/** One store for each kind of histories, so that all models that write messages alike share it. */
export function perKind<Store>(make: (kind: string) => Store): (kind: string) => Store {
  const stores = new Map<string, Store>();
  return (kind) => {
    let store = stores.get(kind);
    if (store === undefined) stores.set(kind, (store = make(kind)));
    return store;
  };
}

function nothingYet<State>(state: State): Written<State> {
  const nobody = { head: undefined, asked: undefined, hungOn: undefined };
  return { bytes: NOTHING, from: 0, to: 0, count: 0, last: undefined, state, ...nobody };
}

function askedIn({ messages: _, deadline: _d, key: _k, ...asked }: ModelRequest): Asked {
  return asked;
}

function isSameHead(before: Asked, now: ModelRequest): boolean {
  return (
    before.tools === now.tools &&
    before.instructions === now.instructions &&
    before.settings === now.settings &&
    before.toolChoice === now.toolChoice &&
    before.allowedTools === now.allowedTools &&
    before.parallel === now.parallel &&
    before.output === now.output &&
    before.outputForm === now.outputForm
  );
}

/** With another head, in memory of its own. */
function begin(written: Written<unknown>, head: string, added: string, end: string): void {
  const before = written.bytes.subarray(written.from, written.to);
  const size = Buffer.byteLength(head) + before.length + Buffer.byteLength(added) + Buffer.byteLength(end);
  written.bytes = Buffer.allocUnsafeSlow(Math.max(size * 2, FIRST_CAPACITY));
  written.from = written.bytes.write(head);
  written.to = written.from + before.copy(written.bytes, written.from);
  written.to += written.bytes.write(added, written.to);
  if (written.to > written.from) written.bytes[written.from] = head.endsWith('[') ? SPACE : COMMA;
}

function append(written: Written<unknown>, added: string, end: string): void {
  const size = written.to + Buffer.byteLength(added) + Buffer.byteLength(end);
  if (size > written.bytes.length) {
    const larger = Buffer.allocUnsafeSlow(size * 2);
    written.bytes.copy(larger, 0, 0, written.to);
    written.bytes = larger;
  }
  written.to += written.bytes.write(added, written.to);
}
