import { execFile } from 'node:child_process';
import { getEventListeners, once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { promisify } from 'node:util';
import { TreadleError, userText, type Message, type ModelDelta, type ModelRequest } from '@treadle/core';
import { expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { answering } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked, request, type Asked } from '../../test/request.ts';
import * as server from '../../test/scripted-server.ts';
import { DONE, chunk, says, scriptedServer } from '../../test/scripted-server.ts';
import { openaiChat, type OpenAiChatOptions } from './openai-chat.ts';

const KEY = 'sk-test-51Nb2xQ9vT7mZ';

async function ask(
  options: Partial<OpenAiChatOptions> & { baseURL: string },
  given: Partial<ModelRequest> = {},
): Promise<Asked> {
  const answer = await asked(openaiChat({ model: 'm', apiKey: KEY, ...options }), given);
  expect(JSON.stringify(answer.reply)).not.toContain(KEY);
  return answer;
}

const errorOf = ({ reply }: Asked): unknown => (reply.type === 'failure' ? reply.error : reply);
const hello = {
  type: 'reply',
  content: [{ type: 'text', text: 'Hello' }],
  finish: 'stop',
  rawFinish: 'stop',
  usage: { inputTokens: 0, outputTokens: 0 },
  model: 'm-2025',
};

// ── What is sent and what comes back ─────────────────────────────────────────────────────────────────────────────────

test('a streamed reply, and the request as the server saw it', async () => {
  await using host = await scriptedServer(says('Hello'));
  const { reply, deltas } = await ask({ baseURL: `${host.url}/`, headers: { 'X-Team': 'a' } });
  expect(reply).toEqual({ ...hello, attempts: [{ model: 'm-2025', ms: expect.any(Number) }] });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hello' }]);
  expect(host.seen).toMatchObject([
    {
      path: '/v1/chat/completions',
      headers: {
        authorization: `Bearer ${KEY}`,
        'content-type': 'application/json',
        accept: 'text/event-stream',
        'x-team': 'a',
      },
      body: { model: 'm', messages: [{ role: 'user', content: 'hi' }], stream: true },
    },
  ]);
});

test('without a key no authorization is sent; a header of the user wins; a query stays', async () => {
  await using host = await scriptedServer(says('Hello'), says('Hello'));
  const model = openaiChat({ model: 'm', baseURL: host.url });
  await model.reply(request(), () => {}, new AbortController().signal);
  await ask({ baseURL: `${host.url}/deployments/x?api-version=2024-10-21`, headers: { Authorization: 'Basic eDp5' } });
  expect(host.seen[0]!.headers).not.toHaveProperty('authorization');
  expect(host.seen[1]).toMatchObject({
    path: '/v1/deployments/x/chat/completions?api-version=2024-10-21',
    headers: { authorization: 'Basic eDp5' },
  });
});

test('a whole reply: asked for, and unasked for', async () => {
  const whole = fixtures()('openai-whole.json').toString();
  await using host = await scriptedServer(
    server.status(200, whole),
    server.status(200, whole),
    server.status(200, whole, { 'content-type': 'text/plain' }),
  );
  const asked = await ask({ baseURL: host.url, stream: false });
  const unasked = await ask({ baseURL: host.url });
  const untyped = await ask({ baseURL: host.url, stream: false });
  for (const { reply, deltas } of [asked, unasked, untyped]) {
    expect(reply).toMatchObject({ type: 'reply', finish: 'tool-calls', usage: { reasoningTokens: 5 } });
    expect(deltas).toEqual([]);
  }
  expect(host.seen[0]).toMatchObject({ headers: { accept: 'application/json' }, body: { stream: false } });
});

test('a stream without a content type, and one that is cut into bytes', async () => {
  const text = chunk({ content: 'Grüße 🌨️' }) + chunk({}, 'stop') + DONE;
  await using host = await scriptedServer(
    (response) => {
      response.writeHead(200);
      response.end(text);
    },
    server.stream(...[...Buffer.from(text)].map((byte) => Uint8Array.of(byte))),
  );
  for (let n = 0; n < 2; n++) {
    expect(await ask({ baseURL: host.url })).toMatchObject({
      reply: { content: [{ type: 'text', text: 'Grüße 🌨️' }] },
      deltas: [{ type: 'text-delta', text: 'Grüße 🌨️' }],
    });
  }
});

test('a conversation of many turns: the bodies are valid, the connection is one', async () => {
  const turns = 20;
  const called = server.stream(
    chunk({ tool_calls: [{ index: 0, id: 'c', function: { name: 'now', arguments: '' } }] }),
    chunk({}, 'tool_calls'),
    DONE,
  );
  await using host = await scriptedServer(...Array.from({ length: turns }, () => called), says('Hello'));
  const model = openaiChat({ model: 'm', baseURL: host.url, maxRetries: 0 });
  const tools = [{ name: 'now', description: 'The time', parameters: { type: 'object', properties: {} } }];
  const messages: Message[] = [userText('hi')];
  for (let turn = 0; ; turn++) {
    const reply = await model.reply(request({ messages, tools }), () => {}, new AbortController().signal);
    if (reply.type === 'failure') throw new Error(reply.error.message);
    if (reply.finish === 'stop') break;
    const id = `c${turn}`;
    messages.push({ role: 'assistant', content: [{ type: 'tool-call', id, name: 'now', arguments: '{}' }] });
    messages.push({
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: id,
          name: 'now',
          content: [{ type: 'text', text: 'x'.repeat(9_000) }],
          isError: false,
        },
      ],
    });
  }
  expect(host.seen).toHaveLength(turns + 1);
  expect(host.seen.at(-1)!.body).toMatchObject({ messages: { length: 1 + 2 * turns } });
  expect(host.connections).toBe(1);
});

