import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tool, TreadleError } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type ServerStore } from '@treadle/server';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import type { Step } from '../provider/script.ts';
import { call, SERVER_TOOLS, WEATHER } from './support/fixture.ts';
import { startInProcess } from './support/in-process.ts';
import { responsesClient, textIn, type ResponsesClient, type StreamEvent } from './support/responses-client.ts';
import { modelOf, startServer, type ServerProcess, type ServerSettings } from './support/server-process.ts';
import { openTestStore } from './support/test-store.ts';

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let provider: Provider;
let folder: string;
/** Two processes on one store. */
let one: ServerProcess;
let two: ServerProcess;

const ANN = { authorization: 'Bearer tk_ann' };
const BOB = { authorization: 'Bearer tk_bob' };
const SETTINGS: ServerSettings = {
  logLevel: 'silent',
  keys: ['ann', 'bob'].map((name) => ({
    name,
    hash: hashKey(`tk_${name}`),
    tenant: name,
    scopes: ['agents:invoke', 'tools:execute'],
  })),
};

beforeAll(async () => {
  provider = await startProvider();
  folder = await mkdtemp(join(tmpdir(), 'treadle-idempotency-'));
  one = await startOn('shared.db');
  two = await startOn('shared.db');
});

afterAll(async () => {
  await one[Symbol.asyncDispose]();
  await two[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

function startOn(file: string, settings: ServerSettings = {}): Promise<ServerProcess> {
  return startServer(provider, { ...SETTINGS, store: join(folder, file), ...settings });
}

function clientOf(server: ServerProcess, headers: Readonly<Record<string, string>> = ANN): ResponsesClient {
  return responsesClient(() => server.url, headers);
}

/** The official client. It retries, as it does by default. */
function openai(server: ServerProcess, key = 'tk_ann'): OpenAI {
  return new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key });
}

let keys = 0;
const newKey = (): string => `key-${++keys}`;
const withKey = (key: string): { readonly 'idempotency-key': string } => ({ 'idempotency-key': key });

interface ScriptedModelName {
  readonly script: Script;
  readonly model: string;
  /** How often the provider was called: what happened outside of the server. */
  readonly calls: () => Promise<number>;
}

async function scripted(...steps: readonly Step[]): Promise<ScriptedModelName> {
  const script = await provider.script(steps);
  return { script, model: modelOf(script), calls: async () => (await script.requests()).length };
}

const HOLDING = (tag: string): readonly Step[] => [
  { text: 'Adding.', calls: [call('add', { a: 1, b: 2 })] },
  { text: 'Waiting.', calls: [call('hold', { tag })] },
  { text: 'Done.' },
];

/** Both APIs, and for responses both values of `store`. */
const KINDS = [
  ['a response', '/v1/responses', { input: 'Go', tools: [SERVER_TOOLS] }],
  ['a response that is not stored', '/v1/responses', { input: 'Go', tools: [SERVER_TOOLS], store: false }],
  ['a completion', '/v1/chat/completions', { messages: [{ role: 'user', content: 'Go' }], tools: [SERVER_TOOLS] }],
] as const;

/** The frames of a stream without heartbeats. */
function framesIn(text: string): readonly string[] {
  return text.split('\n\n').filter((frame) => frame !== '' && !frame.startsWith(':'));
}

/** The id and the content of a response or a completion, as JSON or as a stream. */
function contentOf(body: unknown): string {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return `${/"id":"(resp_\w+|chatcmpl-\w+)"/.exec(text)?.[1]} ${text.includes('Done.')}`;
}

describe.each(KINDS)('%s with a key', (_, path, body) => {
  test('has the same status and body when the request is repeated, in any process', async () => {
    const { model, calls } = await scripted({ calls: [call('add', { a: 1, b: 2 })] }, { text: 'Done.' });
    const key = newKey();
    const first = await clientOf(one).send('POST', path, { ...body, model }, withKey(key));
    expect([first.status, contentOf(first.body)]).toEqual([200, expect.stringMatching(/ true$/)]);
    for (const server of [one, two]) {
      const repeated = await clientOf(server).send('POST', path, { ...body, model }, withKey(key));
      expect([repeated.status, repeated.body]).toEqual([200, first.body]);
    }
    // The order of the fields does not matter.
    const reordered = Object.fromEntries(Object.entries({ ...body, model }).toReversed());
    expect((await clientOf(two).send('POST', path, reordered, withKey(key))).body).toEqual(first.body);
    expect(await calls()).toBe(2);
  });

  test('has the same ids and content when the stream is repeated', async () => {
    const { model, calls } = await scripted(
      { reasoning: 'Hm.', text: 'Adding.', calls: [call('add', { a: 1, b: 2 })] },
      { text: 'Done.' },
    );
    const request = { ...body, model, stream: true, stream_options: { include_usage: true } };
    const key = newKey();
    const first = (await clientOf(one).send('POST', path, request, withKey(key))).body as string;
    const repeated = (await clientOf(two).send('POST', path, request, withKey(key))).body as string;
    expect(framesIn(repeated).at(-1)).toBe('data: [DONE]');
    expect(contentOf(repeated)).toBe(contentOf(first));
    // The frame before the end is the terminal event, or the usage. There are fewer deltas than the first time.
    const lastOf = (text: string): string =>
      framesIn(text)
        .at(-2)!
        .replace(/"sequence_number":\d+/, '');
    expect(lastOf(repeated)).toBe(lastOf(first));
    expect(await calls()).toBe(2);
  });

  test('runs once if two processes get equal requests at the same moment', async () => {
    const tag = `concurrent ${path}${'store' in body}`;
    const { model, calls } = await scripted(...HOLDING(tag));
    const key = newKey();
    const sent = [one, two, one, two, one, two].map((server) =>
      clientOf(server).send('POST', path, { ...body, model }, withKey(key)),
    );
    await Promise.race([one, two].map((server) => server.held(tag)));
    for (const server of [one, two]) server.release(tag);
    const answers = await Promise.all(sent);
    expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1);
    expect(contentOf(answers[0]!.body)).toMatch(/ true$/);
    expect(await calls()).toBe(3);
  });

  test('continues when its client disconnects, and the repeated request gets it', async () => {
    const tag = `disconnected ${path}${'store' in body}`;
    const { model, calls } = await scripted(...HOLDING(tag));
    const key = newKey();
    const connection = new AbortController();
    const request = JSON.stringify({ ...body, model });
    const lost = fetch(one.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...ANN, ...withKey(key) },
      body: request,
      signal: connection.signal,
    });
    lost.catch(() => {});
    await one.held(tag);
    connection.abort();
    await expect(lost).rejects.toThrow('aborted');
    const repeated = clientOf(one).send('POST', path, request, withKey(key));
    one.release(tag);
    expect(contentOf((await repeated).body)).toMatch(/ true$/);
    expect(await calls()).toBe(3);
  });

  test('rejects another body with a 409, and other tenants have keys of their own', async () => {
    const { model, calls } = await scripted({ text: 'Done.' }, { text: 'Done.' });
    const key = newKey();
    const first = await clientOf(one).send('POST', path, { ...body, model }, withKey(key));
    for (const other of [
      { ...body, model, temperature: 0.5 },
      { ...body, model, stream: true },
    ]) {
      const { status, headers, body: error } = await clientOf(two).send('POST', path, other, withKey(key));
      expect([status, headers.get('x-should-retry')]).toEqual([409, 'false']);
      expect(error).toMatchObject({ error: { type: 'invalid_request_error', code: 'idempotency_key_reused' } });
    }
    const ofBob = await clientOf(two, BOB).send('POST', path, { ...body, model }, withKey(key));
    expect(ofBob.status).toBe(200);
    expect(contentOf(ofBob.body)).not.toBe(contentOf(first.body));
    expect(await calls()).toBe(2);
  });

  test('does not use up its key if the request was refused, or if the model failed before it replied', async () => {
    const { model, calls } = await scripted(
      { fault: 'status', status: 503 },
      { fault: 'error-in-stream', reply: { text: 'This reply is not complete.' } },
      { calls: [call('add', { a: 1, b: 2 })] },
      { text: 'Done.' },
    );
    const key = newKey();
    const send = (more: object): Promise<{ readonly status: number; readonly body: unknown }> =>
      clientOf(one).send('POST', path, { ...body, model, ...more }, withKey(key));
    expect((await send({ temperature: 'hot' })).status).toBe(400);
    expect((await send({ model: 'unknown' })).status).toBe(404);
    expect((await send({})).status).toBe(503);
    expect(JSON.stringify((await send({})).body)).toMatch(/"status":"failed"|"code":"model_/);
    const { status, body: answer } = await send({});
    expect([status, contentOf(answer)]).toEqual([200, expect.stringMatching(/ true$/)]);
    expect((await send({})).body).toEqual(answer);
    expect(await calls()).toBe(4);
  });

  test('is the same failure again if the model failed after a tool had run', async () => {
    const { model, calls } = await scripted(
      { calls: [call('add', { a: 1, b: 2 })] },
      { fault: 'status', status: 401 },
      { text: 'Never.' },
    );
    const key = newKey();
    const first = await clientOf(one).send('POST', path, { ...body, model }, withKey(key));
    expect(JSON.stringify(first.body)).toMatch(/"status":"failed"|"code":"model_auth"/);
    const repeated = await clientOf(two).send('POST', path, { ...body, model }, withKey(key));
    expect([repeated.status, repeated.body]).toEqual([first.status, first.body]);
    expect(await calls()).toBe(2);
  });

  test.each(['', 'a b', 'ä', 'x'.repeat(256)])('rejects the key %j with a 400', async (key) => {
    const { model, calls } = await scripted({ text: 'Done.' });
    const headers = { 'idempotency-key': Buffer.from(key).toString('latin1') };
    const { status, body: error } = await clientOf(one).send('POST', path, { ...body, model }, headers);
    expect(status).toBe(400);
    expect(error).toMatchObject({ error: { code: 'invalid_idempotency_key' } });
    expect(await calls()).toBe(0);
  });
});

