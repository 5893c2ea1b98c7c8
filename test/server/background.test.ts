import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { connect } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { tool, type Model, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import type { Store } from '@treadle/store';
import OpenAI from 'openai';
import type { Response, ResponseStreamEvent } from 'openai/resources/responses/responses';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { followBackground, postBackground } from './support/background-events.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import type { StreamEvent } from './support/responses-client.ts';
import { validateStream } from './support/stream-rules.ts';
import { openTestStore } from './support/test-store.ts';

let cleanUp: AsyncDisposableStack;
let file: string;

beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-background-'));
  cleanUp.defer(() => rm(folder, { recursive: true }));
  file = path.join(folder, 'runs.db');
});
afterEach(() => cleanUp.disposeAsync());

const openStore = async (): Promise<Store> => cleanUp.adopt(await openTestStore(file), (store) => store.close());
const start = async (...options: Parameters<typeof startInProcess>): Promise<InProcessServer> =>
  cleanUp.use(await startInProcess(...options));
const clientOf = ({ url }: { readonly url: string }): OpenAI =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 });

/** A model that says a word, waits until the test releases it, and says the rest. */
interface HeldModel {
  readonly model: Model;
  readonly reached: Promise<void>;
  readonly release: () => void;
}

function heldModel(): HeldModel {
  const reached = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const model: Model = {
    id: 'held',
    async reply(_request, emit, signal) {
      emit({ type: 'text-delta', text: 'Well, ' });
      reached.resolve();
      await Promise.race([released.promise, new Promise((resolve) => signal.addEventListener('abort', resolve))]);
      signal.throwIfAborted();
      emit({ type: 'text-delta', text: 'done.' });
      const usage = { inputTokens: 1, outputTokens: 2 };
      return { type: 'reply', content: [{ type: 'text', text: 'Well, done.' }], finish: 'stop', usage, model: 'held' };
    },
  };
  return { model, reached: reached.promise, release: released.resolve };
}

async function polled(client: OpenAI, id: string): Promise<Response> {
  for (;;) {
    const response = await client.responses.retrieve(id);
    if (response.status !== 'queued' && response.status !== 'in_progress') return response;
    await setImmediate();
  }
}

const numbers = (events: readonly { readonly sequence_number: number }[]): number[] =>
  events.map(({ sequence_number: number }) => number);
const idIn = ([first]: readonly StreamEvent[]): string => first!.response!.id;