test('a body of many megabytes arrives, and an answer before it was read is heard', async () => {
  const messages = [userText('ø'.repeat(4_000_000))];
  await using host = await scriptedServer(
    says('Hello'),
    server.early(server.status(401, { error: { message: 'no' } })),
    says('Hello'),
  );
  expect((await ask({ baseURL: host.url }, { messages })).reply).toMatchObject(hello);
  expect(host.seen[0]!.body).toMatchObject({ messages: [{ content: 'ø'.repeat(4_000_000) }] });
  expect(errorOf(await ask({ baseURL: host.url }, { messages }))).toMatchObject({ code: 'auth' });
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
});

test('64 requests at once', async () => {
  await using host = await scriptedServer(...Array.from({ length: 64 }, () => says('Hello')));
  const all = await Promise.all(Array.from({ length: 64 }, () => ask({ baseURL: host.url })));
  for (const { reply } of all) expect(reply).toMatchObject(hello);
  expect(host.connections).toBe(64);
});

test("the user's own fetch", async () => {
  await using host = await scriptedServer(says('Hello'), server.status(401, { error: { message: `bad ${KEY}` } }));
  const urls: string[] = [];
  const own: typeof fetch = (input, init) => {
    urls.push(String(input));
    return fetch(input, init);
  };
  expect((await ask({ baseURL: host.url, fetch: own })).reply).toMatchObject(hello);
  expect(errorOf(await ask({ baseURL: host.url, fetch: own }))).toMatchObject({ code: 'auth', status: 401 });
  expect(urls).toEqual([`${host.url}/chat/completions`, `${host.url}/chat/completions`]);
  const broken: typeof fetch = () => Promise.reject(new TypeError('fetch failed', { cause: new Error(`no ${KEY}`) }));
  expect(errorOf(await ask({ baseURL: host.url, fetch: broken, maxRetries: 0 }))).toMatchObject({
    code: 'network',
    message: expect.stringContaining('no [redacted]'),
  });
});

// ── Failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────

