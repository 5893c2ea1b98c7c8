import { createServer } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { describe, expect, test, vi } from 'vitest';
import { systemClock, userText, type Message, type ModelReply } from '@treadle/core';
import { answer, answering } from '../../test/fetches.ts';
import { text } from '../../test/parts.ts';
import { asked, readBody } from '../../test/request.ts';
import { chunk, DONE } from '../../test/scripted-server.ts';
import { ollama } from '../ollama/ollama.ts';
import { openaiChat, openaiChatProtocol } from '../openai-chat/openai-chat.ts';
import { addressOf, fetchSend, type AnswerHandler, type Send } from './send.ts';
import { exchange, type ExchangeOptions } from './transport.ts';

const STREAM = chunk({ content: 'Hel' }) + chunk({ content: 'lo' }, 'stop') + DONE;
const WHOLE = JSON.stringify({ choices: [{ index: 0, message: { content: 'Hello' }, finish_reason: 'stop' }] });
const LINES = ['Hel', 'lo'].map((content, at) => JSON.stringify({ message: { content }, done: at === 1 }));
const LAST = JSON.stringify({ message: { content: 'Hello' }, done: true });

const said = { type: 'reply', content: [text('Hello')], finish: 'stop' };

describe('detects a stream by the start of the body, whatever the content type', () => {
  test.each([
    ['events as JSON', STREAM, 'application/json', {}],
    ['events as JSON though no stream was asked for', STREAM, 'application/json', { stream: false }],
    ['events after a BOM, a blank line and a comment', `\uFEFF\n: hello\n\n${STREAM}`, 'application/json', {}],
    ['events as text', STREAM, 'text/plain', {}],
    ['a whole answer after a BOM', `\uFEFF${WHOLE}`, 'application/json', {}],
    ['a whole answer after blank lines', `\n\n  ${WHOLE}\n`, 'text/plain', {}],
    [
      'a whole answer on several lines',
      JSON.stringify(JSON.parse(WHOLE), null, 2),
      'application/json',
      { stream: false },
    ],
  ])('Chat Completions: %s', async (_, body, type, options) => {
    for (const pieces of [[body], [...body]]) {
      const fetch = async (): Promise<Response> => {
        const chunks = ReadableStream.from(pieces.map((piece) => new TextEncoder().encode(piece)));
        return new Response(chunks, { headers: { 'content-type': type } });
      };
      const { reply } = await asked(openaiChat({ model: 'm', maxRetries: 0, fetch, ...options }));
      expect(reply).toMatchObject(said);
    }
  });

  test.each([
    ['lines as JSON', `${LINES.join('\n')}\n`, 'application/json; charset=utf-8', {}, 2],
    ['lines without a content type', LINES.join('\r\n'), '', {}, 2],
    ['a whole answer', LAST, 'application/json', {}, 0],
    ['a whole answer if no stream was asked for', `\uFEFF${LAST}\n`, 'application/json', { stream: false }, 0],
    ['a whole answer on several lines', JSON.stringify(JSON.parse(LAST), null, 2), 'application/json', {}, 0],
  ])('Ollama: %s', async (_, body, type, options, count) => {
    const { fetch } = answering(answer(body, type));
    const { reply, deltas } = await asked(ollama({ model: 'm', maxRetries: 0, fetch, ...options }));
    expect(reply).toMatchObject(said);
    expect(deltas).toHaveLength(count);
  });

  test('reports the text of an answer that is neither', async () => {
    const { fetch } = answering(answer('upstream connect error', 'text/plain'));
    const { reply } = await asked(openaiChat({ model: 'm', maxRetries: 0, fetch }));
    expect(reply).toMatchObject({
      type: 'failure',
      error: { code: 'protocol', message: expect.stringContaining('upstream connect error') },
    });
  });
});

/** One exchange in which `respond` sends the answer. */
function exchanged(respond: (handler: AnswerHandler) => void, own: Partial<ExchangeOptions> = {}): Promise<ModelReply> {
  const send: Send = (_, handler) => {
    queueMicrotask(() => respond(handler));
    return { abort() {} };
  };
  const post = { to: addressOf(new URL('http://host.test/v1'), {}), body: new Uint8Array() };
  const timeouts = { headers: 60_000, idle: 60_000 };
  const protocol = openaiChatProtocol({ model: 'm', stream: true });
  return exchange(
    { protocol, stream: true, send, clock: systemClock, timeouts },
    { post, tools: [], emit: () => {}, signal: new AbortController().signal, finishReply: (reply) => reply, ...own },
  );
}

