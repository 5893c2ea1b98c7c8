import { createServer } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { systemClock, userText, type Message, type ModelReply } from '@treadle/core';
import { answer, answering } from '../../test/fetches.ts';
import { text } from '../../test/parts.ts';
import { asked, readBody } from '../../test/request.ts';
import { chunk, DONE } from '../../test/scripted-server.ts';
import { ollama } from '../ollama/ollama.ts';
import { openaiChat, openaiChatProtocol } from '../openai-chat/openai-chat.ts';
import { fetchSend } from './fetch.ts';
import { addressOf, type Answer, type Send } from './send.ts';
import { exchange, type Asked } from './transport.ts';

const STREAM = chunk({ content: 'Hel' }) + chunk({ content: 'lo' }, 'stop') + DONE;
const WHOLE = JSON.stringify({ choices: [{ index: 0, message: { content: 'Hello' }, finish_reason: 'stop' }] });
const LINES = ['Hel', 'lo'].map((content, at) => JSON.stringify({ message: { content }, done: at === 1 }));
const LAST = JSON.stringify({ message: { content: 'Hello' }, done: true });

const said = { type: 'reply', content: [text('Hello')], finish: 'stop' };

describe('what an answer is shows in how it begins, whatever it calls itself', () => {
  test.each([
    ['events as JSON', STREAM, 'application/json', {}],
    ['events as JSON where none were asked for', STREAM, 'application/json', { stream: false }],
    ['events after a BOM, a blank line and a comment', `\uFEFF\n: hello\n\n${STREAM}`, 'application/json', {}],
    ['events as a text', STREAM, 'text/plain', {}],
    ['a whole answer after a BOM', `\uFEFF${WHOLE}`, 'application/json', {}],
    ['a whole answer after blank lines', `\n\n  ${WHOLE}\n`, 'text/plain', {}],
    ['a whole answer over lines', JSON.stringify(JSON.parse(WHOLE), null, 2), 'application/json', { stream: false }],
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
    ['lines without a name', LINES.join('\r\n'), '', {}, 2],
    ['a whole answer', LAST, 'application/json', {}, 0],
    ['a whole answer as asked for', `\uFEFF${LAST}\n`, 'application/json', { stream: false }, 0],
    ['a whole answer over lines', JSON.stringify(JSON.parse(LAST), null, 2), 'application/json', {}, 0],
  ])('Ollama: %s', async (_, body, type, options, count) => {
    const { fetch } = answering(answer(body, type));
    const { reply, deltas } = await asked(ollama({ model: 'm', maxRetries: 0, fetch, ...options }));
    expect(reply).toMatchObject(said);
    expect(deltas).toHaveLength(count);
  });

  test('what is neither is told in its own words', async () => {
    const { fetch } = answering(answer('upstream connect error', 'text/plain'));
    const { reply } = await asked(openaiChat({ model: 'm', maxRetries: 0, fetch }));
    expect(reply).toMatchObject({
      type: 'failure',
      error: { code: 'protocol', message: expect.stringContaining('upstream connect error') },
    });
  });
});

/** One exchange in which `speak` says what comes. */
function exchanged(speak: (answer: Answer) => void, own: Partial<Asked> = {}): Promise<ModelReply> {
  const send: Send = (_, answer) => {
    queueMicrotask(() => speak(answer));
    return { hangUp() {} };
  };
  const post = { to: addressOf(new URL('http://host.test/v1'), {}), body: new Uint8Array() };
  const timeouts = { headers: 60_000, idle: 60_000 };
  const protocol = openaiChatProtocol({ model: 'm', stream: true });
  return exchange(
    { protocol, stream: true, send, clock: systemClock, timeouts },
    { post, emit: () => {}, signal: new AbortController().signal, finished: (reply) => reply, ...own },
  );
}

function speakStream(answer: Answer): void {
  answer.head(200, () => 'text/event-stream');
  answer.data(Buffer.from(STREAM));
  answer.end();
}

test('an exchange that cannot be finished fails instead of waiting for ever', async () => {
  const finished = (reply: ModelReply): ModelReply => {
    if (reply.type === 'reply') throw new Error('no price');
    return reply;
  };
  expect(await exchanged(speakStream, { finished })).toMatchObject({
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('no price') },
  });
});

test('a listener whose promise rejects is waited for no longer', async () => {
  let waits: unknown;
  const emit = (): Promise<void> => Promise.reject(new Error('gone'));
  const reply = await exchanged(
    async (answer) => {
      answer.head(200, () => 'text/event-stream');
      await (waits = answer.data(Buffer.from(STREAM)));
      answer.end();
    },
    { emit },
  );
  expect(waits).toBeInstanceOf(Promise);
  expect(reply).toMatchObject(said);
});

test.each(['application/json', 'text/event-stream'])(
  'an answer that is too much for memory fails: %s',
  async (type) => {
    const piece = new Uint8Array(90 * 1024 * 1024).fill(0x20);
    const reply = await exchanged((answer) => {
      answer.head(200, (name) => (name === 'content-type' ? type : undefined));
      for (let count = 0; count < 3; count++) answer.data(piece);
    });
    expect(reply).toEqual({
      type: 'failure',
      error: {
        code: 'protocol',
        message: 'host.test sent more than 256 MB in one answer, and the rest was not read.',
        retryable: false,
      },
    });
  },
);

test.each([
  ['another protocol', 'SSH-2.0-OpenSSH_9.9\r\n', 'Expected HTTP/'],
  ['broken pieces', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\nabc', 'chunk size'],
])('who does not speak HTTP is not misunderstood for being away: %s', async (_, bytes, words) => {
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
        error: { code: 'protocol', message: expect.stringContaining(words), retryable: true },
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

test('no request waits behind one that was answered before it was read', async () => {
  await using host = await hastyHost('200 OK', WHOLE);
  const model = openaiChat({ model: 'm', baseURL: host.url, maxRetries: 0, timeouts: { headers: 5_000 } });
  const messages: Message[] = [userText('x'.repeat(16_000_000))];
  for (let turn = 0; turn < 3; turn++) {
    expect((await asked(model, { messages })).reply).toMatchObject(said);
    messages.push(userText('more'));
  }
});

test('a fetch that keeps what it was given still has it when the next turn has been written', async () => {
  const kept: Uint8Array[] = [];
  const model = openaiChat({
    model: 'm',
    fetch: async (_, init) => {
      kept.push(init!.body as Uint8Array);
      return answer(WHOLE, 'application/json');
    },
  });
  const messages: Message[] = [];
  for (const words of ['one', 'two', 'three']) {
    messages.push(userText(words));
    await asked(model, { messages });
  }
  const counts = kept.map((body) => (readBody(body)['messages'] as unknown[]).length);
  expect(counts).toEqual([1, 2, 3]);
});

test.each(['before its answer', 'in the middle of it'])(
  'a fetch that takes no notice of its signal is left with nothing open: %s',
  async (when) => {
    const cancelled = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<Response>();
    const body = new ReadableStream<Uint8Array>({ cancel: () => cancelled.resolve() });
    const response = new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    const heard: string[] = [];
    const sent = fetchSend(() => answered.promise)(
      { to: addressOf(new URL('http://host.test'), {}), body: new Uint8Array() },
      {
        head: (status) => {
          heard.push(`${status}`);
          sent.hangUp();
        },
        data: () => void heard.push('data'),
        end: () => heard.push('end'),
        fail: () => heard.push('fail'),
      },
    );
    if (when === 'before its answer') sent.hangUp();
    answered.resolve(response);
    await cancelled.promise;
    expect(heard).toEqual(when === 'before its answer' ? [] : ['200']);
  },
);
