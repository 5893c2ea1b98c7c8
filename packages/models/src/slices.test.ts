import { userText, type Message, type ModelRequest } from '@treadle/core';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { asked, bytesOf, request, shell } from '../test/request.ts';
import { anthropicProtocol } from './anthropic/anthropic.ts';
import { bodyWriter, histories, listOfMessages, type WriteBody } from './body.ts';
import { googleProtocol } from './google/google.ts';
import { jsonOf, sliceableJson } from './json.ts';
import { ollamaProtocol } from './ollama/ollama.ts';
import { openaiChat, openaiChatProtocol } from './openai-chat/openai-chat.ts';
import { openaiResponsesProtocol } from './openai-responses/openai-responses.ts';
import { inSlices, pieces } from './slices.ts';

/** More than is written at once. */
const LARGE = 1_100_000;
/** Longer than a slice. */
const LONG = 300_000;

const SAME = request();
const asking = (messages: readonly Message[], overrides: Partial<ModelRequest> = {}): ModelRequest => ({
  ...SAME,
  messages,
  ...overrides,
});
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

/** Writes lists of messages behind the name of a model. */
function writerOf(list = listOfMessages(sliceableJson), name = 'm'): WriteBody {
  return bodyWriter(list, { write: () => `{"model":"${name}","list":[` });
}
const listed = (messages: readonly Message[], model = 'm'): unknown => ({ model, list: messages });
const read = async (body: ReturnType<WriteBody>): Promise<unknown> => JSON.parse(text(await body));

/** Counts the turns of the event loop until the work has ended. */
async function turnsOf(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    if (isDone) return;
    turns += 1;
    setImmediate(count);
  };
  setImmediate(count);
  await work;
  isDone = true;
  return turns;
}

test('the event loop turns while a large request is written', async () => {
  const write = writerOf();
  for (const messages of [
    [userText('x'.repeat(4 * LARGE))],
    Array.from({ length: 4_400 }, (_, n) => userText(`${n}${'x'.repeat(1_000)}`)),
  ]) {
    const body = write(asking(messages));
    expect(await turnsOf(body as Promise<Uint8Array>)).toBeGreaterThanOrEqual(4);
    expect(await read(body)).toEqual(listed(messages));
  }
});

test('a request of normal size is not a promise, also behind a large history', async () => {
  const write = writerOf();
  const messages = [userText('x'.repeat(LARGE))];
  const first = await write(asking(messages));
  messages.push(userText('more'));
  const then = bytesOf(write(asking(messages)));
  expect(then.buffer).toBe(first.buffer);
  expect(await read(then)).toEqual(listed(messages));
});

test('a large message is appended to what is written, and a new head is written before a large history', async () => {
  const serialise = vi.fn<(message: Message) => string>(sliceableJson);
  const write = bodyWriter(listOfMessages(serialise), {
    write: ({ instructions = '' }) => `{"said":${sliceableJson(instructions)},"list":[0`,
  });
  const messages = [userText('a')];
  const body = async (instructions = ''): Promise<unknown> => read(write(asking(messages, { instructions })));
  expect(await body()).toEqual({ said: '', list: [0, ...messages] });
  messages.push(userText('x'.repeat(9 * LARGE)));
  expect(await body()).toEqual({ said: '', list: [0, ...messages] });
  const other = write(asking(messages, { instructions: 'Be brief.' }));
  expect(await turnsOf(other as Promise<Uint8Array>)).toBeGreaterThanOrEqual(3);
  expect(await read(other)).toEqual({ said: 'Be brief.', list: [0, ...messages] });
  const long = 'ø'.repeat(LARGE);
  expect(await body(long)).toEqual({ said: long, list: [0, ...messages] });
  expect(serialise).toHaveBeenCalledTimes(2);
});

test('texts that need many bytes for a character fit', async () => {
  const messages = [userText('\u0001'.repeat(LARGE)), userText('文'.repeat(LARGE))];
  expect(await read(writerOf()(asking(messages)))).toEqual(listed(messages));
});