function respondWithStream(handler: AnswerHandler): void {
  handler.onHead(200, () => 'text/event-stream');
  handler.onData(Buffer.from(STREAM));
  handler.onEnd();
}

test('fails if the reply cannot be finished, instead of waiting for ever', async () => {
  const finishReply = (reply: ModelReply): ModelReply => {
    if (reply.type === 'reply') throw new Error('no price');
    return reply;
  };
  expect(await exchanged(respondWithStream, { finishReply })).toMatchObject({
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('no price') },
  });
});

test('stops waiting for a listener whose promise rejects', async () => {
  let waits: unknown;
  const emit = (): Promise<void> => Promise.reject(new Error('closed'));
  const reply = await exchanged(
    async (handler) => {
      handler.onHead(200, () => 'text/event-stream');
      await (waits = handler.onData(Buffer.from(STREAM)));
      handler.onEnd();
    },
    { emit },
  );
  expect(waits).toBeInstanceOf(Promise);
  expect(reply).toMatchObject(said);
});

test.each(['application/json', 'text/event-stream'])(
  'fails an answer that is too large for memory: %s',
  async (type) => {
    const piece = new Uint8Array(90 * 1024 * 1024).fill(0x20);
    // Whole lines, because an event has a limit of its own.
    piece[piece.length - 1] = 0x0a;
    const reply = await exchanged((handler) => {
      handler.onHead(200, (name) => (name === 'content-type' ? type : undefined));
      for (let count = 0; count < 3; count++) handler.onData(piece);
    });
    expect(reply).toEqual({
      type: 'failure',
      error: {
        code: 'protocol',
        message: 'host.test sent more than 128 MB in one answer; the rest was not read.',
        retryable: false,
      },
    });
  },
);

describe('a reply beyond the limits is a failure that is not retried', () => {
  const failure = (what: string): object => ({
    type: 'failure',
    error: {
      code: 'protocol',
      message: `host.test sent ${what} in one reply; the reply was discarded.`,
      retryable: false,
    },
  });
  const sending = (type: string, frames: Iterable<string>, own: Partial<ExchangeOptions> = {}): Promise<ModelReply> =>
    exchanged((handler) => {
      handler.onHead(200, () => type);
      for (const frame of frames) handler.onData(Buffer.from(frame));
      handler.onEnd();
    }, own);
  const callChunk = (index: number, json: string): string =>
    chunk({ tool_calls: [{ index, id: `c${index}`, function: { name: 'add', arguments: json } }] });
  const whole = (message: object): string =>
    JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }] });
  const calls = (count: number, json = '{}'): object[] =>
    Array.from({ length: count }, (_, n) => ({ id: `c${n}`, function: { name: 'add', arguments: json } }));
  const MB = 1024 * 1024;

  test('too many calls, of which the rest is not emitted', async () => {
    let emitted = 0;
    const frames = Array.from({ length: 1_200 }, (_, n) => callChunk(n, '{}'));
    const emit = (): void => void (emitted += 1);
    expect(await sending('text/event-stream', frames, { emit })).toEqual(failure('more than 1000 calls'));
    expect(emitted).toBe(1_000);
    const inOne = chunk({ tool_calls: calls(100_000).map((call, index) => ({ index, ...call })) });
    expect(await sending('text/event-stream', [inOne])).toEqual(failure('more than 1000 calls'));
    expect(await sending('application/json', [whole({ tool_calls: calls(1_001) })])).toEqual(
      failure('more than 1000 calls'),
    );
  });

  test('1,000 calls are accepted', async () => {
    expect(await sending('application/json', [whole({ tool_calls: calls(1_000) })])).toMatchObject({ type: 'reply' });
  });

  test('arguments that are too long, also in mixed pieces', async () => {
    const piece = 'x'.repeat(MB);
    const long = failure('arguments of more than 4194304 characters');
    expect(
      await sending(
        'text/event-stream',
        Array.from({ length: 5 }, () => callChunk(0, piece)),
      ),
    ).toEqual(long);
    const mixed = Array.from({ length: 7 }, (_, n) => callChunk(n % 3 === 2 ? 1 : 0, piece));
    const end = chunk({}, 'tool_calls') + DONE;
    expect(await sending('text/event-stream', [...mixed, end])).toEqual(long);
    expect(await sending('application/json', [whole({ tool_calls: calls(1, piece.repeat(5)) })])).toEqual(long);
  });

  test('too much text, and too many parts', async () => {
    const piece = chunk({ content: 'x'.repeat(MB) });
    const endless = Array.from({ length: 65 }, () => piece);
    expect(await sending('text/event-stream', endless)).toEqual(failure('more than 8388608 characters'));
    const parts = Array.from({ length: 6_000 }, () => chunk({ reasoning: 'a' }) + chunk({ content: 'b' })).join('');
    expect(await sending('text/event-stream', [parts + chunk({}, 'stop') + DONE])).toEqual(
      failure('more than 10000 parts'),
    );
  });
});

