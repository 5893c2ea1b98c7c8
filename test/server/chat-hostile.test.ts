import { request } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { text as textOf } from 'node:stream/consumers';
import { tool, type Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type ApiKey } from '@treadle/server';
import { expect, test } from 'vitest';
import { followChat, partsSeen, postChat } from './support/chat-events.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';

interface RawAnswer {
  readonly status: number;
  readonly text: string;
}

/** Sends a body in pieces, each in its own chunk, without a length. */
async function sendPieces(url: string, path: string, pieces: Iterable<Uint8Array>): Promise<RawAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<RawAnswer>();
  const sent = request(url + path, { method: 'POST', headers: { 'content-type': 'application/json' } }, (answer) => {
    textOf(answer).then((text) => resolve({ status: answer.statusCode!, text }), reject);
  });
  // The server closes the connection of a body that is too large.
  sent.on('error', reject);
  for (const piece of pieces) {
    if (sent.destroyed || sent.closed) break;
    sent.write(piece);
    await setImmediate();
  }
  sent.end();
  return promise;
}

const codeIn = ({ status, text }: RawAnswer): unknown[] => [status, JSON.parse(text).error.code];

const pay = tool({ name: 'pay', description: '', needsApproval: true, touches: () => [], execute: () => 'paid' });

async function expectStillAnswers(server: InProcessServer): Promise<void> {
  const { ended } = await postChat(server.url, { message: 'Hi' });
  expect((await ended).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
}

test('bodies that are not JSON, not an object or too large are rejected at every endpoint of a chat', async () => {
  using model = scriptedModel(['Hello', 'Still here']);
  await using server = await startInProcess(model, { maxBodyBytes: 10_000 });
  const first = await postChat(server.url, { message: 'Hi' });
  const { conversation_id: id } = await first.event('conversation_meta');
  await first.ended;
  const bytes = (text: string): Uint8Array[] => [Buffer.from(text)];
  const endpoints = ['', `/${id}/answers`, `/${id}/messages`, `/${id}/branch`, '/ui', '/ag-ui'];
  for (const path of endpoints.map((end) => `/v1/chat${end}`)) {
    for (const body of ['', '{"message":', '{"message":"a"}{}', '{"message":"\u0001"}']) {
      expect([path, body, ...codeIn(await sendPieces(server.url, path, bytes(body)))]).toEqual([
        path,
        body,
        400,
        'invalid_json',
      ]);
    }
    for (const body of ['null', '[]', '"text"', '5', '{"message":{"a":1}}', '{"__proto__":{"message":"x"}}']) {
      expect([path, body, (await sendPieces(server.url, path, bytes(body))).status]).toEqual([path, body, 400]);
    }
    const invalid = [Buffer.from('{"message":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')];
    expect(codeIn(await sendPieces(server.url, path, invalid))).toEqual([400, 'invalid_json']);
    const huge = await fetch(server.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ message: 'x'.repeat(10_001) }),
    });
    expect([path, huge.status, await huge.text()]).toEqual([path, 413, expect.stringContaining('"error"')]);
    const deep = `{"message":${'['.repeat(500)}${']'.repeat(500)}}`;
    expect([path, (await sendPieces(server.url, path, bytes(deep))).status]).toEqual([path, 400]);
  }
  await expectStillAnswers(server);
  expect(model.requests).toHaveLength(2);
});

test('invalid queries, titles and ids are rejected', async () => {
  using model = scriptedModel(['Hello', 'Still here']);
  await using server = await startInProcess(model);
  const first = await postChat(server.url, { message: 'Hi' });
  const { conversation_id: id } = await first.event('conversation_meta');
  await first.ended;
  for (const after of ['-1', 'x', '1.5', '1e99', '']) {
    const { status, body } = await server.send('GET', `/v1/chat/${id}/stream?after=${after}`);
    expect([after, status, body.error?.param]).toEqual([after, 400, 'after']);
  }
  for (const title of [5, '', 'x'.repeat(201), null]) {
    expect((await server.send('PATCH', `/v1/chat/${id}`, { title })).body.error.param).toBe('title');
  }
  for (const wrong of ['conv_', 'resp_1', '%00', '..%2f..', 'x'.repeat(5_000), "conv_' OR 1=1 --"]) {
    const { status } = await server.send('GET', `/v1/chat/${encodeURI(wrong)}`);
    expect([wrong.slice(0, 20), status]).toEqual([wrong.slice(0, 20), 404]);
  }
  await expectStillAnswers(server);
});

test('a call is executed once, if its approval is sent many times at once and again', async () => {
  let paid = 0;
  const once = tool({ name: 'pay', description: '', needsApproval: true, execute: () => `paid ${++paid}` });
  const both = { calls: [1, 2].map((amount) => ({ name: 'pay', arguments: { amount } })) };
  using model = scriptedModel([both, 'Paid.']);
  await using server = await startInProcess(model, { tools: [once], defaultTools: ['pay'] });
  const client = await postChat(server.url, { message: 'Pay' });
  const { conversation_id: id } = await client.event('conversation_meta');
  const asked = (n: number) =>
    client.event(({ type, arguments: text }) => type === 'approval_request' && text.includes(n));
  const approve = ({ id: ask, digest }: { [field: string]: unknown }) =>
    server.send('POST', `/v1/chat/${id}/answers`, { id: ask, approved: true, digest });
  const [one, two] = [await asked(1), await asked(2)];
  // The digest of another call.
  expect((await approve({ id: one['id'], digest: two['digest'] })).body.error.code).toBe('answer_unfit');
  const answers = await Promise.all(Array.from({ length: 5 }, () => approve(one)));
  expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409, 409, 409]);
  // The run still waits for the other call.
  expect((await approve(one)).body.error.code).toBe('answer_unfit');
  expect((await approve(two)).status).toBe(200);
  const events = await client.ended;
  expect(events.filter(({ type }) => type === 'tool_call_result')).toHaveLength(2);
  expect(paid).toBe(2);
});

