import { connect } from 'node:net';
import { textOf, type Message, type Model, type ModelRequest } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { describe, expect, test } from 'vitest';
import { WEATHER } from './support/fixture.ts';
import { startInProcess } from './support/in-process.ts';
import { eventProblems, schemaProblems } from './support/schema-check.ts';
import { closeSocket, openSocket, type RefusedSocket, type SocketEvent } from './support/socket-client.ts';

const lines = ({ messages }: ModelRequest): string[] =>
  messages.map(({ role, content }: Message) => `${role}: ${textOf(content as Parameters<typeof textOf>[0])}`);
const codeOf = ({ error }: SocketEvent): string | undefined => error?.code;
const create = (input: string): object => ({ type: 'response.create', store: false, input });

/** The cases of the compliance suite of Open Responses. */
describe('Open Responses over WebSocket', () => {
  test('websocket-response: the events of a stream, each in a message', async () => {
    await using server = await startInProcess(scriptedModel(['Hello there.']));
    using socket = await openSocket(server.url);
    socket.send(create('Hi'));
    const events = await socket.answer();
    expect(events.flatMap(eventProblems)).toEqual([]);
    expect(events.map(({ sequence_number: number }) => number)).toEqual(events.map((_, index) => index));
    const { type, response } = events.at(-1)!;
    expect(type).toBe('response.completed');
    expect(schemaProblems('Response', response)).toEqual([]);
  });

  test('websocket-sequential-responses: several responses on one socket, one at a time', async () => {
    const first = Promise.withResolvers<string>();
    const model = scriptedModel([() => first.promise, 'second']);
    await using server = await startInProcess(model);
    using socket = await openSocket(server.url);
    socket.send(create('one'));
    socket.send(create('two'));
    socket.send({ type: 'response.create', previous_response_id: 'resp_none', input: 'three' });
    while (model.requests.length === 0) await new Promise(setImmediate);
    first.resolve('first');
    const answers = [await socket.answer(), await socket.answer(), await socket.answer()];
    expect(answers.map((events) => events.at(-1)!.type)).toEqual(['response.completed', 'response.completed', 'error']);
    expect(answers.slice(0, 2).map((events) => events[0]!.type)).toEqual(['response.created', 'response.created']);
    expect(model.requests.map(lines)).toEqual([['user: one'], ['user: two']]);
  });

  test('websocket-continuation: a response that is not stored is continued from memory', async () => {
    const model = scriptedModel(['OK', 'copper', { calls: [{ name: 'weather' }] }, 'It is sunny.']);
    await using server = await startInProcess(model);
    using socket = await openSocket(server.url);
    const system = { role: 'system', content: 'Be brief.' };
    const first = await socket.create({ store: false, input: [system, { role: 'user', content: 'Remember copper.' }] });
    const second = await socket.create({
      store: false,
      previous_response_id: first.response!.id,
      input: 'Which word?',
    });
    expect(lines(model.requests[1]!)).toEqual(['user: Remember copper.', 'assistant: OK', 'user: Which word?']);
    expect(model.requests[1]!.instructions).toBe('Be brief.');
    const third = await socket.create({
      store: false,
      previous_response_id: second.response!.id,
      input: 'And the weather?',
      tools: [WEATHER],
    });
    const call = third.response!.output[0] as unknown as { readonly call_id: string };
    const output = { type: 'function_call_output', call_id: call.call_id, output: 'sunny' };
    const last = await socket.create({ store: false, previous_response_id: third.response!.id, input: [output] });
    expect(last).toMatchObject({ type: 'response.completed', response: { previous_response_id: third.response!.id } });
    expect(lines(model.requests[3]!)).toHaveLength(7);
    expect((await server.send('GET', `/v1/responses/${first.response!.id}`)).status).toBe(404);
  });

  test('websocket-reconnect-store-false-recovery: another socket does not know it, and can start anew', async () => {
    await using server = await startInProcess(scriptedModel(['OK', 'recovered']));
    const one = await openSocket(server.url);
    const { response } = await one.create({ store: false, input: 'Remember copper.' });
    await closeSocket(one);
    using other = await openSocket(server.url);
    const missing = await other.create({ store: false, previous_response_id: response!.id, input: 'Go on.' });
    expect(missing).toMatchObject({ type: 'error', status: 400, error: { code: 'previous_response_not_found' } });
    expect((await other.create({ store: false, input: 'Start anew.' })).type).toBe('response.completed');
  });

  test('websocket-previous-response-not-found: an error with a status', async () => {
    await using server = await startInProcess(scriptedModel([]));
    using socket = await openSocket(server.url);
    const error = await socket.create({ store: false, previous_response_id: 'resp_missing_1', input: 'x' });
    expect(error).toMatchObject({
      type: 'error',
      status: 400,
      error: { type: 'invalid_request_error', code: 'previous_response_not_found', param: 'previous_response_id' },
    });
  });

  test('websocket-failed-continuation-evicts-cache', async () => {
    await using server = await startInProcess(scriptedModel(['OK']));
    using socket = await openSocket(server.url);
    const { response } = await socket.create({ store: false, input: 'Remember ember.' });
    const previous = { store: false, previous_response_id: response!.id };
    const output = { type: 'function_call_output', call_id: 'call_missing', output: 'x' };
    expect(codeOf(await socket.create({ ...previous, input: [output] }))).toBe('unknown_call');
    expect(codeOf(await socket.create({ ...previous, input: 'Go on.' }))).toBe('previous_response_not_found');
  });
});

