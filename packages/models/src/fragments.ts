import type { Message } from '@treadle/core';

/** What has been made of a history so far. Bytes that are written never change, so views of them stay good. */
interface Written {
  bytes: Buffer;
  size: number;
  count: number;
  last: Message | undefined;
}

const FIRST_CAPACITY = 4096;

/**
 * The messages of a history as bytes of JSON, each preceded by a comma. A message is serialised once: the array that
 * comes again, longer, costs only what it grew by. `serialise` gives the JSON of one message, several with commas
 * between them, or nothing.
 */
export function fragments(serialise: (message: Message) => string): (messages: readonly Message[]) => Uint8Array {
  const histories = new WeakMap<readonly Message[], Written>();

  return (messages) => {
    let written = histories.get(messages);
    if (written === undefined || written.count > messages.length || messages[written.count - 1] !== written.last) {
      written = { bytes: Buffer.allocUnsafeSlow(FIRST_CAPACITY), size: 0, count: 0, last: undefined };
      histories.set(messages, written);
    }
    while (written.count < messages.length) {
      const message = messages[written.count]!;
      const json = serialise(message);
      if (json !== '') append(written, `,${json}`);
      written.count++;
      written.last = message;
    }
    return written.bytes.subarray(0, written.size);
  };
}

function append(written: Written, text: string): void {
  const size = written.size + Buffer.byteLength(text);
  if (size > written.bytes.length) {
    const larger = Buffer.allocUnsafeSlow(Math.max(size, written.bytes.length * 2));
    written.bytes.copy(larger, 0, 0, written.size);
    written.bytes = larger;
  }
  written.bytes.write(text, written.size);
  written.size = size;
}
