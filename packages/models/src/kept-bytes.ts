import type { Message, ToolSpec } from '@treadle/core';

/** What stands before a history, written anew only when what is said there has changed. */
export function keptHead(
  write: (said: string | undefined) => string,
): (messages: readonly Message[], said: string | undefined) => Uint8Array {
  const heads = new WeakMap<readonly Message[], { readonly said: string | undefined; readonly bytes: Uint8Array }>();
  return (messages, said) => {
    let head = heads.get(messages);
    if (head === undefined || head.said !== said) {
      head = { said, bytes: Buffer.from(write(said)) };
      heads.set(messages, head);
    }
    return head.bytes;
  };
}

/** A list of tools, written once. */
export function keptTools(write: (tools: readonly ToolSpec[]) => string): (tools: readonly ToolSpec[]) => Uint8Array {
  return keptFor((tools: readonly ToolSpec[]) => Buffer.from(write(tools)));
}

/** What is made of an object, made once. */
export function keptFor<Key extends object, Value>(make: (key: Key) => Value): (key: Key) => Value {
  const made = new WeakMap<Key, Value>();
  return (key) => {
    let value = made.get(key);
    if (value === undefined) made.set(key, (value = make(key)));
    return value;
  };
}