test('401: not retried, the words kept, the key not', async () => {
  await using host = await scriptedServer(
    server.status(401, { error: { message: `Incorrect API key: ${KEY}. See docs.` } }),
  );
  expect(errorOf(await ask({ baseURL: host.url }))).toEqual({
    code: 'auth',
    message: 'The provider answered 401: Incorrect API key: [redacted]. See docs.',
    retryable: false,
    status: 401,
  });
  expect(host.seen).toHaveLength(1);
});

test('401 without a key says that there was none', async () => {
  await using host = await scriptedServer(server.status(401, { error: { message: 'Who are you?' } }));
  const reply = await openaiChat({ model: 'm', baseURL: host.url }).reply(
    request(),
    () => {},
    new AbortController().signal,
  );
  expect(reply).toMatchObject({ error: { message: 'The provider answered 401: Who are you? (No key was given.)' } });
});

test('429: retried after as long as the server asks for', async () => {
  const busy = { error: { message: 'slow down', code: 'rate_limit_exceeded' } };
  await using host = await scriptedServer(
    server.status(429, busy, { 'retry-after': '7' }),
    server.status(429, busy, { 'retry-after-ms': '1500', 'retry-after': '9' }),
    says('Hello'),
  );
  const clock = hurriedClock();
  const { reply } = await ask({ baseURL: host.url, clock, random: () => 0 });
  const error = { code: 'rate-limit', message: 'The provider answered 429: slow down', retryable: true, status: 429 };
  expect(reply).toEqual({
    ...hello,
    attempts: [
      { model: 'm', ms: 0, error: { ...error, retryAfterMs: 7_000 } },
      { model: 'm', ms: 0, error: { ...error, retryAfterMs: 1_500 } },
      { model: 'm-2025', ms: expect.any(Number) },
    ],
  });
  expect(clock.waits.slice(0, 2)).toEqual([7_000, 1_500]);
});

test('429 that asks for more than a minute is not waited for', async () => {
  await using host = await scriptedServer(server.status(429, {}, { 'retry-after': '3600' }));
  expect((await ask({ baseURL: host.url })).reply).toMatchObject({
    error: { retryAfterMs: 3_600_000 },
    attempts: { length: 1 },
  });
});

test('500: tried three times in all, each longer after the one before', async () => {
  const fault = server.status(500, { error: { message: 'boom', type: 'server_error' } });
  await using host = await scriptedServer(fault, fault, fault, says('never'));
  const clock = hurriedClock();
  const { reply } = await ask({ baseURL: host.url, clock, random: () => 0.5 });
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'overloaded', status: 500 }, attempts: { length: 3 } });
  expect(clock.waits).toEqual([375, 750]);
  expect(host.seen).toHaveLength(3);
});

test('maxRetries: 0 tries once', async () => {
  await using host = await scriptedServer(server.status(503, {}));
  expect((await ask({ baseURL: host.url, maxRetries: 0 })).reply).toMatchObject({ attempts: { length: 1 } });
});

test('the server says nothing: timeout', async () => {
  await using host = await scriptedServer(server.silence);
  expect(errorOf(await ask({ baseURL: host.url, maxRetries: 0, timeouts: { headers: 30 } }))).toMatchObject({
    code: 'timeout',
    message: expect.stringContaining('no answer within 0.03 s'),
    retryable: true,
  });
  await host.quiet();
});

test.each([
  ['dispatch', undefined],
  ['fetch', fetch],
])('a stream stalls after visible output: timeout, told and not retried (%s)', async (_how, own) => {
  await using host = await scriptedServer(server.stall(chunk({ content: 'Hel' })), says('never'));
  const { reply, deltas } = await ask({ baseURL: host.url, timeouts: { idle: 30 }, ...(own && { fetch: own }) });
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'timeout' }, attempts: { length: 1 } });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
  await host.quiet();
});

test('a stream that stalls before anything is visible is tried again', async () => {
  await using host = await scriptedServer(
    server.stall(': comment\n\n', chunk({ role: 'assistant', content: '' })),
    says('Hello'),
  );
  const { reply } = await ask({ baseURL: host.url, timeouts: { idle: 30 }, random: () => 0 });
  expect(reply).toMatchObject({ ...hello, attempts: [{ error: { code: 'timeout' } }, { model: 'm-2025' }] });
});