test('slices of any value are the bytes of its JSON', async () => {
  const units = fc.constantFrom(
    'x',
    '"',
    '\\',
    '\n',
    '\u0001',
    'ø',
    '文',
    '🌨️',
    '\ud83d',
    '\udc00',
    '\\ud800',
    '\u2028',
  );
  const longText = fc
    .tuple(fc.array(units, { minLength: 1, maxLength: 9 }), fc.nat(40))
    .map(([list, more]) => list.join('').repeat(Math.ceil((LONG + more) / list.join('').length)));
  const short = fc.oneof(fc.string({ unit: 'binary' }), fc.integer(), fc.constant(null));
  const value = fc.dictionary(fc.string(), fc.oneof(short, longText, fc.array(short)), { maxKeys: 4 });
  await fc.assert(
    fc.asyncProperty(value, longText, async (value, long) => {
      const written = await inSlices(undefined, async (slices) => {
        const json = pieces();
        const output = { bytes: Buffer.alloc(0), to: 0 };
        await slices.add(json, Infinity, () => `[${sliceableJson(value)},${sliceableJson([long])}]`);
        await slices.write(output, json);
        return text(output.bytes.subarray(0, output.to));
      });
      expect(written === `[${jsonOf(value)},${jsonOf([long])}]`).toBe(true);
    }),
    { numRuns: 10 },
  );
});

const signer = 's';
const PROTOCOLS: readonly (readonly [string, () => WriteBody])[] = [
  ['openai-chat', () => openaiChatProtocol({ model: 'm', stream: true, signer, reasoning: 'reasoning_content' }).body],
  [
    'openai-responses',
    () =>
      openaiResponsesProtocol({
        model: 'm',
        stream: true,
        store: false,
        encryptedReasoning: false,
        strict: false,
        signer,
      }).body,
  ],
  [
    'anthropic',
    () =>
      anthropicProtocol({
        model: 'm',
        stream: true,
        cache: true,
        signer,
        thinking: 'budget',
        thinksByDefault: false,
        sampling: true,
        forcedTools: true,
      }).body,
  ],
  ['google', () => googleProtocol({ model: 'm', thinking: 'level', signer, stream: true }).body],
  ['ollama', () => ollamaProtocol({ model: 'm', stream: true }).body],
];

/** Every kind of part, most of them longer than a slice. */
function longHistory(): Message[] {
  const long = `"${'a\n🌨️'.repeat(55_000)} `;
  const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'A'.repeat(LONG) } } as const;
  const file = { ...image, type: 'file', mediaType: 'application/pdf', name: 'a.pdf' } as const;
  const call = { type: 'tool-call', name: 'shell' } as const;
  const result = { type: 'tool-result', name: 'shell', isError: false } as const;
  return [
    userText(long),
    { role: 'user', content: [{ type: 'text', text: long }, image, file] },
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: long },
        { type: 'text', text: long },
        { ...call, id: 'c1', arguments: JSON.stringify({ command: long }) },
      ],
    },
    { role: 'tool', content: [{ ...result, callId: 'c1', content: [{ type: 'text', text: long }, image] }] },
    {
      role: 'assistant',
      content: [
        { ...call, id: 'c2', arguments: `{"cut":"${'off'.repeat(90_000)}` },
        { ...call, id: 'c3', arguments: JSON.stringify({ input: long }), custom: true },
      ],
    },
    {
      role: 'tool',
      content: ['c2', 'c3'].map((callId) => ({
        ...result,
        callId,
        content: [{ type: 'error', text: `Error: ${long}` }],
        isError: true,
      })),
    },
    { role: 'assistant', content: [{ type: 'text', text: `${long} ` }] },
  ];
}

test.each(PROTOCOLS)('in slices the request of %s has the same bytes', async (_, protocol) => {
  const overrides = { tools: [shell], instructions: 'i'.repeat(LONG) };
  const all = longHistory();
  // Message by message, none of which is large.
  const messages: Message[] = [];
  let whole = '';
  const write = protocol();
  for (const message of all) {
    messages.push(message);
    whole = text(bytesOf(write(asking(messages, overrides))));
  }
  const sliced = protocol()(asking([...all], overrides));
  expect(sliced).toBeInstanceOf(Promise);
  expect(text(await sliced) === whole).toBe(true);
});

