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
  overrides: Partial<ModelRequest> = {},
): Promise<Asked> {
  const answer = await asked(openaiChat({ model: 'm', apiKey: KEY, ...options }), overrides);
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

// ── Requests and replies ─────────────────────────────────────────────────────────────────────────────────────────────

test('sends the request and reads a streamed reply', async () => {
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

test('sends no authorization without a key, prefers headers of the user, and preserves the query', async () => {
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

test('reads a whole reply, requested or not', async () => {
  const whole = fixtures()('openai-whole.json').toString();
  await using host = await scriptedServer(
    server.status(200, whole),
    server.status(200, whole),
    server.status(200, whole, { 'content-type': 'text/plain' }),
  );
  const requested = await ask({ baseURL: host.url, stream: false });
  const unrequested = await ask({ baseURL: host.url });
  const untyped = await ask({ baseURL: host.url, stream: false });
  for (const { reply, deltas } of [requested, unrequested, untyped]) {
    expect(reply).toMatchObject({ type: 'reply', finish: 'tool-calls', usage: { reasoningTokens: 5 } });
    expect(deltas).toEqual([]);
  }
  expect(host.seen[0]).toMatchObject({ headers: { accept: 'application/json' }, body: { stream: false } });
});

test('reads a stream without a content type, and one split into bytes', async () => {
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

test('sends valid bodies over one connection in a conversation of many turns', async () => {
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

test('sends a body of many megabytes, and reads an answer that arrives before the body was sent', async () => {
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

test('sends 64 requests at once', async () => {
  await using host = await scriptedServer(...Array.from({ length: 64 }, () => says('Hello')));
  const all = await Promise.all(Array.from({ length: 64 }, () => ask({ baseURL: host.url })));
  for (const { reply } of all) expect(reply).toMatchObject(hello);
  expect(host.connections).toBe(64);
});

test('uses a custom fetch', async () => {
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

test('401: is not retried, and the message is shown without the key', async () => {
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

test('401: reports if no key was provided', async () => {
  await using host = await scriptedServer(server.status(401, { error: { message: 'Who are you?' } }));
  const reply = await openaiChat({ model: 'm', baseURL: host.url }).reply(
    request(),
    () => {},
    new AbortController().signal,
  );
  const why = `OPENAI_API_KEY is read only for api.openai.com, and ${new URL(host.url).host} is another host.`;
  const hint = `(No API key was provided. ${why} Pass "apiKey".)`;
  expect(reply).toMatchObject({ error: { message: `The provider answered 401: Who are you? ${hint}` } });
});

test('429: is retried after the time that the server asks for', async () => {
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

test('429: is not retried if the server asks for more than a minute', async () => {
  await using host = await scriptedServer(server.status(429, {}, { 'retry-after': '3600' }));
  expect((await ask({ baseURL: host.url })).reply).toMatchObject({
    error: { retryAfterMs: 3_600_000 },
    attempts: { length: 1 },
  });
});

test('500: is tried three times in all, with increasing waits', async () => {
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

test('times out if the server does not answer', async () => {
  await using host = await scriptedServer(server.silence);
  expect(errorOf(await ask({ baseURL: host.url, maxRetries: 0, timeouts: { headers: 30 } }))).toMatchObject({
    code: 'timeout',
    message: expect.stringContaining('did not answer within 0.03 s'),
    retryable: true,
  });
  await host.quiet();
});

test.each([
  ['undici', undefined],
  ['fetch', fetch],
])('a stream that stalls after the first delta times out and is not retried (%s)', async (_how, own) => {
  await using host = await scriptedServer(server.stall(chunk({ content: 'Hel' })), says('never'));
  const { reply, deltas } = await ask({ baseURL: host.url, timeouts: { idle: 30 }, ...(own && { fetch: own }) });
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'timeout' }, attempts: { length: 1 } });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
  await host.quiet();
});

test('a stream that stalls before the first delta is retried', async () => {
  await using host = await scriptedServer(
    server.stall(': comment\n\n', chunk({ role: 'assistant', content: '' })),
    says('Hello'),
  );
  const { reply } = await ask({ baseURL: host.url, timeouts: { idle: 30 }, random: () => 0 });
  expect(reply).toMatchObject({ ...hello, attempts: [{ error: { code: 'timeout' } }, { model: 'm-2025' }] });
});

test('a stream that is reset after the first delta fails and is not retried', async () => {
  await using host = await scriptedServer(server.reset(chunk({ content: 'Hel' })), says('never'));
  const { reply, deltas } = await ask({ baseURL: host.url });
  expect(reply).toMatchObject({
    type: 'failure',
    error: {
      code: 'network',
      message: expect.stringMatching(/^The connection to 127\.0\.0\.1:\d+ broke off in the middle of the answer: /),
      retryable: true,
    },
    attempts: { length: 1 },
  });
  expect(JSON.stringify(reply)).not.toContain('base URL');
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
});

test('a stream that is reset before the first delta is retried', async () => {
  await using host = await scriptedServer(server.reset(), says('Hello'));
  expect((await ask({ baseURL: host.url, clock: hurriedClock() })).reply).toMatchObject({
    ...hello,
    attempts: { length: 2 },
  });
});

test('fails on an event that is not JSON', async () => {
  await using host = await scriptedServer(server.stream('data: {"choices":[{"delta":{"con\n\n', DONE));
  expect(errorOf(await ask({ baseURL: host.url, maxRetries: 0 }))).toMatchObject({ code: 'protocol', retryable: true });
});

test('fails on a stream that contains only events of an unknown shape', async () => {
  await using host = await scriptedServer(server.stream('data: {"choices":[{"delta":{"content":[null]}}]}\n\n', DONE));
  expect(errorOf(await ask({ baseURL: host.url, maxRetries: 0 }))).toMatchObject({
    code: 'protocol',
    message: expect.stringContaining('cut off'),
  });
});

test('fails if a stream ends without a finish reason, unless it ends with [DONE]', async () => {
  await using host = await scriptedServer(
    server.stream(chunk({ content: 'Hel' })),
    server.stream(chunk({ content: 'Hello' }), DONE),
  );
  expect(errorOf(await ask({ baseURL: host.url }))).toMatchObject({
    code: 'protocol',
    message: expect.stringContaining('cut off'),
  });
  expect((await ask({ baseURL: host.url })).reply).toMatchObject({ type: 'reply', finish: 'stop' });
});

test('fails on a web page and suggests to check the base URL', async () => {
  const page = '<html><body>Please log in</body></html>';
  await using host = await scriptedServer(server.status(200, page, { 'content-type': 'text/html' }));
  expect(errorOf(await ask({ baseURL: host.url }))).toMatchObject({
    code: 'protocol',
    message: expect.stringContaining('Check the base URL'),
    retryable: false,
  });
});

test('reports an error in a body with status 200 and in an event of a stream', async () => {
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

test('does not follow a redirect', async () => {
  await using host = await scriptedServer(
    server.status(308, '', { location: 'https://elsewhere.example/v1?token=abc' }),
  );
  expect(errorOf(await ask({ baseURL: host.url }))).toMatchObject({
    code: 'protocol',
    message: expect.stringMatching(/redirects to https:\/\/elsewhere\.example\/v1,/),
  });
});

test('stops reading an endless error page', async () => {
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

test('reports a refused connection and suggests to check the base URL', async () => {
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

test('reads headers case-insensitively', async () => {
  await using host = await scriptedServer(
    server.status(429, { error: { message: 'slow down' } }, { 'Retry-After': '7', 'Content-Type': 'APPLICATION/JSON' }),
  );
  const { reply } = await asked(openaiChat({ model: 'm', baseURL: host.url, maxRetries: 0 }));
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'rate-limit', retryAfterMs: 7_000 } });
});

test('opens a new connection after the server has closed an idle one', async () => {
  await using host = await scriptedServer((response, request) => {
    response.shouldKeepAlive = false;
    says('Hello')(response, request);
  }, says('Hello'));
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
  expect((await ask({ baseURL: host.url })).reply).toMatchObject({ ...hello, attempts: { length: 1 } });
});

test('returns the reply soon after [DONE] though the connection stays open', async () => {
  await using host = await scriptedServer(
    server.stall(chunk({ content: 'Hello' }), chunk({}, 'stop'), DONE),
    (_response, request) => request.socket.resetAndDestroy(),
  );
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
  await host.quiet();
});

test('ignores a reset after [DONE]', async () => {
  await using host = await scriptedServer(server.reset(chunk({ content: 'Hello' }) + chunk({}, 'stop') + DONE));
  expect((await ask({ baseURL: host.url })).reply).toMatchObject(hello);
});

// ── Cancelling ───────────────────────────────────────────────────────────────────────────────────────────────────────

const cancelled = { type: 'failure', error: { code: 'cancelled', retryable: false } };

test('sends nothing if it is cancelled before the start', async () => {
  await using host = await scriptedServer();
  const reply = await openaiChat({ model: 'm', baseURL: host.url }).reply(request(), () => {}, AbortSignal.abort());
  expect(reply).toMatchObject(cancelled);
  expect(host.connections).toBe(0);
});

test.each([
  ['undici', undefined],
  ['fetch', fetch],
])(
  'cancelled in mid-stream, emits nothing more, closes the connection and removes its listener (%s)',
  async (_how, own) => {
    await using host = await scriptedServer(server.stall(chunk({ content: 'a' }) + chunk({ content: 'b' })));
    const controller = new AbortController();
    const deltas: ModelDelta[] = [];
    const model = openaiChat({ model: 'm', baseURL: host.url, ...(own && { fetch: own }) });
    const reply = await model.reply(
      request(),
      (delta) => {
        deltas.push(delta);
        controller.abort();
      },
      controller.signal,
    );
    expect(reply).toMatchObject(cancelled);
    expect(deltas).toEqual([{ type: 'text-delta', text: 'a' }]);
    await host.quiet();
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
  },
);

test('can be cancelled while the server does not answer, and while waiting to retry', async () => {
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

test('closes the connection if it is cancelled while connecting', async () => {
  const controller = new AbortController();
  const closed = Promise.withResolvers<void>();
  const silentServer = createServer((socket: Socket) => {
    socket.on('data', () => controller.abort());
    socket.on('close', () => closed.resolve());
    socket.on('error', () => {});
  });
  silentServer.listen(0, '127.0.0.1');
  await once(silentServer, 'listening');
  const baseURL = `https://127.0.0.1:${(silentServer.address() as AddressInfo).port}/v1`;
  expect(await openaiChat({ model: 'm', baseURL }).reply(request(), () => {}, controller.signal)).toMatchObject(
    cancelled,
  );
  await closed.promise;
  silentServer.close();
  await once(silentServer, 'close');
});

test('removes its listeners from a signal that outlives many replies', async () => {
  await using host = await scriptedServer(says('Hello'), server.status(400, {}));
  const { signal } = new AbortController();
  const model = openaiChat({ model: 'm', baseURL: host.url });
  await model.reply(request(), () => {}, signal);
  await model.reply(request(), () => {}, signal);
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

test('lets the process exit though the server keeps the connection open', async () => {
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
  [{ model: 'm', baseURL: 'localhost:8080' }, /"baseURL" is not an http\(s\) URL: pass one such as/],
  [{ model: 'm', baseURL: '' }, /"baseURL" is not/],
  [{ model: 'm', baseURL: 'https://user:pass@host/v1' }, /"baseURL" holds a password/],
  [{ model: 'm', apiKey: `${KEY}\n` }, /"apiKey" must be a string without spaces and line breaks/],
  [{ model: 'm', headers: { 'x-a': 'b\r\nc' } }, /the header "x-a" cannot be sent/],
  [{ model: 'm', maxRetries: -1 }, /"maxRetries"/],
  [{ model: 'm', timeouts: { idle: 0 } }, /"timeouts.idle"/],
  [{ model: 'm', fetch: 'x' }, /has "x" as "fetch"\. Use a function\./],
])('rejects the options %j', (options, message) => {
  const make = (): unknown => openaiChat(options as OpenAiChatOptions);
  expect(make).toThrow(TreadleError);
  expect(make).toThrow(message);
  expect(make).toThrow(/^openaiChat\b/);
  expect(make).not.toThrow(KEY);
});

test.each([
  [undefined, { max_completion_tokens: 9 }],
  ['https://api.openai.com/v1', { max_completion_tokens: 9 }],
  ['https://eu.api.openai.com/v1', { max_completion_tokens: 9 }],
  ['https://proxy.example/https://api.openai.com/v1', { max_tokens: 9 }],
  ['https://api.openai.com.example/v1', { max_tokens: 9 }],
  ['https://notapi.openai.com/v1', { max_tokens: 9 }],
])('detects OpenAI by the host: %s', async (baseURL, limit) => {
  const { fetch, seen } = answering(Response.json({}));
  const model = openaiChat({ model: 'm', fetch, maxRetries: 0, ...(baseURL !== undefined && { baseURL }) });
  await asked(model, { settings: { maxOutputTokens: 9 } });
  expect(seen[0]!.body).toMatchObject(limit);
});

test('returns a failure for a message that cannot be serialised', async () => {
  const broken = { role: 'user', content: [{ type: 'text', text: 7n }] } as unknown as Message;
  const { reply } = await ask({ baseURL: 'http://127.0.0.1:9' }, { messages: [broken] });
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'protocol', retryable: false } });
});