test('open streams are limited for the server and for each tenant, and a message beyond the limit starts nothing', async () => {
  const scopes = ['chat:read', 'chat:write', 'runs:read', 'tools:execute'] as const;
  const keys = ['a', 'b'].map((name) => ({ name, tenant: name, hash: hashKey(`key-${name}`), scopes }));
  using model = scriptedModel([{ calls: [{ name: 'pay' }] }, 'Done.']);
  const options = { tools: [pay], defaultTools: ['pay'], keys, maxOpenStreams: 3 };
  await using server = await startInProcess(model, options);
  const headers = { authorization: 'Bearer key-a' };
  // The run waits, so it takes no capacity for runs.
  const client = await postChat(server.url, { message: 'Pay', on_disconnect: 'continue' }, { headers });
  const { id: ask, digest } = await client.event('approval_request');
  const { conversation_id: id, run_id: run } = client.events[0]!;
  const reader = await followChat(server.url, id, { headers });
  const refused = [
    ['GET', `/v1/chat/${id}/stream`],
    ['GET', `/v1/runs/${run}/events`],
    ['POST', '/v1/chat', { message: 'More' }],
    ['POST', '/v1/chat/ui', { id: 'x', messages: [{ role: 'user', parts: [{ type: 'text', text: 'More' }] }] }],
  ] as const;
  for (const [method, path, body] of refused) {
    const accept = path.includes('/events') ? { accept: 'text/event-stream' } : {};
    const answer = await server.send(method, path, body, { ...headers, ...accept });
    expect([path, answer.status, answer.body.error.code]).toEqual([path, 429, 'too_many_streams']);
  }
  expect((await server.send('GET', '/v1/chat', undefined, headers)).body.data).toHaveLength(1);
  reader.disconnect();
  await reader.ended;
  const answer = await server.send('POST', `/v1/chat/${id}/answers`, { id: ask, digest, approved: true }, headers);
  expect(answer.status).toBe(200);
  expect((await client.ended).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
  expect((await (await followChat(server.url, id, { headers })).ended).length).toBe(client.events.length);
});

test('an approval by a key of another tenant is a 404, and the call waits on', async () => {
  const scopes = ['chat:read', 'chat:write', 'tools:execute'] as const;
  const keys: readonly ApiKey[] = ['ann', 'bob'].map((name) => ({
    name,
    hash: hashKey(`tk_${name}`),
    tenant: name,
    scopes,
  }));
  const as = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });
  using model = scriptedModel([{ calls: [{ name: 'pay' }] }, 'Hello bob', 'Paid.']);
  await using server = await startInProcess(model, { tools: [pay], defaultTools: ['pay'], keys });
  const client = await postChat(server.url, { message: 'Pay' }, { headers: as('ann') });
  const { conversation_id: id } = await client.event('conversation_meta');
  const { id: ask, digest } = await client.event('approval_request');
  const own = await postChat(server.url, { message: 'Hi' }, { headers: as('bob') });
  const { conversation_id: bobs } = await own.event('conversation_meta');
  await own.ended;
  const answer = { id: ask, approved: true, digest };
  const approve = async (conversation: string, name: string): Promise<unknown[]> => {
    const { status, body } = await server.send('POST', `/v1/chat/${conversation}/answers`, answer, as(name));
    return [status, body.error?.code];
  };
  expect(await approve(id, 'bob')).toEqual([404, 'conversation_not_found']);
  expect(await approve(bobs, 'bob')).toEqual([404, 'request_not_found']);
  expect(await approve(bobs, 'ann')).toEqual([404, 'conversation_not_found']);
  expect(await approve(id, 'ann')).toEqual([200, undefined]);
  expect((await client.ended).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
});

const TEXT = 'Ä日本😀👩‍👩‍👧é"\\\u0000\u2028';

test.for(['cancel', 'continue'])('characters that are split across chunks arrive whole (%s)', async (on_disconnect) => {
  // A delta ends in the middle of a surrogate pair.
  const units = Array.from({ length: TEXT.length }, (_, at) => TEXT.charAt(at));
  let asked: unknown;
  const model: Model = {
    id: 'units',
    async reply({ messages }, emit) {
      asked = messages[0]!.content;
      for (const text of units) emit({ type: 'text-delta', text });
      const usage = { inputTokens: 1, outputTokens: 1 };
      return { type: 'reply', content: [{ type: 'text', text: TEXT }], finish: 'stop', usage, model: 'units' };
    },
  };
  await using server = await startInProcess(model);
  const body = Buffer.from(JSON.stringify({ message: TEXT, on_disconnect }));
  const pieces = Array.from(body, (byte) => Uint8Array.of(byte));
  const { status, text } = await sendPieces(server.url, '/v1/chat', pieces);
  expect(status).toBe(200);
  expect(asked).toEqual([{ type: 'text', text: TEXT }]);
  const events = text.split('\n').flatMap((line) => (line === '' ? [] : JSON.parse(line.slice('data: '.length))));
  expect(partsSeen(events)).toEqual([{ type: 'text', text: TEXT }]);
  const { body: stored } = await server.send('GET', `/v1/chat/${events[0].conversation_id}`);
  expect(stored.messages[0].content).toBe(TEXT);
  expect(stored.messages[1].parts).toEqual([{ type: 'text', text: TEXT }]);
  const again = await fetch(`${server.url}/v1/chat/${events[0].conversation_id}/stream`);
  if (on_disconnect === 'continue') expect(await again.text()).toBe(text);
  else expect((await again.text()).match(/^data: /gm)).toHaveLength(1);
});