test('a continuation whose model fails has one last event, and evicts', async () => {
  const failure = { type: 'failure', error: { code: 'auth', message: 'no', retryable: false } } as const;
  await using server = await startInProcess(scriptedModel(['OK', failure]));
  using socket = await openSocket(server.url);
  const { response } = await socket.create({ store: false, input: 'x' });
  const previous = { store: false, previous_response_id: response!.id, input: 'y' };
  socket.send({ type: 'response.create', ...previous });
  const events = await socket.answer();
  expect(events.map(({ type }) => type)).toEqual(['response.created', 'response.in_progress', 'response.failed']);
  expect(events.map(({ sequence_number: number }) => number)).toEqual([0, 1, 2]);
  expect(codeOf(await socket.create(previous))).toBe('previous_response_not_found');
});

test('a stored response is continued on a socket and over HTTP', async () => {
  const model = scriptedModel(['one', 'two', 'three']);
  await using server = await startInProcess(model);
  using socket = await openSocket(server.url);
  const { response } = await socket.create({ input: 'a' });
  const next = await socket.create({ previous_response_id: response!.id, input: 'b' });
  const { status } = await server.post({ previous_response_id: next.response!.id, input: 'c' });
  expect(status).toBe(200);
  expect(lines(model.requests[2]!)).toHaveLength(5);
});

test('the official client gets the events, and repeats its stream_id', async () => {
  await using server = await startInProcess(scriptedModel(['Hello.']));
  const client = new OpenAI({ apiKey: 'none', baseURL: `${server.url}/v1` });
  const socket = new ResponsesWS(client);
  try {
    socket.send({ type: 'response.create', stream_id: 'main', input: 'Hi' });
    let text = '';
    for await (const event of socket) {
      if (event.type === 'error') throw event.error;
      if (event.type !== 'message') continue;
      const { message } = event;
      expect(message).toMatchObject({ stream_id: 'main' });
      if (message.type === 'response.output_text.delta') text += message.delta;
      if (message.type === 'response.completed') break;
    }
    expect(text).toBe('Hello.');
  } finally {
    socket.close();
  }
});

describe('a message that cannot be used gets an error, and the socket stays open', () => {
  test.each<[string, string | object, string]>([
    ['not JSON', '{"type": ', 'invalid_json'],
    ['empty', '', 'invalid_json'],
    ['nested too deeply', `${'['.repeat(1_000)}`, 'invalid_json'],
    ['no object', '[]', 'invalid_type'],
    ['no type', '{}', 'invalid_value'],
    ['another type', { type: 'response.steer' }, 'invalid_value'],
    ['a wrong field', { type: 'response.create', input: 3 }, 'invalid_type'],
    ['no input', { type: 'response.create' }, 'missing_required_parameter'],
    ['background', { type: 'response.create', input: 'x', background: true }, 'unsupported_parameter'],
    ['a prompt template', { type: 'response.create', input: 'x', prompt: { id: 'p' } }, 'unsupported_parameter'],
  ])('%s', async (_, message, code) => {
    await using server = await startInProcess(scriptedModel(['fine']));
    using socket = await openSocket(server.url);
    socket.send(message);
    expect((await socket.answer()).map((event) => [event.type, event.status, codeOf(event)])).toEqual([
      ['error', 400, code],
    ]);
    expect((await socket.create({ input: 'x' })).type).toBe('response.completed');
  });

  test('binary', async () => {
    await using server = await startInProcess(scriptedModel([]));
    using socket = await openSocket(server.url);
    socket.ws.send(Buffer.from('{}'));
    expect((await socket.answer()).map(codeOf)).toEqual(['invalid_json']);
  });
});