describe('a background response, with the official client', () => {
  test('is queued when it is created, then in progress, and completed when it has ended', async () => {
    const { model, reached, release } = heldModel();
    const client = clientOf(await start(model));
    const created = await client.responses.create({ model: 'm', input: 'Hi', background: true });
    expect(created).toMatchObject({ status: 'queued', background: true, output: [] });
    await reached;
    expect(await client.responses.retrieve(created.id)).toMatchObject({ status: 'in_progress' });
    release();
    expect(await polled(client, created.id)).toMatchObject({ status: 'completed', output_text: 'Well, done.' });
  });

  test('goes on if its client disconnects, and its stream continues after any event', async () => {
    const { model, reached, release } = heldModel();
    const client = clientOf(await start(model));
    const stream = await client.responses.create({ model: 'm', input: 'Hi', background: true, stream: true });
    const seen: ResponseStreamEvent[] = [];
    for await (const event of stream) {
      seen.push(event);
      if (event.type === 'response.output_text.delta') break;
    }
    await reached;
    const { id } = (seen[0] as { readonly response: Response }).response;
    const after = seen.at(-1)!.sequence_number;
    const resumed = await client.responses.retrieve(id, { stream: true, starting_after: after });
    release();
    const rest = await Array.fromAsync(resumed);
    const whole = [...seen, ...rest];
    expect(numbers(whole)).toEqual(whole.map((_, index) => index));
    expect(whole.slice(0, 3).map(({ type }) => type)).toEqual([
      'response.created',
      'response.queued',
      'response.in_progress',
    ]);
    validateStream(whole as unknown as readonly StreamEvent[]);
    expect(await Array.fromAsync(await client.responses.retrieve(id, { stream: true }))).toEqual(whole);
  });

  test('is cancelled, also at another server with the store, and its stream ends', async () => {
    const { model, reached } = heldModel();
    const server = await start(model, { store: await openStore() });
    const other = clientOf(await start(scriptedModel([]), { store: await openStore() }));
    const { id } = await clientOf(server).responses.create({ model: 'm', input: 'Hi', background: true });
    await reached;
    expect(await other.responses.retrieve(id)).toMatchObject({ status: 'in_progress' });
    const following = followBackground(server.url, id);
    expect(await other.responses.cancel(id)).toMatchObject({ status: 'cancelled' });
    const response = validateStream(await (await following).ended, { wasResumed: true });
    expect(response).toMatchObject({ status: 'cancelled' });
    expect(await other.responses.cancel(id)).toMatchObject({ status: 'cancelled' });
  });

  test('is continued by another response when it has ended', async () => {
    const client = clientOf(await start(scriptedModel(['One.', 'Two.'])));
    const { id } = await client.responses.create({ model: 'm', input: 'Hi', background: true });
    await polled(client, id);
    const next = await client.responses.create({ model: 'm', input: 'And?', previous_response_id: id });
    expect(next.output_text).toBe('Two.');
  });

  test('of a model that fails is failed, and its stream has the error', async () => {
    const server = await start(scriptedModel([() => Promise.reject(new Error('broken'))]));
    const client = clientOf(server);
    const { id } = await client.responses.create({ model: 'm', input: 'Hi', background: true });
    expect(await polled(client, id)).toMatchObject({ status: 'failed', error: { code: expect.any(String) } });
    validateStream(await (await followBackground(server.url, id)).ended);
  });
});

describe('the stream of a background response', () => {
  test('continues after Last-Event-ID, which is newer than the URL', async () => {
    const { url } = await start(scriptedModel(['Hello there.']));
    const whole = await (await postBackground(url, { input: 'Hi' })).ended;
    const headers = { 'last-event-id': '4' };
    const rest = await (await followBackground(url, idIn(whole), { after: 1, headers })).ended;
    expect(rest).toEqual(whole.slice(5));
    const refused = await fetch(`${url}/v1/responses/${idIn(whole)}?stream=true&starting_after=1`, {
      headers: { 'last-event-id': 'x' },
    });
    expect(await refused.json()).toMatchObject({ error: { param: 'Last-Event-ID' } });
  });

  test('is cut without [DONE] when the server shuts down, and continues after the restart', async () => {
    const store = await openStore();
    const held = heldModel();
    const server = await start(held.model, { store });
    const client = await postBackground(server.url, { input: 'Hi' });
    await client.event('response.output_text.delta');
    await server[Symbol.asyncDispose]();
    const seen = await client.ended;
    expect(client.hasEndMark).toBe(false);
    const next = await start(scriptedModel(['Well, done.']), { store });
    expect(next.recovered).toBe(1);
    const rest = await followBackground(next.url, idIn(seen), { after: seen.at(-1)!.sequence_number });
    const whole = [...seen, ...(await rest.ended)];
    expect(rest.hasEndMark).toBe(true);
    const response = validateStream(whole, { wasResumed: true });
    expect(response.output).toMatchObject([{ status: 'incomplete' }, { status: 'completed' }]);
    expect(new Set(response.output.map(({ id }) => id)).size).toBe(2);
  });

  test('of one that cannot be resumed ends with its failure', async () => {
    const store = await openStore();
    const held = heldModel();
    const server = await start(held.model, { store });
    const client = await postBackground(server.url, { input: 'Hi', model: 'm' });
    await client.event('response.output_text.delta');
    await server[Symbol.asyncDispose]();
    const seen = await client.ended;
    const models = { default: 'n', models: new Map([['n', scriptedModel([])]]) };
    const next = await start(scriptedModel([]), { store, models });
    const rest = await followBackground(next.url, idIn(seen), { after: seen.at(-1)!.sequence_number });
    const response = validateStream([...seen, ...(await rest.ended)]);
    expect(response).toMatchObject({ status: 'failed', output: [{ status: 'incomplete' }] });
    expect(await next.get(idIn(seen))).toEqual(response);
  });

  test('is the same for a repeated request with the same Idempotency-Key', async () => {
    const { post } = await start(scriptedModel(['Hello there.']));
    const headers = { 'Idempotency-Key': 'k' };
    const body = { input: 'Hi', background: true, stream: true };
    const { text } = await post(body, headers);
    expect(text).toContain('response.completed');
    expect(await post(body, headers)).toMatchObject({ text });
  });

  test('is deleted with the response', async () => {
    const store = await openStore();
    const { url, send } = await start(scriptedModel(['Hello there.']), { store });
    const id = idIn(await (await postBackground(url, { input: 'Hi' })).ended);
    await send('DELETE', `/v1/responses/${id}`);
    expect(await send('GET', `/v1/responses/${id}?stream=true`)).toMatchObject({ status: 404 });
    expect(await store.streams.last(`events_${id}`)).toBe(0);
  });

  test('of a call for the client shows requires_action only to those who want it', async () => {
    const { url } = await start(scriptedModel([{ calls: [{ name: 'ask' }] }]));
    const tools = [{ type: 'function', name: 'ask', parameters: {} }];
    const whole = await (await postBackground(url, { input: 'Hi', tools })).ended;
    expect(whole.at(-1)!.response).toMatchObject({ status: 'completed' });
    const headers = { 'treadle-status': 'requires_action' };
    const again = await (await followBackground(url, idIn(whole), { headers })).ended;
    expect(again.at(-1)!.response).toMatchObject({ status: 'requires_action' });
    expect(again.slice(0, -1)).toEqual(whole.slice(0, -1));
  });
});