test.each([
  ['blanks', '\n  \n'],
  ['byte order marks', '\uFEFF'],
])('reads %s before an answer without a content type once', async (_, blank) => {
  const concat = vi.spyOn(Buffer, 'concat');
  try {
    const blanks = Array.from({ length: 500 }, () => Buffer.from(blank));
    const reply = await exchanged((handler) => {
      handler.onHead(200, () => 'text/plain');
      for (const one of blanks) handler.onData(one);
      for (const char of STREAM) handler.onData(Buffer.from(char));
      handler.onEnd();
    });
    expect(reply).toMatchObject(said);
    const copied = concat.mock.calls.reduce((sum, [list]) => sum + list.reduce((size, one) => size + one.length, 0), 0);
    expect(copied).toBeLessThan(2 * (500 * Buffer.byteLength(blank) + STREAM.length));
  } finally {
    concat.mockRestore();
  }
});

test.each([
  ['another protocol', 'SSH-2.0-OpenSSH_9.9\r\n', 'Expected HTTP/'],
  ['broken pieces', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\nabc', 'chunk size'],
])('an answer that is not HTTP is a protocol failure, not a network failure: %s', async (_, bytes, message) => {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(bytes));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    for (const own of [{}, { fetch: globalThis.fetch }]) {
      const { reply } = await asked(openaiChat({ model: 'm', baseURL, maxRetries: 0, ...own }));
      expect(reply).toMatchObject({
        type: 'failure',
        error: { code: 'protocol', message: expect.stringContaining(message), retryable: true },
      });
    }
  } finally {
    server.close();
  }
});

/** Answers every request before it has read it, and reads no more of the connection. */
async function hastyHost(status: string, body: string): Promise<{ readonly url: string } & AsyncDisposable> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}));
    socket.once('data', () => {
      socket.pause();
      const head = `content-type: application/json\r\ncontent-length: ${body.length}`;
      socket.write(`HTTP/1.1 ${status}\r\n${head}\r\n\r\n${body}`);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

test('no request waits behind one that was answered before it was sent completely', async () => {
  await using host = await hastyHost('200 OK', WHOLE);
  const model = openaiChat({ model: 'm', baseURL: host.url, maxRetries: 0, timeouts: { headers: 5_000 } });
  const messages: Message[] = [userText('x'.repeat(16_000_000))];
  for (let turn = 0; turn < 3; turn++) {
    expect((await asked(model, { messages })).reply).toMatchObject(said);
    messages.push(userText('more'));
  }
});

test('a body that a custom fetch stores is not overwritten by the next turn', async () => {
  const stored: Uint8Array[] = [];
  const model = openaiChat({
    model: 'm',
    fetch: async (_, init) => {
      stored.push(init!.body as Uint8Array);
      return answer(WHOLE, 'application/json');
    },
  });
  const messages: Message[] = [];
  for (const input of ['one', 'two', 'three']) {
    messages.push(userText(input));
    await asked(model, { messages });
  }
  const counts = stored.map((body) => (readBody(body)['messages'] as unknown[]).length);
  expect(counts).toEqual([1, 2, 3]);
});

test.each(['before its answer', 'in the middle of it'])(
  'cancels the body of a custom fetch that ignores its signal: %s',
  async (when) => {
    const cancelled = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<Response>();
    const body = new ReadableStream<Uint8Array>({ cancel: () => cancelled.resolve() });
    const response = new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    const received: string[] = [];
    const pending = fetchSend(() => answered.promise)(
      { to: addressOf(new URL('http://host.test'), {}), body: new Uint8Array() },
      {
        onHead: (status) => {
          received.push(`${status}`);
          pending.abort();
        },
        onData: () => void received.push('data'),
        onEnd: () => received.push('end'),
        onFailure: () => received.push('failure'),
      },
    );
    if (when === 'before its answer') pending.abort();
    answered.resolve(response);
    await cancelled.promise;
    expect(received).toEqual(when === 'before its answer' ? [] : ['200']);
  },
);
