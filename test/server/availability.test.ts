import { request as httpRequest } from 'node:http';
import type { Model, ModelReply } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import { expect, test } from 'vitest';
import { responseIdIn, startInProcess } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

/** Answers requests that say so, and leaves the others waiting. `waiting` resolves when so many requests wait. */
function waitingModel(): {
  readonly model: Model;
  readonly waiting: (count: number) => Promise<void>;
  readonly count: () => number;
} {
  const answering = scriptedModel(Array<string>(12).fill('Done.'));
  let count = 0;
  let onRequest = (): void => {};
  const model: Model = {
    ...answering,
    async reply(request, emit, signal) {
      if (!JSON.stringify(request.messages.at(-1)).includes('wait')) return answering.reply(request, emit, signal);
      count += 1;
      onRequest();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return { type: 'failure', error: { code: 'cancelled', message: '', retryable: false } } satisfies ModelReply;
    },
  };
  return {
    model,
    count: () => count,
    waiting: (expected) =>
      new Promise((resolve) => {
        onRequest = () => void (count >= expected && resolve());
        onRequest();
      }),
  };
}

const MESSAGE = { role: 'user', content: 'x'.repeat(800_000) };

test('large conversations in progress are limited by their bytes, although requests that continue them are small', async () => {
  const { model, waiting } = waitingModel();
  await using server = await startInProcess(model, { maxBytesInProgress: 3_400_000 });
  const first = await server.post({ input: [MESSAGE] });
  const request = { input: 'wait', previous_response_id: responseIdIn(first.text) };
  const stop = new AbortController();
  const others = [1, 2].map(() => streamed(server.url, '/v1/responses', request, stop.signal));
  await waiting(2);
  const refused = await streamed(server.url, '/v1/responses', request, stop.signal);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '2']);
  expect(await refused.json()).toMatchObject({ error: { type: 'rate_limit_error', code: 'too_many_bytes' } });
  expect((await fetch(`${server.url}/v1/models`)).status).toBe(200);
  await Promise.all(others);
  stop.abort();
});

test('completions in progress are limited by the bytes of their conversations', async () => {
  const { model, waiting } = waitingModel();
  await using server = await startInProcess(model, { maxBytesInProgress: 3_400_000 });
  const request = { model: 'm', messages: [MESSAGE, { role: 'user', content: 'wait' }] };
  const stop = new AbortController();
  const other = streamed(server.url, '/v1/chat/completions', request, stop.signal);
  await waiting(1);
  const refused = await streamed(server.url, '/v1/chat/completions', request, stop.signal);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '2']);
  await other;
  stop.abort();
});