test('the stream of a background response that waited for a result goes on when it is answered', async () => {
  const store = await openStore();
  const server = await start(scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']), { store, waitForAnswers: true });
  const tools = [{ type: 'function', name: 'ask', parameters: {} }];
  const before = await (await postBackground(server.url, { input: 'Hi', tools })).ended;
  const id = idIn(before);
  const { body } = await server.send('GET', `/v1/runs/${id}`);
  const answers = [{ type: 'result', effect: body.waiting[0].effect, content: 'Yes.' }];
  expect(await server.send('POST', `/v1/runs/${id}/answers`, { answers })).toMatchObject({ status: 200 });
  const rest = await (await followBackground(server.url, id, { after: before.at(-1)!.sequence_number })).ended;
  const whole = [...before, ...rest];
  expect(numbers(whole)).toEqual(whole.map((_, index) => index));
  const { output, status } = rest.at(-1)!.response!;
  expect(status).toBe('completed');
  expect(output.map(({ type }) => type)).toEqual(['function_call', 'message']);
  expect(await server.getEnded(id)).toMatchObject({ status, output });
});

describe('the stream of another stored response', () => {
  test('is made from its output, also if it is in progress when the client asks for it', async () => {
    const { model, reached, release } = heldModel();
    const server = await start(model, { store: await openStore() });
    const other = await start(scriptedModel([]), { store: await openStore() });
    const posted = server.post({ input: 'Hi' });
    await reached;
    const { body } = await other.send('GET', '/v1/runs');
    const id = body.data[0].id as string;
    const answers = await Promise.all([server, other].map(({ url }) => fetch(`${url}/v1/responses/${id}?stream=true`)));
    release();
    await posted;
    for (const text of await Promise.all(answers.map((answer) => answer.text()))) {
      expect(text).toContain('"delta":"Well, done."');
      expect(text).toMatch(/event: response\.completed\n[^\n]*\n\ndata: \[DONE\]\n\n$/);
    }
  });

  test('cannot be continued after a number, which differs from those of its first stream', async () => {
    const { send, post } = await start(scriptedModel(['Hi.']));
    const { id } = JSON.parse((await post({ input: 'Hi' })).text) as { id: string };
    const { status, body } = await send('GET', `/v1/responses/${id}?stream=true&starting_after=2`);
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param: 'starting_after', code: 'stream_not_stored' });
    const invalid = await send('GET', `/v1/responses/${id}?stream=true&starting_after=x`);
    expect(invalid).toMatchObject({ status: 400, body: { error: { param: 'starting_after' } } });
  });
});