/** One server process has requests of all kinds at once, because a process takes long to start. */
describe('requests of all kinds with a key', () => {
  interface Held {
    readonly tag: string;
    readonly calls: () => Promise<number>;
    readonly send: (server: ServerProcess) => ReturnType<ResponsesClient['send']>;
    /** The first answer. */
    readonly sent: ReturnType<ResponsesClient['send']>;
  }

  /** Sends one of each kind. The tool of each is waiting. */
  function holdOn(server: ServerProcess): Promise<readonly Held[]> {
    return Promise.all(
      KINDS.map(async ([kind, path, body]) => {
        const headers = withKey(newKey());
        const tag = `${kind} ${headers['idempotency-key']}`;
        const { model, calls } = await scripted(...HOLDING(tag));
        const send: Held['send'] = (to) => clientOf(to).send('POST', path, { ...body, model }, headers);
        const sent = send(server);
        sent.catch(() => {});
        await server.held(tag);
        return { tag, calls, send, sent };
      }),
    );
  }

  test('are resumed when their process was killed and they are repeated', async () => {
    const killed = await startOn('killed.db');
    const survivor = await startOn('killed.db');
    const requests = await holdOn(killed);
    // They wait for the other process until that is killed.
    const repeated = requests.map((request) => ({ ...request, waiting: [0, 1].map(() => request.send(survivor)) }));
    await killed.kill();
    for (const { tag, calls, sent, waiting } of repeated) {
      await expect(sent).rejects.toThrow('fetch failed');
      await survivor.held(tag);
      survivor.release(tag);
      const [answer, other] = await Promise.all(waiting);
      expect([answer!.status, contentOf(answer!.body)]).toEqual([200, expect.stringMatching(/ true$/)]);
      expect(other!.body).toEqual(answer!.body);
      // Replies that the model had given are not requested again.
      expect(await calls()).toBe(3);
    }
    await survivor[Symbol.asyncDispose]();
  });

  test('are started from their records when their process was killed before the runs started', async () => {
    const killed = await startOn('not-started.db', { hangsOnAppend: true });
    const requests = await Promise.all(
      KINDS.map(async ([, path, body]) => {
        const { model, calls } = await scripted({ text: 'Done.' });
        const [headers, request] = [withKey(newKey()), { ...body, model, stream: true }];
        const lost = await fetch(killed.url + path, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...ANN, ...headers },
          body: JSON.stringify(request),
        });
        // The first event is sent after the record was stored.
        await lost.body!.getReader().read();
        return { path, headers, request, calls };
      }),
    );
    await killed.kill();
    const next = await startOn('not-started.db');
    expect(next.recovered).toBe(KINDS.length);
    for (const { path, headers, request, calls } of requests) {
      const { body: answer } = await clientOf(next).send('POST', path, request, headers);
      expect(contentOf(answer)).toMatch(/ true$/);
      expect(await calls()).toBe(1);
    }
    await next[Symbol.asyncDispose]();
  });

  test('are a 503 with Retry-After when the server stops, and are resumed after the restart', async () => {
    const stopped = await startOn('stopped.db');
    const requests = await holdOn(stopped);
    await stopped.close(0);
    const message = expect.stringMatching(/Send the request again .*Idempotency-Key\.$/);
    for (const { sent } of requests) {
      const { status, headers, body: error } = await sent;
      expect([status, headers.get('retry-after'), headers.get('x-should-retry')]).toEqual([503, '1', null]);
      expect(error).toMatchObject({ error: { code: 'server_stopping', message } });
    }
    const next = await startOn('stopped.db');
    expect(next.recovered).toBe(KINDS.length);
    for (const { tag, send, calls } of requests) {
      await next.held(tag);
      next.release(tag);
      expect(contentOf((await send(next)).body)).toMatch(/ true$/);
      expect(await calls()).toBe(3);
    }
    await next[Symbol.asyncDispose]();
  });
});