describe('requests at the same time', () => {
  test('models that share a history each get their own head, and the history is serialised once', async () => {
    const serialise = vi.fn<(message: Message) => string>(sliceableJson);
    const list = listOfMessages(serialise);
    const [one, two] = ['one', 'two'].map((name) => writerOf(list, name));
    const messages = [userText('a'), userText('x'.repeat(2 * LARGE)), userText('b')];
    const bodies = [one!, two!, one!, two!].map((write) => write(asking(messages)));
    const names = (await Promise.all(bodies)).map((body) => (JSON.parse(text(body)) as { model: string }).model);
    expect(names).toEqual(['one', 'two', 'one', 'two']);
    for (const body of bodies) expect(await read(body)).toMatchObject({ list: messages });
    expect(serialise).toHaveBeenCalledTimes(3);
  });

  test('a history of normal size does not wait for a large one', async () => {
    const write = writerOf();
    const large = write(asking([userText('x'.repeat(LARGE))]));
    const messages = [userText('small')];
    expect(text(bytesOf(write(asking(messages))))).toBe(JSON.stringify(listed(messages)).replace('[', '[ '));
    await large;
  });

  test('large histories are written one after another', async () => {
    const order: string[] = [];
    const write = writerOf(
      listOfMessages((message) => {
        order.push((message.content[0] as { text: string }).text.slice(0, 1));
        return sliceableJson(message);
      }),
    );
    const large = (name: string): Message[] => [1, 2, 3].map(() => userText(name.repeat(LARGE)));
    await Promise.all(['a', 'b', 'c'].map((name) => write(asking(large(name)))));
    expect(order.join('')).toBe('aaabbbccc');
  });
});

describe('a request that is not completed', () => {
  test('is written from the beginning after its serialiser has thrown', async () => {
    let isBroken = true;
    const form = histories({
      start: () => ({ count: 0 }),
      write(message, state) {
        if (message.role === 'assistant' && isBroken) throw new Error('no message');
        return `,${sliceableJson([state.count++, message.content])}`;
      },
      close: () => ']',
    });
    const write = bodyWriter(form, { write: () => '[' });
    const messages: Message[] = [userText('x'.repeat(LARGE)), { role: 'assistant', content: [] }];
    const failing = write(asking(messages)) as Promise<Uint8Array>;
    const next = write(asking(messages)) as Promise<Uint8Array>;
    await expect(failing).rejects.toThrow('no message');
    await expect(next).rejects.toThrow('no message');
    isBroken = false;
    expect(await read(write(asking(messages)))).toEqual(messages.map(({ content }, index) => [index, content]));
  });

  test('stops at the next turn when it is aborted, and leaves nothing behind', async () => {
    const write = writerOf();
    const messages = [userText('a'), userText('x'.repeat(4 * LARGE)), userText('b')];
    const cancel = new AbortController();
    const aborted = write(asking(messages), cancel.signal) as Promise<Uint8Array>;
    const other = write(asking(messages));
    setImmediate(() => setImmediate(() => cancel.abort(new Error('stop'))));
    await expect(aborted).rejects.toThrow('stop');
    messages.push(userText('c'));
    expect(await read(write(asking(messages)))).toEqual(listed(messages));
    await other;
  });

  test('does not wait for others when it is aborted', async () => {
    const write = writerOf();
    const first = write(asking([userText('x'.repeat(4 * LARGE))])) as Promise<Uint8Array>;
    const cancel = new AbortController();
    const waiting = write(asking([userText('y'.repeat(LARGE))]), cancel.signal) as Promise<Uint8Array>;
    const last = write(asking([userText('z'.repeat(LARGE))])) as Promise<Uint8Array>;
    const ended: string[] = [];
    void first.then(() => ended.push('first'));
    setImmediate(() => cancel.abort(new Error('stop')));
    await expect(waiting).rejects.toThrow('stop');
    expect(ended).toEqual([]);
    expect(await read(last)).toEqual(listed([userText('z'.repeat(LARGE))]));
    expect(ended).toEqual(['first']);
  });

  test('is a failure of the model', async () => {
    const fetch = vi.fn<typeof globalThis.fetch>();
    const model = openaiChat({ model: 'm', apiKey: 'k', fetch });
    const cancel = new AbortController();
    const cancelled = asked(model, { messages: [userText('x'.repeat(LARGE))] }, cancel.signal);
    cancel.abort();
    expect((await cancelled).reply).toMatchObject({ type: 'failure', error: { code: 'cancelled' } });
    const content = [{ type: 'text', text: 'x'.repeat(LARGE) }, { type: 'file' }] as never;
    const broken = await asked(model, { messages: [{ role: 'user', content }] });
    expect(broken.reply).toMatchObject({ error: { retryable: false, message: /could not be written/ } });
    expect(fetch).not.toHaveBeenCalled();
  });
});