test('a stream is reset after visible output: network, not retried', async () => {
  await using host = await scriptedServer(server.reset(chunk({ content: 'Hel' })), says('never'));
  const { reply, deltas } = await ask({ baseURL: host.url });
  expect(reply).toMatchObject({
    type: 'failure',
    error: { code: 'network', retryable: true },
    attempts: { length: 1 },
  });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
});

test('a stream is reset before visible output: tried again', async () => {
  await using host = await scriptedServer(server.reset(), says('Hello'));
  expect((await ask({ baseURL: host.url, clock: hurriedClock() })).reply).toMatchObject({
    ...hello,
    attempts: { length: 2 },
  });
});

test('a garbage frame', async () => {
  await using host = await scriptedServer(server.stream('data: {"choices":[{"delta":{"con\n\n', DONE));
  expect(errorOf(await ask({ baseURL: host.url, maxRetries: 0 }))).toMatchObject({ code: 'protocol', retryable: true });
});

test('a frame of an unheard-of shape', async () => {
  await using host = await scriptedServer(server.stream('data: {"choices":[{"delta":{"content":[null]}}]}\n\n', DONE));
  expect(errorOf(await ask({ baseURL: host.url, maxRetries: 0 }))).toMatchObject({
    code: 'protocol',
    message: expect.stringContaining('cut off'),
  });
});

test('a stream that ends without a finish reason, with and without [DONE]', async () => {
  await using host = await scriptedServer(
    server.stream(chunk({ content: 'Hel' })),
    server.stream(chunk({ content: 'Hel' }), DONE),
  );
  for (let n = 0; n < 2; n++) {
    expect(errorOf(await ask({ baseURL: host.url }))).toMatchObject({
      code: 'protocol',
      message: expect.stringContaining('cut off'),
    });
  }
});

test('the wrong content type', async () => {
  const page = '<html><body>Please log in</body></html>';
  await using host = await scriptedServer(server.status(200, page, { 'content-type': 'text/html' }));
  expect(errorOf(await ask({ baseURL: host.url }))).toMatchObject({
    code: 'protocol',
    message: expect.stringContaining('Check the base URL'),
    retryable: false,
  });
});

test('200 with an error body, and an error frame in a stream', async () => {
  const error = { error: { message: `no ${KEY}`, type: 'authentication_error' } };
  await using host = await scriptedServer(
    server.status(200, error),
    server.stream(`data: ${JSON.stringify(error)}\n\n`),
  );
  for (let n = 0; n < 2; n++) {
    expect(errorOf(await ask({ baseURL: host.url }))).toEqual({
      code: 'auth',
      message: 'The provider broke off with an error: no [redacted]',
      retryable: false,
    });
  }
});

test('a redirect is not followed', async () => {
  await using host = await scriptedServer(
    server.status(308, '', { location: 'https://elsewhere.example/v1?token=abc' }),
  );
  expect(errorOf(await ask({ baseURL: host.url }))).toMatchObject({
    code: 'protocol',
    message: expect.stringMatching(/redirects to https:\/\/elsewhere\.example\/v1,/),
  });
});

test('an endless error page is read only so far', async () => {
  await using host = await scriptedServer((response) => {
    response.writeHead(500, { 'content-type': 'text/plain' });
    const more = (): void => {
      while (response.write('x'.repeat(65_536)));
    };
    response.on('drain', more);
    more();
  });
  const error = errorOf(await ask({ baseURL: host.url, maxRetries: 0 })) as { message: string };
  expect(error.message.length).toBeLessThan(2_100);
  await host.quiet();
});

test('nobody listens', async () => {
  let url: string;
  {
    await using host = await scriptedServer();
    url = host.url;
  }
  expect(errorOf(await ask({ baseURL: url, maxRetries: 0 }))).toMatchObject({
    code: 'network',
    message: expect.stringMatching(/ECONNREFUSED.*base URL/),
    retryable: true,
  });
});

