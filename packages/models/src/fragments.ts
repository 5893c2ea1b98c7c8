import type { Message } from '@treadle/core';

/** What has been made of a history so far. Bytes that are written never change, so views of them stay good. */
interface Written<State> {
  bytes: Buffer;
  size: number;
  count: number;
  last: Message | undefined;
  state: State;
}

const FIRST_CAPACITY = 4096;

/**
 * The messages of a history as bytes of JSON, each preceded by a comma. A message is serialised once: the array that
 * comes again, longer, costs only what it grew by. `serialise` gives the JSON of one message, several with commas
 * between them, or nothing.
 */
export function fragments(serialise: (message: Message) => string): (messages: readonly Message[]) => Uint8Array {
  const grown = growing(
    () => undefined,
    (message) => {
      const json = serialise(message);
      return json === '' ? '' : `,${json}`;
    },
  );
  return (messages) => grown(messages).bytes;
}

/**
 * The same where a message's form depends on those before it: `write` gives the very text that a message adds, and may
 * change `state`, which belongs to that one history. So what neighbours share can be left open and closed late.
 */
export function growing<State>(
  start: () => State,
  write: (message: Message, state: State) => string,
): (messages: readonly Message[]) => { readonly bytes: Uint8Array; readonly state: State } {
  const histories = new WeakMap<readonly Message[], Written<State>>();

  return (messages) => {
    let written = histories.get(messages);
    if (written === undefined || written.count > messages.length || messages[written.count - 1] !== written.last) {
      written = { bytes: Buffer.allocUnsafeSlow(FIRST_CAPACITY), size: 0, count: 0, last: undefined, state: start() };
      histories.set(messages, written);
    }
    while (written.count < messages.length) {
      const message = messages[written.count]!;
      const text = write(message, written.state);
      if (text !== '') append(written, text);
      written.count++;
      written.last = message;
    }
    return { bytes: written.bytes.subarray(0, written.size), state: written.state };
  };
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

function append(written: Written<unknown>, text: string): void {
  const size = written.size + Buffer.byteLength(text);
  if (size > written.bytes.length) {
    const larger = Buffer.allocUnsafeSlow(Math.max(size, written.bytes.length * 2));
    written.bytes.copy(larger, 0, 0, written.size);
    written.bytes = larger;
  }
  written.bytes.write(text, written.size);
  written.size = size;
}