test('50 background responses over a restart complete, and each call of a tool is in its output once', async () => {
  const store = await openStore();
  const COUNT = 50;
  let waiting = 0;
  const all = Promise.withResolvers<void>();
  const hold: Tool = tool({
    name: 'hold',
    description: '',
    effect: 'pure',
    async execute(_input, { signal }) {
      if (++waiting === COUNT) all.resolve();
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('stopped'))));
      return '';
    },
  });
  const model = (): Model => ({
    id: 'caller',
    async reply({ messages }) {
      const isDone = messages.some(({ role }) => role === 'tool');
      const usage = { inputTokens: 1, outputTokens: 1 };
      return isDone
        ? { type: 'reply', content: [{ type: 'text', text: 'Done.' }], finish: 'stop', usage, model: 'm' }
        : {
            type: 'reply',
            content: [{ type: 'tool-call', id: 'c', name: 'hold', arguments: '{}' }],
            finish: 'tool-calls',
            usage,
            model: 'm',
          };
    },
  });
  const server = await start(model(), { store, tools: [hold], defaultTools: ['hold'] });
  const created = await Promise.all(
    Array.from({ length: COUNT }, () => server.send('POST', '/v1/responses', { input: 'Hi', background: true })),
  );
  const ids = created.map(({ body }) => body.id as string);
  await all.promise;
  await server[Symbol.asyncDispose]();
  const quick: Tool = tool({ name: 'hold', description: '', effect: 'pure', execute: () => 'held' });
  const next = await start(model(), { store, tools: [quick], defaultTools: ['hold'] });
  expect(next.recovered).toBe(COUNT);
  for (const id of ids) {
    const events = await (await followBackground(next.url, id)).ended;
    const response = validateStream(events);
    expect(response.output).toMatchObject([{ type: 'mcp_call', output: 'held' }, { type: 'message' }]);
  }
});

test.each([{ background: false }, { background: true }])(
  'each event is one chunk with LF only and its type as its name, and [DONE] is last: %j',
  async (body) => {
    const { url } = await start(scriptedModel([{ text: 'Line\r\none\u2028 two.\n\nThree' }]));
    const { hostname, port } = new URL(url);
    const json = JSON.stringify({ input: 'Hi', stream: true, ...body });
    const headers = `Host: ${hostname}\r\nConnection: close\r\nContent-Type: application/json`;
    const socket = connect(Number(port), hostname);
    socket.write(`POST /v1/responses HTTP/1.1\r\n${headers}\r\nContent-Length: ${json.length}\r\n\r\n${json}`);
    const received = await text(socket);
    const chunks = received
      .slice(received.indexOf('\r\n\r\n') + 4)
      .split('\r\n')
      .filter((_, index) => index % 2 === 1)
      .slice(0, -1);
    expect(chunks.pop()).toBe('data: [DONE]\n\n');
    expect(chunks.length).toBeGreaterThan(5);
    for (const [number, chunk] of chunks.entries()) {
      const id = body.background ? `id: ${number}\n` : '';
      const { type } = JSON.parse(chunk.slice(chunk.indexOf('\ndata: ') + 7)) as { type: string };
      expect(chunk).toMatch(/^[^\r]*[^\r\n]\n\n$/);
      expect(chunk.startsWith(`${id}event: ${type}\ndata: {`)).toBe(true);
      expect(chunk.split('\n')).toHaveLength(body.background ? 5 : 4);
    }
  },
);