describe('the stream of a repeated response', () => {
  test('conforms to the specification, with all kinds of items', async () => {
    const { model, calls } = await scripted(
      { reasoning: 'Hm.', text: 'Adding.', calls: [call('add', { a: 1, b: 2 }), call('fail', { why: 'no' })] },
      { text: 'And now?', calls: [call('weather', { city: 'Oslo' })] },
    );
    const request = { model, input: 'Go', tools: [SERVER_TOOLS, WEATHER], include: ['reasoning.encrypted_content'] };
    const headers = { ...withKey(newKey()), 'treadle-status': 'requires_action' };
    const first = await clientOf(one).stream(request, headers);
    const repeated = await clientOf(two).stream(request, headers);
    expect(repeated.response).toEqual(first.response);
    expect(repeated.response.status).toBe('requires_action');
    const closed = (events: readonly StreamEvent[]): unknown[] =>
      events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item);
    // The first time, they are closed in another order.
    expect(closed(repeated.events)).toEqual(first.response.output);
    expect(closed(first.events)).toHaveLength(closed(repeated.events).length);
    expect(repeated.events[0]).toEqual(first.events[0]);
    expect(await calls()).toBe(2);
  });

  test('is the same failure', async () => {
    const { model } = await scripted({ calls: [call('add', { a: 1, b: 2 })] }, { fault: 'status', status: 401 });
    const request = { model, input: 'Go', tools: [SERVER_TOOLS] };
    const headers = withKey(newKey());
    const first = await clientOf(one).stream(request, headers);
    expect(first.response.status).toBe('failed');
    expect((await clientOf(two).stream(request, headers)).response).toEqual(first.response);
  });

  test('waits for a response in progress', async () => {
    const { model, calls } = await scripted(...HOLDING('stream'));
    const request = { model, input: 'Go', tools: [SERVER_TOOLS] };
    const headers = withKey(newKey());
    const first = await clientOf(one).startStream(request, headers);
    await one.held('stream');
    const repeated = [one, two].map((server) => clientOf(server).stream(request, headers));
    one.release('stream');
    const { response } = await first.ended;
    expect((await Promise.all(repeated)).map((stream) => stream.response)).toEqual([response, response]);
    expect(await calls()).toBe(3);
  });
});

