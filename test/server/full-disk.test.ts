import { tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import OpenAI from 'openai';
import { expect, onTestFinished, test } from 'vitest';
import { startInProcess } from './support/in-process.ts';
import { limitedStore, type LimitedStore } from './support/limited-store.ts';
import { openSocket } from './support/socket-client.ts';

/** More than the free pages of a store that has just been opened. */
const LONG = 'x'.repeat(500_000);
const UNAVAILABLE = {
  message: expect.stringMatching(/^The server cannot use its store at the moment\. Retry later\. .*request id req_/),
  type: 'server_error',
  param: null,
  code: 'store_unavailable',
};

/** In SQLite, which can be given a limit. A full disk of PostgreSQL is in `test/store/postgres-outage.test.ts`. */
function memoryStore(): LimitedStore {
  const limited = limitedStore(() => sqliteStore(':memory:'));
  onTestFinished(() => limited.store.close());
  return limited;
}

const user = { role: 'user', content: LONG };
const ui = (text: string): object => ({ id: 'a', messages: [{ role: 'user', parts: [{ type: 'text', text }] }] });
const agUi = (content: string): object => ({ threadId: 'b', runId: 'r', messages: [{ role: 'user', content }] });

test('a request that does not fit on the disk gets a 503 with Retry-After in every API, and works again later', async () => {
  const limited = memoryStore();
  const { store } = limited;
  const act = tool({ name: 'act', description: '', touches: () => [], execute: () => 'done' });
  const model = scriptedModel(['Hello.', 'Later.']);
  await using server = await startInProcess(model, { store, tools: [act] });
  const { id } = (await server.send('POST', '/v1/conversations', {})).body;
  const { id: response } = (await server.send('POST', '/v1/responses', { input: 'Hi' })).body;
  limited.fill();
  for (const [path, body, headers = {}] of [
    ['/v1/responses', { input: LONG }],
    ['/v1/responses', { input: LONG, stream: true }],
    ['/v1/responses', { input: LONG, background: true }],
    ['/v1/responses', { input: LONG, previous_response_id: response }],
    ['/v1/responses', { input: LONG, conversation: id }],
    ['/v1/responses', { input: LONG }, { 'idempotency-key': 'a' }],
    ['/v1/chat/completions', { messages: [user] }, { 'idempotency-key': 'b' }],
    ['/v1/chat/completions', { messages: [user], stream: true }, { 'idempotency-key': 'c' }],
    ['/v1/chat', { message: LONG }],
    ['/v1/chat', { message: LONG, conversation_id: id, on_disconnect: 'continue' }],
    ['/v1/chat/ui', ui(LONG)],
    ['/v1/chat/ag-ui', agUi(LONG)],
    ['/v1/conversations', { items: [user] }],
    [`/v1/conversations/${id}/items`, { items: [user] }],
  ] as const) {
    const answer = await fetch(server.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const seen = { path, status: answer.status, after: answer.headers.get('retry-after'), body: await answer.json() };
    expect(seen).toEqual({ path, status: 503, after: '5', body: { error: UNAVAILABLE } });
  }
  const unstored = await server.send('POST', '/v1/messages', { model: 'm', max_tokens: 9, messages: [user] });
  const details = { error_code: 'response_interrupted' };
  expect(unstored).toMatchObject({
    status: 503,
    body: { error: { message: expect.stringMatching(/Send the request again/), details } },
  });
  using socket = await openSocket(server.url);
  expect(await socket.create({ input: LONG })).toMatchObject({
    type: 'error',
    status: 503,
    headers: { 'Retry-After': '5' },
    error: UNAVAILABLE,
  });
  const params = { name: 'act', arguments: { text: LONG } };
  const called = await fetch(`${server.url}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
  });
  const [, frame = '{}'] = /^data: (.*)$/m.exec(await called.text()) ?? [];
  expect(JSON.parse(frame)).toMatchObject({
    error: { code: -32603, message: UNAVAILABLE.message, data: { code: 'store_unavailable', retry_after: 5 } },
  });
  // What is stored can still be read.
  expect(await server.get(response)).toMatchObject({ status: 'completed' });
  expect(await server.send('GET', `/v1/chat/${id}`)).toMatchObject({ status: 200 });

  limited.free();
  const again = await server.post({ input: LONG }, { 'idempotency-key': 'a' });
  expect([again.status, model.requests.length]).toEqual([200, 2]);
});

test('the official client retries, and gets the answer when there is space again', async () => {
  const limited = memoryStore();
  await using server = await startInProcess(scriptedModel(['Done.']), { store: limited.store });
  limited.fill();
  const statuses: number[] = [];
  const client = new OpenAI({
    baseURL: `${server.url}/v1`,
    apiKey: '-',
    maxRetries: 1,
    async fetch(...request) {
      const answer = await fetch(...request);
      statuses.push(answer.status);
      limited.free();
      // Not five seconds.
      const headers = new Headers(answer.headers);
      if (headers.has('retry-after')) headers.set('retry-after-ms', '1');
      return new Response(answer.body, { status: answer.status, headers });
    },
  });
  const { output_text: text } = await client.responses.create({ model: 'm', input: LONG });
  expect([text, statuses]).toEqual(['Done.', [503, 200]]);
});

test.each([
  ['/v1/chat', { message: 'Hi' }],
  ['/v1/chat', { message: 'Hi', on_disconnect: 'continue' }],
  ['/v1/chat/ui', ui('Hi')],
  ['/v1/chat/ag-ui', agUi('Hi')],
])('a stream of %s %j ends with an error if the disk gets full during the answer', async (path, body) => {
  const limited = memoryStore();
  const model = scriptedModel([
    () => {
      limited.fill();
      return LONG;
    },
  ]);
  await using server = await startInProcess(model, { store: limited.store });
  const answer = await fetch(server.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  expect(text).toContain('The server cannot store the response at the moment.');
  expect(text).not.toMatch(/"(status|finishReason)":"(completed|stop)"/);
});
