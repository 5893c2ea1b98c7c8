import { userText, type Message } from '@treadle/core';
import { expect, test } from 'vitest';
import { fragments, growing } from './fragments.ts';

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

function counted(): { of: ReturnType<typeof fragments>; seen: Message[] } {
  const seen: Message[] = [];
  const of = fragments((message) => {
    seen.push(message);
    return message.content.length === 0 ? '' : JSON.stringify(message);
  });
  return { of, seen };
}

test('a message is serialised once, and the bytes of earlier turns are never written again', () => {
  const { of, seen } = counted();
  const messages: Message[] = [userText('ø')];
  const first = of(messages);
  const then = text(first);
  for (let n = 0; n < 2_000; n++) {
    messages.push(userText(`message ${n} 🌨️`));
    of(messages);
  }
  expect(seen).toEqual(messages);
  expect(text(of(messages))).toBe(messages.map((message) => `,${JSON.stringify(message)}`).join(''));
  expect(text(first)).toBe(then);
  expect(seen).toHaveLength(2_001);
});

test('the bytes are the same memory turn after turn until it is full', () => {
  const { of } = counted();
  const messages: Message[] = [userText('a')];
  const first = of(messages);
  messages.push(userText('b'));
  expect(of(messages).buffer).toBe(first.buffer);
});

test('memory grows by doubling: 2,000 turns copy at most twice their bytes', () => {
  const { of } = counted();
  const messages: Message[] = [];
  const buffers = new Set<ArrayBufferLike>();
  let bytes = 0;
  for (let n = 0; n < 2_000; n++) {
    messages.push(userText('x'.repeat(100)));
    const view = of(messages);
    buffers.add(view.buffer);
    bytes = view.byteLength;
  }
  const copied = [...buffers].reduce((sum, buffer) => sum + buffer.byteLength, 0) - [...buffers].at(-1)!.byteLength;
  expect(copied).toBeLessThan(2 * bytes);
});

test('another array, a shorter one and one whose end was replaced start anew', () => {
  const { of } = counted();
  const messages: Message[] = [userText('a'), userText('b')];
  of(messages);
  expect(text(of([userText('c')]))).toBe(`,${JSON.stringify(userText('c'))}`);
  messages.pop();
  expect(text(of(messages))).toBe(`,${JSON.stringify(userText('a'))}`);
  messages[0] = userText('d');
  expect(text(of(messages))).toBe(`,${JSON.stringify(userText('d'))}`);
});

test('a message that serialises to nothing leaves no comma', () => {
  const { of } = counted();
  const messages: Message[] = [{ role: 'tool', content: [] }, userText('a')];
  expect(text(of(messages))).toBe(`,${JSON.stringify(userText('a'))}`);
});

test('what a message adds may depend on those before it, in its own history', () => {
  const of = growing(
    () => ({ roles: '' }),
    ({ role }, state) => {
      const joins = state.roles.endsWith(role);
      state.roles += role;
      return joins ? '+' : `|${role}`;
    },
  );
  const messages: Message[] = [userText('a'), userText('b')];
  const first = of(messages).bytes;
  expect(text(first)).toBe('|user+');
  messages.push(userText('c'), { role: 'assistant', content: [] });
  const { bytes, state } = of(messages);
  expect([text(first), text(bytes), state.roles]).toEqual(['|user+', '|user++|assistant', 'useruseruserassistant']);
  expect(of([...messages]).state).toEqual(state);
  messages.length = 1;
  expect([text(of(messages).bytes), of(messages).state.roles]).toEqual(['|user', 'user']);
});