describe('a repeated completion', () => {
  test('has the same calls, and its results continue the conversation of the first one', async () => {
    const { model, script, calls } = await scripted(
      { reasoning: 'Hm.', text: 'Adding.', calls: [call('add', { a: 1, b: 2 })] },
      { calls: [call('weather', {})] },
      { text: 'Rain.' },
    );
    const tools = [SERVER_TOOLS, { type: 'function', function: { name: 'weather', parameters: WEATHER.parameters } }];
    const request = {
      model,
      messages: [{ role: 'user', content: 'Go' }],
      tools,
      stream_options: { include_usage: true },
    };
    const key = newKey();
    const stream = async (server: ServerProcess): Promise<OpenAI.ChatCompletion> =>
      openai(server)
        .chat.completions.stream(request as never, { headers: withKey(key) })
        .finalChatCompletion();
    const first = await stream(one);
    const repeated = await stream(two);
    expect(repeated).toEqual(first);
    const [choice] = repeated.choices;
    const sent = choice!.message.tool_calls!;
    expect(sent).toHaveLength(1);
    const results = sent.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: 'rain' }));
    const messages = [...request.messages, choice!.message, ...results];
    const next = await openai(two).chat.completions.create({ ...request, messages } as never);
    expect((next as OpenAI.ChatCompletion).choices[0]!.message.content).toBe('Rain.');
    const { messages: seen } = (await script.requests()).at(-1)!.body as { messages: readonly { role: string }[] };
    expect(seen.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool']);
    expect(await calls()).toBe(3);
  });
});