test('every route that reads a stored conversation is limited by its bytes', async () => {
  const { model, waiting } = waitingModel();
  const store = await openTestStore();
  await using server = await startInProcess(model, { store, maxBytesInProgress: 7_600_000 });
  const post = { method: 'POST', headers: { 'content-type': 'application/json' } };
  const bodyOf = (body: object): RequestInit => ({ ...post, body: JSON.stringify(body) });
  const answered = (await server.post({ input: [MESSAGE] })).text;
  const previous = responseIdIn(answered);
  const reference = { type: 'item_reference', id: /msg_\w+/.exec(answered)![0] };
  const chat = await fetch(`${server.url}/v1/chat`, bodyOf({ message: MESSAGE.content }));
  const conversation = /conv_\w+/.exec(await chat.text())![0];
  const small = { type: 'message', role: 'user', content: 'Hello' };
  const items = [
    { ...small, id: 'msg_large', content: MESSAGE.content },
    { ...small, id: 'msg_small' },
  ];
  const created = await fetch(`${server.url}/v1/conversations`, bodyOf({ items }));
  const added = /conv_\w+/.exec(await created.text())![0];
  const routes: readonly (readonly [string, RequestInit?])[] = [
    [`/v1/runs/${previous}`],
    [`/v1/runs/${previous}/events`],
    [`/v1/runs/${previous}/export`],
    [`/v1/runs/${previous}/replay`, post],
    [`/v1/responses/${previous}`],
    [`/v1/responses/${previous}/input_items`],
    ['/v1/responses/input_tokens', bodyOf({ input: 'a', previous_response_id: previous })],
    ['/v1/responses/compact', bodyOf({ model: 'm', previous_response_id: previous })],
    [`/v1/chat/${conversation}`],
    [`/v1/chat/${conversation}/export?format=markdown`],
    ['/v1/chat', bodyOf({ conversation_id: conversation, message: 'Hello' })],
    [`/v1/runs/${previous}/fork`, bodyOf({ at: 0 })],
    ['/v1/responses', bodyOf({ input: 'Hello', previous_response_id: previous })],
    ['/v1/conversations', bodyOf({ items: [reference] })],
    [`/v1/conversations/${conversation}/items`],
    [`/v1/conversations/${conversation}/items`, bodyOf({ items: [{ ...small, id: 'msg_own' }] })],
    [`/v1/conversations/${added}/items?order=asc&limit=1`],
    [`/v1/conversations/${added}/items/msg_large`],
    [`/v1/conversations/${added}/items/msg_small`, { method: 'DELETE' }],
    [`/v1/chat/${added}`],
    ['/v1/responses/input_tokens', bodyOf({ input: 'a', conversation: added })],
    ['/v1/responses', bodyOf({ input: 'Hello', conversation: added })],
    ['/v1/chat', bodyOf({ conversation_id: added, message: 'Hello' })],
    [`/v1/responses/${previous}`, { method: 'DELETE' }],
  ];
  const statuses = async (): Promise<unknown> => {
    const found: [string, number, string | null][] = [];
    for (const [path, init] of routes) {
      const answer = await fetch(server.url + path, init);
      await answer.text();
      found.push([path, answer.status, answer.headers.get('retry-after')]);
    }
    return found;
  };
  const stop = new AbortController();
  const request = { input: [MESSAGE, MESSAGE, { role: 'user', content: 'wait' }] };
  const running = await streamed(server.url, '/v1/responses', request, stop.signal);
  await waiting(1);
  expect(await statuses()).toEqual(routes.map(([path]) => [path, 429, '2']));
  const events = await fetch(`${server.url}/v1/runs/${previous}/events`, { headers: { accept: 'text/event-stream' } });
  expect(await events.text()).toContain('too_many_bytes');
  const id = responseIdIn((await running.body!.pipeThrough(new TextDecoderStream()).getReader().read()).value!);
  await server.send('POST', `/v1/responses/${id}/cancel`);
  expect(await statuses()).toEqual(routes.map(([path]) => [path, 200, null]));
  stop.abort();
  await server[Symbol.asyncDispose]();
  await store.close();
});

test('an export counts a run and its long results before it reads them', async () => {
  const { model, waiting } = waitingModel();
  const store = await openTestStore();
  const read: string[] = [];
  const watched: typeof store = {
    ...store,
    read: (runId, from) => (read.push(runId), store.read(runId, from)),
    blobs: {
      ...store.blobs,
      read(runId, id, from, to) {
        if (to > 0) read.push(id);
        return store.blobs.read(runId, id, from, to);
      },
    },
  };
  await using server = await startInProcess(model, { store: watched, maxBytesInProgress: 7_600_000 });
  const large = responseIdIn((await server.post({ input: [MESSAGE] })).text);
  const small = responseIdIn((await server.post({ input: 'Hello' })).text);
  const result = await store.blobs.put(small, MESSAGE.content);
  const stop = new AbortController();
  const request = { input: [MESSAGE, MESSAGE, { role: 'user', content: 'wait' }] };
  await streamed(server.url, '/v1/responses', request, stop.signal);
  await waiting(1);
  read.length = 0;
  const exported = async (id: string): Promise<number> => (await fetch(`${server.url}/v1/runs/${id}/export`)).status;
  expect([await exported(large), await exported(small)]).toEqual([429, 429]);
  expect(read).toEqual([small]);
  stop.abort();
  await server.send('POST', `/v1/responses/${(await store.requests.unfinished())[0]!.id}/cancel`);
  expect(await exported(small)).toBe(200);
  expect(read).toEqual([small, small, result]);
  await server[Symbol.asyncDispose]();
  await store.close();
});