describe('who may open a socket', () => {
  const refused = async (url: string, headers: Record<string, string>): Promise<number> =>
    openSocket(url, { headers }).then(
      ({ ws }) => (ws.terminate(), 101),
      (error: RefusedSocket) => error.status,
    );
  const KEYS = [
    { name: 'a', hash: hashKey('good'), maxConcurrentRequests: 1 },
    { name: 'b', hash: hashKey('metrics'), scopes: ['metrics:read' as const] },
  ];

  test('with keys: a client with a valid key that has the scope', async () => {
    await using server = await startInProcess(scriptedModel(['one', 'two']), { keys: KEYS });
    expect(await refused(server.url, {})).toBe(401);
    expect(await refused(server.url, { authorization: 'Bearer bad' })).toBe(401);
    expect(await refused(server.url, { authorization: 'Bearer metrics' })).toBe(403);
    using socket = await openSocket(server.url, { headers: { authorization: 'Bearer good' } });
    expect((await socket.create({ input: 'x' })).type).toBe('response.completed');
    expect((await socket.create({ input: 'x' })).type).toBe('response.completed');
  });

  test('without keys: no other web page, and no foreign Host', async () => {
    await using server = await startInProcess(scriptedModel([]), { corsOrigins: ['https://app.test'] });
    expect(await refused(server.url, { origin: 'https://evil.test' })).toBe(403);
    expect(await refused(server.url, { host: 'evil.test' })).toBe(403);
    expect(await refused(server.url, { origin: 'https://app.test' })).toBe(101);
    expect(await refused(server.url, { origin: server.url })).toBe(101);
  });

  test('with keys: no web page whose origin is not allowed, even with a key', async () => {
    await using server = await startInProcess(scriptedModel([]), { keys: KEYS });
    expect(await refused(server.url, { authorization: 'Bearer good', origin: 'https://evil.test' })).toBe(403);
  });

  test('other paths and other upgrades are answered as HTTP', async () => {
    await using server = await startInProcess(scriptedModel(['over h2c']));
    const ws = { connection: 'Upgrade', upgrade: 'websocket' };
    const key = { 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' };
    expect((await server.send('GET', '/v1/responses', undefined, key)).status).toBe(426);
    const body = JSON.stringify({ input: 'x' });
    const answerTo = async (head: string[], text = ''): Promise<string> => {
      const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
      socket.write(`${head.join('\r\n')}\r\nHost: localhost\r\n\r\n${text}`);
      let all = '';
      for await (const chunk of socket) all += String(chunk);
      return all;
    };
    const upgrade = [`Connection: ${ws.connection}`, `Upgrade: ${ws.upgrade}`];
    expect(await answerTo(['GET /v1/models HTTP/1.1', ...upgrade])).toMatch(/^HTTP\/1.1 200 /);
    expect(await answerTo(['GET /v1/none HTTP/1.1', ...upgrade])).toMatch(/^HTTP\/1.1 404 /);
    expect(await answerTo(['GET /v1/responses HTTP/1.1', ...upgrade])).toMatch(/^HTTP\/1.1 400 /);
    const post = ['POST /v1/responses HTTP/1.1', 'Content-Type: application/json', `Content-Length: ${body.length}`];
    expect(await answerTo([...post, 'Connection: Upgrade, close', 'Upgrade: h2c'], body)).toContain('over h2c');
  });
});

describe('limits', () => {
  test('each message is counted as a request', async () => {
    await using server = await startInProcess(scriptedModel(['one']), { requestsPerMinute: 2 });
    using socket = await openSocket(server.url);
    expect((await socket.create({ input: 'x' })).type).toBe('response.completed');
    expect(await socket.create({ input: 'x' })).toMatchObject({ status: 429, error: { code: 'rate_limit_exceeded' } });
  });

  test('open sockets are counted as open streams, until they close', async () => {
    await using server = await startInProcess(scriptedModel([]), { maxOpenStreams: 1 });
    const one = await openSocket(server.url);
    await expect(openSocket(server.url)).rejects.toMatchObject({ status: 429 });
    await closeSocket(one);
    const again = async (): Promise<number> =>
      openSocket(server.url).then(
        ({ ws }) => (ws.terminate(), 101),
        () => 429,
      );
    while ((await again()) !== 101);
  });

  test('a message that is too large closes the socket, and only that one', async () => {
    await using server = await startInProcess(scriptedModel(['fine']), { maxBodyBytes: 10_000 });
    using other = await openSocket(server.url);
    using socket = await openSocket(server.url);
    socket.send('x'.repeat(10_001));
    expect(await socket.closed).toBe(1009);
    expect((await other.create({ input: 'x' })).type).toBe('response.completed');
  });

  test('messages beyond those that may wait are refused', async () => {
    const reply = Promise.withResolvers<string>();
    const model = scriptedModel(Array.from({ length: 9 }, () => () => reply.promise));
    await using server = await startInProcess(model);
    using socket = await openSocket(server.url);
    for (let n = 0; n < 10; n++) socket.send(create(String(n)));
    expect((await socket.answer()).at(-1)).toMatchObject({ status: 429, error: { code: 'too_many_requests' } });
    reply.resolve('ok');
    for (let n = 0; n < 9; n++) expect((await socket.answer()).at(-1)!.type).toBe('response.completed');
  });

  test('the bytes of messages that arrive are counted', async () => {
    const limits = { maxBytesInProgress: 200_000, maxBodyBytes: 10_000_000 };
    await using server = await startInProcess(scriptedModel(['fine']), limits);
    using one = await openSocket(server.url);
    using other = await openSocket(server.url);
    // Neither message is complete.
    one.ws.send('x'.repeat(90_000), { fin: false });
    other.ws.send('x'.repeat(90_000), { fin: false });
    expect(await Promise.race([one.closed, other.closed])).toBe(1013);
    using small = await openSocket(server.url);
    expect((await small.create({ input: 'x' })).type).toBe('response.completed');
  });
});

describe('a client that goes away', () => {
  test('cancels its response', async () => {
    const aborted = Promise.withResolvers<void>();
    const model = scriptedModel([
      (_, signal) => {
        signal.addEventListener('abort', () => aborted.resolve());
        return new Promise(() => {});
      },
    ]);
    await using server = await startInProcess(model);
    using socket = await openSocket(server.url);
    socket.send(create('x'));
    while (model.requests.length === 0) await new Promise(setImmediate);
    socket.ws.terminate();
    await aborted.promise;
  });

  test('a client that does not read holds back its response', async () => {
    const deltas = 400;
    let emitted = 0;
    const model: Model = {
      id: 'endless',
      async reply(_, emit) {
        for (; emitted < deltas; emitted++) await emit({ type: 'text-delta', text: 'x'.repeat(100_000) });
        return {
          type: 'failure',
          error: { code: 'protocol', message: 'The client was not waited for.', retryable: false },
        };
      },
    };
    await using server = await startInProcess(model);
    using socket = await openSocket(server.url);
    socket.ws.pause();
    socket.send(create('x'));
    for (let unchanged = 0, before = 0; unchanged < 20 && emitted < deltas; before = emitted) {
      await server.send('GET', '/v1/models');
      unchanged = emitted > 0 && emitted === before ? unchanged + 1 : 0;
    }
    expect(emitted).toBeLessThan(deltas);
  });

  test('shutting down closes idle sockets with 1001, and a response in progress is answered first', async () => {
    const reply = Promise.withResolvers<string>();
    const model = scriptedModel([() => reply.promise]);
    const server = await startInProcess(model);
    using idle = await openSocket(server.url);
    using busy = await openSocket(server.url);
    busy.send(create('x'));
    while (model.requests.length === 0) await new Promise(setImmediate);
    const stopped = server[Symbol.asyncDispose]();
    expect(await idle.closed).toBe(1001);
    expect((await busy.answer()).at(-1)).toMatchObject({ type: expect.stringMatching(/error|incomplete/) as string });
    expect(await busy.closed).toBe(1001);
    reply.resolve('late');
    await stopped;
  });
});