test('the official client receives one response for a key, also when it retries', async () => {
  const { model, calls } = await scripted({ fault: 'status', status: 503 }, { text: 'Done.' });
  const headers = withKey(newKey());
  const create = (server: ServerProcess): Promise<OpenAI.Responses.Response> =>
    openai(server).responses.create({ model, input: 'Go' }, { headers });
  const first = await create(one);
  expect(first.output_text).toBe('Done.');
  expect(await create(two)).toEqual(first);
  expect(await calls()).toBe(2);
  const other = openai(one).responses.create({ model, input: 'Stop' }, { headers });
  await expect(other).rejects.toMatchObject({ status: 409, code: 'idempotency_key_reused' });
  const chat = openai(one).chat.completions.create({ model, messages: [{ role: 'user', content: 'Go' }] }, { headers });
  await expect(chat).rejects.toMatchObject({ status: 409, code: 'idempotency_key_reused' });
});

test('a response with a key that is not stored cannot be fetched, cancelled, deleted or continued', async () => {
  const { model, calls } = await scripted({ text: 'Done.' });
  const headers = withKey(newKey());
  const client = clientOf(one);
  const response = await client.respond({ model, input: 'Go', store: false }, headers);
  for (const [method, path] of [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/cancel'],
    ['GET', '/input_items'],
  ] as const) {
    for (const id of [response.id, `keyed_${response.id}`]) {
      expect((await client.send(method, `/v1/responses/${id}${path}`)).status).toBe(404);
    }
  }
  const { body } = await client.expectError({ model, input: 'And?', previous_response_id: response.id });
  expect(body.error.code).toBe('previous_response_not_found');
  expect(await client.respond({ model, input: 'Go', store: false }, headers)).toEqual(response);
  expect(await calls()).toBe(1);
});

test('the key of a deleted response is a 409, and nothing runs', async () => {
  const { model, calls } = await scripted({ text: 'Done.' });
  const headers = withKey(newKey());
  const { id } = await clientOf(one).respond({ model, input: 'Go' }, headers);
  await clientOf(one).send('DELETE', `/v1/responses/${id}`);
  const { status, body } = await clientOf(two).expectError({ model, input: 'Go' }, headers);
  expect([status, body.error.code]).toEqual([409, 'response_deleted']);
  expect(await calls()).toBe(1);
});

test('a request beyond the limit of concurrent runs does not use up its key', async () => {
  const limited = await startOn('limited.db', { maxConcurrentRuns: 1 });
  const holding = await scripted(...HOLDING('limit'));
  const { model, calls } = await scripted({ text: 'Done.' });
  const first = clientOf(limited).respond({ model: holding.model, input: 'Go', tools: [SERVER_TOOLS] });
  await limited.held('limit');
  const headers = withKey(newKey());
  expect((await clientOf(limited).expectError({ model, input: 'Go' }, headers)).status).toBe(429);
  limited.release('limit');
  await first;
  expect(textIn(await clientOf(limited).respond({ model, input: 'Go' }, headers))).toBe('Done.');
  expect(await calls()).toBe(1);
  await limited[Symbol.asyncDispose]();
});