test.each([
  ['responses', '/v1/responses', { input: [MESSAGE, { role: 'user', content: 'wait' }], background: true }],
  ['conversations', '/v1/chat', { message: `${MESSAGE.content} wait`, on_disconnect: 'continue' }],
  ['completions', '/v1/chat/completions', { messages: [MESSAGE, { role: 'user', content: 'wait' }], stream: true }],
  ['messages', '/v1/messages', { messages: [MESSAGE, { role: 'user', content: 'wait' }], max_tokens: 9, stream: true }],
])('%s that are resumed are limited by their bytes, and stay in progress', async (_, path, request) => {
  const store = await openTestStore();
  const { model, waiting, count } = waitingModel();
  const server = await startInProcess(model, { store });
  const stop = new AbortController();
  for (const key of ['one', 'two']) {
    // Chats refuse a key.
    const keyed = path !== '/v1/chat' && { 'idempotency-key': key };
    const headers = { 'content-type': 'application/json', ...keyed };
    const init = { method: 'POST', headers, body: JSON.stringify({ model: 'm', ...request }), signal: stop.signal };
    void fetch(server.url + path, init).catch(() => {});
  }
  await waiting(2);
  await server[Symbol.asyncDispose]();
  stop.abort();
  const next = await startInProcess(model, { store, maxBytesInProgress: 3_400_000 });
  await waiting(3);
  expect([next.recovered, count()]).toEqual([1, 3]);
  await next[Symbol.asyncDispose]();
  expect(await store.requests.unfinished()).toHaveLength(2);
  await store.close();
});

function streamed(url: string, path: string, body: object, signal: AbortSignal): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(url + path, { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true }), signal });
}

test('by default, one of several tenants gets half of the runs', async () => {
  const { model, waiting } = waitingModel();
  const keys = ['a', 'b'].map((tenant) => ({ name: tenant, hash: hashKey(`tk_${tenant}`), tenant }));
  await using server = await startInProcess(model, { keys, maxConcurrentRuns: 2 });
  const asTenant = (tenant: string): Record<string, string> => ({ authorization: `Bearer tk_${tenant}` });
  const running = server.post({ input: 'wait', stream: true }, asTenant('a'));
  await waiting(1);
  const { status, text } = await server.post({ input: 'Hello' }, asTenant('a'));
  expect([status, JSON.parse(text)]).toMatchObject([429, { error: { code: 'too_many_runs' } }]);
  expect((await server.post({ input: 'Hello' }, asTenant('b'))).status).toBe(200);
  await server[Symbol.asyncDispose]();
  await running.catch(() => {});
});

test('by default, a body of more than 16 MiB is rejected before it arrives', async () => {
  await using server = await startInProcess(scriptedModel(['Done.']));
  const headers = { 'content-type': 'application/json', 'content-length': 16 * 1024 * 1024 + 1 };
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const sent = httpRequest(`${server.url}/v1/responses`, { method: 'POST', headers, agent: false }, (answer) => {
      resolve(answer.statusCode);
      sent.destroy();
    });
    sent.on('error', reject);
    sent.flushHeaders();
  });
  expect(status).toBe(413);
});

test('the pieces of large requests start in different turns of the event loop', async () => {
  let turn = 0;
  let timer = setImmediate(function count() {
    turn++;
    timer = setImmediate(count);
  });
  const starts: [string, number][] = [];
  const created = new Map<string, number>();
  const appended = new Map<string, number>();
  const answering = scriptedModel(Array<string>(6).fill('Done.'));
  const model: Model = {
    ...answering,
    reply(...request) {
      starts.push(['model', turn]);
      return answering.reply(...request);
    },
  };
  const opened = await openTestStore();
  const store = {
    ...opened,
    append: (...[run, entries, ...more]: Parameters<typeof opened.append>) => {
      if (entries[0]?.seq === 0) {
        starts.push(['append', turn]);
        appended.set(run, turn);
      }
      return opened.append(run, entries, ...more);
    },
    requests: {
      ...opened.requests,
      async create(...request: Parameters<typeof opened.requests.create>) {
        await opened.requests.create(...request);
        created.set(request[0].runId, turn);
      },
      get(tenant: string, id: string) {
        starts.push(['read', turn]);
        // As long as a large response takes.
        for (const end = performance.now() + 6; performance.now() < end;);
        return opened.requests.get(tenant, id);
      },
    },
  };
  await using server = await startInProcess(model, { store });
  const input = 'x'.repeat(300_000);
  const answers = await Promise.all(
    [true, true, true, false, false, false].map((stored) => server.post({ input, store: stored })),
  );
  expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
  expect(starts.map(([kind]) => kind).toSorted()).toEqual([...Array(3).fill('append'), ...Array(6).fill('model')]);
  const id = responseIdIn(answers[0]!.text);
  await Promise.all([1, 2, 3].map(() => server.get(id)));
  clearImmediate(timer);
  // The run starts as soon as the response is created.
  expect([...appended].filter(([run, at]) => created.get(run) === at)).toEqual([]);
  expect([created.size, appended.size]).toEqual([3, 3]);
  expect(new Set(starts.map(([, at]) => at)).size).toBe(starts.length);
});
