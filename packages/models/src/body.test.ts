import { userText, type Message, type ModelRequest } from '@treadle/core';
import { expect, test } from 'vitest';
import { bytesOf, request, shell } from '../test/request.ts';
import { bodyWriter, histories, listOfMessages, type WriteBody } from './body.ts';

const text = (body: ReturnType<WriteBody>): string => Buffer.from(bytesOf(body)).toString('utf8');
/** Requests that differ only in the fields passed. */
const SAME = request();
const asking = (messages: readonly Message[], overrides: Partial<ModelRequest> = {}): ModelRequest => ({
  ...SAME,
  messages,
  ...overrides,
});

interface Counted {
  readonly of: (request: ModelRequest) => Uint8Array;
  readonly seen: Message[];
  readonly heads: string[];
}

function counted(first = ''): Counted {
  const seen: Message[] = [];
  const heads: string[] = [];
  const list = listOfMessages((message) => {
    seen.push(message);
    return message.content.length === 0 ? '' : JSON.stringify(message);
  });
  const write = bodyWriter(list, {
    write({ instructions = '' }) {
      heads.push(instructions);
      return `{"said":${JSON.stringify(instructions)},"list":[${first}`;
    },
  });
  return { of: (asked) => bytesOf(write(asked)), seen, heads };
}

const read = (body: ReturnType<WriteBody>): unknown => JSON.parse(text(body));

test('serialises each message and the head once', () => {
  const { of, seen, heads } = counted();
  const messages: Message[] = [userText('ø')];
  of(asking(messages));
  for (let n = 0; n < 2_000; n++) {
    messages.push(userText(`message ${n} 🌨️`));
    of(asking(messages));
  }
  expect(seen).toEqual(messages);
  expect(read(of(asking(messages)))).toEqual({ said: '', list: messages });
  expect(seen).toHaveLength(2_001);
  expect(heads).toEqual(['']);
});

test('reuses one buffer from turn to turn until it is full', () => {
  const { of } = counted();
  const messages: Message[] = [userText('a')];
  const first = of(asking(messages));
  messages.push(userText('b'));
  expect(of(asking(messages)).buffer).toBe(first.buffer);
});

test('doubles the buffer when it is full: 2,000 turns copy at most twice their bytes', () => {
  const { of } = counted();
  const messages: Message[] = [];
  const buffers = new Set<ArrayBufferLike>();
  let bytes = 0;
  for (let n = 0; n < 2_000; n++) {
    messages.push(userText('x'.repeat(100)));
    const view = of(asking(messages));
    buffers.add(view.buffer);
    bytes = view.byteLength;
  }
  const copied = [...buffers].reduce((sum, buffer) => sum + buffer.byteLength, 0) - [...buffers].at(-1)!.byteLength;
  expect(copied).toBeLessThan(2 * bytes);
});

test('starts over with another array, a shorter array and one whose last message was replaced', () => {
  const { of } = counted();
  const messages: Message[] = [userText('a'), userText('b')];
  of(asking(messages));
  expect(read(of(asking([userText('c')])))).toEqual({ said: '', list: [userText('c')] });
  messages.pop();
  expect(read(of(asking(messages)))).toEqual({ said: '', list: [userText('a')] });
  messages[0] = userText('d');
  expect(read(of(asking(messages)))).toEqual({ said: '', list: [userText('d')] });
});

test('writes an empty list, and no comma for a message that serialises to nothing', () => {
  const nothing: Message = { role: 'tool', content: [] };
  for (const [first, before] of [
    ['', []],
    ['0', [0]],
  ] as const) {
    const { of } = counted(first);
    const messages: Message[] = [];
    expect(read(of(asking(messages)))).toEqual({ said: '', list: before });
    messages.push(nothing);
    expect(read(of(asking(messages)))).toEqual({ said: '', list: before });
    messages.push(userText('a'), nothing);
    expect(read(of(asking(messages)))).toEqual({ said: '', list: [...before, userText('a')] });
    messages.push(userText('b'));
    expect(read(of(asking(messages)))).toEqual({ said: '', list: [...before, userText('a'), userText('b')] });
  }
});

test('a new head neither serialises a message again nor overwrites bytes that may still be sent', () => {
  const { of, seen } = counted();
  const messages: Message[] = [userText('a'), userText('b')];
  const first = of(asking(messages));
  const then = text(first);
  const other = of(asking(messages, { instructions: 'Be brief, ø.' }));
  expect(read(other)).toEqual({ said: 'Be brief, ø.', list: messages });
  expect(text(first)).toBe(then);
  expect(seen).toHaveLength(2);
});

test.each<Partial<ModelRequest>>([
  { instructions: 'b' },
  { tools: [shell] },
  { toolChoice: 'none' },
  { allowedTools: [] },
  { parallel: false },
  { settings: { seed: 1 } },
  { output: {} },
  { outputForm: {} },
])('rewrites the head for %j', (overrides) => {
  const { of, heads } = counted();
  const messages = [userText('a')];
  of(asking(messages));
  of(asking(messages, overrides));
  expect(heads).toHaveLength(2);
});

test('writes a head of its own for each model that shares a history', () => {
  const list = listOfMessages((message) => JSON.stringify(message));
  const [one, two] = ['one', 'two'].map((name) => bodyWriter(list, { write: () => `{"model":"${name}","list":[` }));
  const messages: Message[] = [];
  for (let turn = 0; turn < 3; turn++) {
    messages.push(userText(`message ${turn}`));
    expect(read(one!(asking(messages)))).toEqual({ model: 'one', list: messages });
    expect(read(two!(asking(messages)))).toEqual({ model: 'two', list: messages });
  }
});

test('messages, head and end may depend on earlier messages of the same history', () => {
  const of = bodyWriter(
    histories({
      start: () => ({ roles: '' }),
      write({ role }, state) {
        const joins = state.roles.endsWith(role);
        state.roles += role;
        return joins ? '+' : `,${role}`;
      },
      close: ({ roles }) => `|${roles.length}`,
    }),
    { dependsOn: ({ roles }) => roles.includes('assistant'), write: (_, { roles }) => `${roles} [` },
  );
  const messages: Message[] = [userText('a'), userText('b')];
  expect(text(of(asking(messages)))).toBe('useruser [ user+|8');
  messages.push(userText('c'));
  expect(text(of(asking(messages)))).toBe('useruser [ user++|12');
  messages.push({ role: 'assistant', content: [] });
  expect(text(of(asking(messages)))).toBe('useruseruserassistant [ user++,assistant|21');
  expect(text(of(asking([...messages])))).toBe('useruseruserassistant [ user++,assistant|21');
  messages.length = 1;
  expect(text(of(asking(messages)))).toBe('user [ user|4');
});

test('starts a history over after a message or a head failed to be written', () => {
  const broken = new Set(['message', 'head']);
  const form = histories({
    start: () => ({ count: 0 }),
    write({ role }, state) {
      if (role === 'assistant' && broken.has('message')) throw new Error('no message');
      return `,"${role} ${state.count++}"`;
    },
    close: () => ']',
  });
  const of = bodyWriter(form, {
    write() {
      if (broken.has('head')) throw new Error('no head');
      return '[';
    },
  });
  const messages: Message[] = [userText('a'), { role: 'assistant', content: [] }];
  for (const what of ['message', 'head']) {
    expect(() => of(asking(messages))).toThrow(`no ${what}`);
    broken.delete(what);
  }
  expect(read(of(asking(messages)))).toEqual(['user 0', 'assistant 1']);
});