test('names of headers count in any case', async () => {
  await using host = await scriptedServer(
    server.status(429, { error: { message: 'slow down' } }, { 'Retry-After': '7', 'Content-Type': 'APPLICATION/JSON' }),
  );
  const { reply } = await asked(openaiChat({ model: 'm', baseURL: host.url, maxRetries: 0 }));
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'rate-limit', retryAfterMs: 7_000 } });
});

test('the server closes idle connections: the next request makes a new one', async () => {
  await using host = await scriptedServer((response, request) => {
    response.shouldKeepAlive = false;
    says('Hello')(response, request);
  }, says('Hello'));
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
  expect((await ask({ baseURL: host.url })).reply).toMatchObject({ ...hello, attempts: { length: 1 } });
});

test('a connection that stays open after [DONE] holds the reply up no longer than a moment', async () => {
  await using host = await scriptedServer(
    server.stall(chunk({ content: 'Hello' }), chunk({}, 'stop'), DONE),
    (_response, request) => request.socket.resetAndDestroy(),
  );
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
  await host.quiet();
});

test('a reset after [DONE] spoils nothing', async () => {
  await using host = await scriptedServer(server.reset(chunk({ content: 'Hello' }) + chunk({}, 'stop') + DONE));
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
});

// ── Cancelling ───────────────────────────────────────────────────────────────────────────────────────────────────────

const cancelled = { type: 'failure', error: { code: 'cancelled', retryable: false } };

test('cancelled before it began: nothing is sent', async () => {
  await using host = await scriptedServer();
  const reply = await openaiChat({ model: 'm', baseURL: host.url }).reply(request(), () => {}, AbortSignal.abort());
  expect(reply).toMatchObject(cancelled);
  expect(host.connections).toBe(0);
});

test.each([
  ['dispatch', undefined],
  ['fetch', fetch],
])(
  'cancelled in mid-stream: nothing more is told, the connection is closed, no listener is left (%s)',
  async (_how, own) => {
    await using host = await scriptedServer(server.stall(chunk({ content: 'a' }) + chunk({ content: 'b' })));
    const controller = new AbortController();
    const told: ModelDelta[] = [];
    const model = openaiChat({ model: 'm', baseURL: host.url, ...(own && { fetch: own }) });
    const reply = await model.reply(
      request(),
      (delta) => {
        told.push(delta);
        controller.abort();
      },
      controller.signal,
    );
    expect(reply).toMatchObject(cancelled);
    expect(told).toEqual([{ type: 'text-delta', text: 'a' }]);
    await host.quiet();
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
  },
);

test('cancelled while the server is silent, and while waiting to try again', async () => {
  const controller = new AbortController();
  await using host = await scriptedServer(() => controller.abort());
  expect(
    await openaiChat({ model: 'm', baseURL: host.url }).reply(request(), () => {}, controller.signal),
  ).toMatchObject(cancelled);
  await host.quiet();

  const waiting = new AbortController();
  await using busy = await scriptedServer(server.status(503, {}));
  const clock = { now: () => 0, timer: (ms: number) => (ms < 60_000 && waiting.abort(), () => {}) };
  const reply = await openaiChat({ model: 'm', baseURL: busy.url, clock }).reply(request(), () => {}, waiting.signal);
  expect(reply).toMatchObject({ ...cancelled, attempts: [{ error: { code: 'overloaded' } }] });
  expect(getEventListeners(waiting.signal, 'abort')).toEqual([]);
});

test('cancelled while the connection is being made: it is called off', async () => {
  const controller = new AbortController();
  const closed = Promise.withResolvers<void>();
  const mute = createServer((socket: Socket) => {
    socket.on('data', () => controller.abort());
    socket.on('close', () => closed.resolve());
    socket.on('error', () => {});
  });
  mute.listen(0, '127.0.0.1');
  await once(mute, 'listening');
  const baseURL = `https://127.0.0.1:${(mute.address() as AddressInfo).port}/v1`;
  expect(await openaiChat({ model: 'm', baseURL }).reply(request(), () => {}, controller.signal)).toMatchObject(
    cancelled,
  );
  await closed.promise;
  mute.close();
  await once(mute, 'close');
});