test('a request that waits for one that fails before it has output is processed itself', async () => {
  const failing = Promise.withResolvers<void>();
  const called = Promise.withResolvers<void>();
  const error = { code: 'overloaded', message: 'Down.', retryable: false } as const;
  const model = scriptedModel([
    async () => {
      called.resolve();
      await failing.promise;
      return { type: 'failure', error };
    },
    'Done.',
  ]);
  await using server = await startInProcess(model);
  const first = server.post({ input: 'Go' }, withKey('k'));
  await called.promise;
  const second = server.post({ input: 'Go' }, withKey('k'));
  failing.resolve();
  expect(await first).toMatchObject({ status: 503, text: expect.stringContaining('model_overloaded') });
  const answer = await second;
  expect([answer.status, contentOf(answer.text)]).toEqual([200, expect.stringMatching(/ true$/)]);
  expect(await server.post({ input: 'Go' }, withKey('k'))).toEqual(answer);
  expect(model.requests).toHaveLength(2);
});

test.each(KINDS)('%s whose end was not stored is ended by the repeated request', async (_, path, body) => {
  const store = await openTestStore(join(folder, `end-${newKey()}.db`));
  const broken: ServerStore = {
    ...store,
    requests: {
      ...store.requests,
      finish: () => Promise.reject(new TreadleError('store-full', 'The disk is full.')),
    },
  };
  let performed = 0;
  const count = tool({ name: 'count', description: '', effect: 'once', execute: () => String(++performed) });
  const functions = path.endsWith('responses') ? WEATHER : { type: 'function', function: { name: 'weather' } };
  const request = JSON.stringify({ ...body, tools: [SERVER_TOOLS, functions] });
  const post = async (url: string): Promise<Response> =>
    fetch(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...withKey('k') },
      body: request,
    });
  const script = [{ calls: [{ name: 'count' }] }, { calls: [{ name: 'weather' }] }];
  const first = await startInProcess(scriptedModel(script), { store: broken, tools: [count] });
  const interrupted = await post(first.url);
  expect([interrupted.status, interrupted.headers.get('retry-after')]).toEqual([503, '1']);
  expect(await interrupted.json()).toMatchObject({ error: { code: 'response_interrupted' } });
  await first[Symbol.asyncDispose]();

  // The model of this server has no replies: a call would fail.
  const next = await startInProcess(scriptedModel([]), { store, tools: [count] });
  const answer = (await (await post(next.url)).json()) as object;
  expect(JSON.stringify(answer)).toContain('"name":"weather"');
  expect(await (await post(next.url)).json()).toEqual(answer);
  expect(performed).toBe(1);
  await next[Symbol.asyncDispose]();
  await store.close();
});

describe('after 24 hours', () => {
  const HOUR = 3_600_000;

  afterEach(() => void vi.useRealTimers());

  test('a key can be used again, and what was stored for it alone is deleted', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'], now: 1_000_000 });
    const store = await openTestStore();
    let performed = 0;
    const count = tool({ name: 'count', description: '', execute: () => String(++performed) });
    const script = [1, 2, 3, 4].flatMap(() => [{ calls: [{ name: 'count' }] }, 'Done.']);
    await using server = await startInProcess(scriptedModel(script), { store, tools: [count], retentionMs: 0 });
    const tools = [SERVER_TOOLS];
    const idOf = async (body: object, key: string): Promise<string> =>
      (JSON.parse((await server.post({ tools, ...body }, withKey(key))).text) as { id: string }).id;
    const kept = await idOf({ input: 'kept' }, 'a');
    const hidden = await idOf({ input: 'hidden', store: false }, 'b');
    // Timers fire in the last two hours only, which takes less time.
    vi.setSystemTime(1_000_000 + 22 * HOUR);
    await vi.advanceTimersByTimeAsync(2 * HOUR - 1);
    expect(await idOf({ input: 'kept' }, 'a')).toBe(kept);
    expect(await idOf({ input: 'hidden', store: false }, 'b')).toBe(hidden);
    expect(performed).toBe(2);
    expect(await store.read(hidden)).not.toEqual([]);

    vi.setSystemTime(1_000_000 + 24 * HOUR);
    expect(await idOf({ input: 'something else' }, 'a')).not.toBe(kept);
    expect(await idOf({ input: 'hidden', store: false }, 'b')).not.toBe(hidden);
    expect(performed).toBe(4);
    await vi.advanceTimersByTimeAsync(HOUR);
    await vi.waitFor(async () => expect(await store.read(hidden)).toEqual([]));
    expect(await server.get(kept)).toMatchObject({ status: 'completed' });
    expect(await store.list()).toHaveLength(3);
    await store.close();
  });
});