test('no listener is left on a signal that outlives many replies', async () => {
  await using host = await scriptedServer(says('Hello'), server.status(400, {}));
  const { signal } = new AbortController();
  const model = openaiChat({ model: 'm', baseURL: host.url });
  await model.reply(request(), () => {}, signal);
  await model.reply(request(), () => {}, signal);
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

test('a process ends though the server keeps the connection open', async () => {
  await using host = await scriptedServer(says('Hello'));
  const script = `
    import { openaiChat } from '${new URL('./openai-chat.ts', import.meta.url).href}';
    const model = openaiChat({ model: 'm', baseURL: '${host.url}' });
    const request = { messages: [{ role: 'user', content: [] }], tools: [], toolChoice: 'auto', parallel: true, settings: {}, key: '' };
    const reply = await model.reply(request, () => {}, new AbortController().signal);
    console.log(reply.content[0].text);
  `;
  const node = promisify(execFile)(process.execPath, [
    '--conditions=treadle-source',
    '--input-type=module',
    '-e',
    script,
  ]);
  expect((await node).stdout).toBe('Hello\n');
});

// ── Misuse ───────────────────────────────────────────────────────────────────────────────────────────────────────────

test.each([
  [undefined, /pass an object/],
  [{}, /"model" is missing/],
  [{ model: ' ' }, /"model" is missing/],
  [{ model: 'm', baseURL: 'localhost:8080' }, /"baseURL" is not an http\(s\) URL: give one such as/],
  [{ model: 'm', baseURL: '' }, /"baseURL" is not/],
  [{ model: 'm', baseURL: 'https://user:pass@host/v1' }, /"baseURL" holds a password/],
  [{ model: 'm', apiKey: `${KEY}\n` }, /"apiKey" must be a text without spaces and line breaks/],
  [{ model: 'm', headers: { 'x-a': 'b\r\nc' } }, /the header "x-a" cannot be sent/],
  [{ model: 'm', maxRetries: -1 }, /"maxRetries"/],
  [{ model: 'm', timeouts: { idle: 0 } }, /"timeouts.idle"/],
  [{ model: 'm', fetch: 'x' }, /"fetch" must be a function/],
])('options %j throw and say what to do', (options, words) => {
  const make = (): unknown => openaiChat(options as OpenAiChatOptions);
  expect(make).toThrow(TreadleError);
  expect(make).toThrow(words);
  expect(make).toThrow(/^openaiChat: /);
  expect(make).not.toThrow(KEY);
});

test.each([
  [undefined, { max_completion_tokens: 9 }],
  ['https://api.openai.com/v1', { max_completion_tokens: 9 }],
  ['https://eu.api.openai.com/v1', { max_completion_tokens: 9 }],
  ['https://proxy.example/https://api.openai.com/v1', { max_tokens: 9 }],
  ['https://api.openai.com.example/v1', { max_tokens: 9 }],
  ['https://notapi.openai.com/v1', { max_tokens: 9 }],
])('at %s the API is that of OpenAI, or of somebody else', async (baseURL, limit) => {
  const { fetch, seen } = answering(Response.json({}));
  const model = openaiChat({ model: 'm', fetch, maxRetries: 0, ...(baseURL !== undefined && { baseURL }) });
  await asked(model, { settings: { maxOutputTokens: 9 } });
  expect(seen[0]!.body).toMatchObject(limit);
});

test('a message that cannot be serialised is a failure, not a rejection', async () => {
  const broken = { role: 'user', content: [{ type: 'text', text: 7n }] } as unknown as Message;
  const { reply } = await ask({ baseURL: 'http://127.0.0.1:9' }, { messages: [broken] });
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'protocol', retryable: false } });
});
