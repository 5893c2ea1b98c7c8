import { hashKey } from '@treadle/server';
import { describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, useServerFixture, WEATHER } from './support/fixture.ts';
import {
  responsesClient,
  callsIn,
  outputFor,
  textIn,
  type HttpResult,
  type ResponsesClient,
  type WireError,
} from './support/responses-client.ts';

const SCOPES = ['agents:invoke', 'tools:execute', 'chat:read', 'chat:write'] as const;
const fixture = useServerFixture({
  defaultTools: ['add'],
  requiresAction: true,
  chatTitles: false,
  keys: [
    { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: SCOPES },
    { name: 'abe', hash: hashKey('tk_abe'), tenant: 'acme', scopes: SCOPES },
    { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: SCOPES },
    { name: 'plain', hash: hashKey('tk_plain'), tenant: 'plain' },
    { name: 'idle', hash: hashKey('tk_idle'), scopes: ['tools:execute'] },
    { name: 'slow', hash: hashKey('tk_slow'), requestsPerMinute: 2 },
  ],
});
const as = (key: string): ResponsesClient =>
  responsesClient(() => fixture.server.url, { authorization: `Bearer ${key}` });
const [ann, abe, bob] = [as('tk_ann'), as('tk_abe'), as('tk_bob')];
const errorOf = ({ body }: HttpResult): WireError['error'] => (body as WireError).error;

describe('a response of another tenant', () => {
  test('is indistinguishable from an unknown response on every route', async () => {
    const script = await fixture.script({ text: 'Of Acme only.' }, { text: 'Still there.' });
    const { id } = await ann.respond({ model: script.model, input: 'Hi' });
    const never = `resp_${'f'.repeat(32)}`;
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/cancel'],
      ['GET', '/input_items'],
    ] as const) {
      const foreign = await bob.send(method, `/v1/responses/${id}${path}`);
      const unknown = await bob.send(method, `/v1/responses/${never}${path}`);
      expect(foreign.status).toBe(404);
      expect(JSON.stringify(foreign.body).replaceAll(id, never)).toBe(JSON.stringify(unknown.body));
    }
    expect(textIn(await ann.retrieve(id))).toBe('Of Acme only.');
    expect(textIn(await abe.retrieve(id))).toBe('Of Acme only.');
    expect(textIn(await abe.respond({ model: script.model, input: 'And?', previous_response_id: id }))).toBe(
      'Still there.',
    );
  });

  test('cannot be continued', async () => {
    const script = await fixture.script({ text: 'Secret.' }, { text: 'Never.' });
    const { id } = await ann.respond({ model: script.model, input: 'Hi' });
    const request = { model: script.model, input: 'And?', previous_response_id: id };
    for (const body of [request, { ...request, stream: true }]) {
      const { status, body: error } = await bob.expectError(body);
      expect(status).toBe(400);
      expect(error.error).toMatchObject({ param: 'previous_response_id', code: 'previous_response_not_found' });
    }
    expect(await script.bodies()).toHaveLength(1);
  });

  test('has no items that can be referenced', async () => {
    const script = await fixture.script({ text: 'Secret.' }, { text: 'I see.' });
    const { output } = await ann.respond({ model: script.model, input: 'Hi' });
    const input = [
      { role: 'user', content: 'What was it?' },
      { type: 'item_reference', id: output[0]!.id },
      { role: 'user', content: 'Well?' },
    ];
    const { status, body } = await bob.expectError({ model: script.model, input });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param: 'input[1].id', code: 'item_not_found' });
    await abe.respond({ model: script.model, input });
    expect((await script.conversations()).at(-1)).toEqual(['user: What was it?', 'assistant: Secret.', 'user: Well?']);
  });

  test('does not supply the output of a server call', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 20, b: 22 })] }, { text: 'Done.' }, { text: 'No.' });
    const { output } = await ann.respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const { output: _, ...bare } = output[0]!;
    await bob.respond({
      model: script.model,
      tools: [SERVER_TOOLS],
      input: [{ role: 'user', content: 'Add' }, bare, { role: 'user', content: 'Well?' }],
    });
    expect(JSON.stringify((await script.conversations()).at(-1))).not.toContain('42');
  });

  test('cannot be retrieved, cancelled or deleted while it runs', async () => {
    const script = await fixture.script({ calls: [call('hold', { tag: 'mine' })] }, { text: 'Done.' });
    const { id, ended } = await ann.startStream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await fixture.server.held('mine');
    expect((await bob.send('POST', `/v1/responses/${id}/cancel`)).status).toBe(404);
    expect((await bob.send('DELETE', `/v1/responses/${id}`)).status).toBe(404);
    expect((await bob.send('GET', `/v1/responses/${id}`)).status).toBe(404);
    const { status } = await bob.expectError({ model: script.model, input: 'And?', previous_response_id: id });
    expect(status).toBe(400);
    fixture.server.release('mine');
    expect((await ended).response.status).toBe('completed');
  });

  test('that waits for the client cannot be answered', async () => {
    const script = await fixture.script({ calls: [call('weather', {})] }, { text: 'Rain.' });
    const request = { model: script.model, tools: [WEATHER] };
    const waiting = await ann.respond({ ...request, input: 'Hi' });
    // The option `requiresAction` of this server applies to all clients.
    expect(waiting.status).toBe('requires_action');
    const answer = { ...request, previous_response_id: waiting.id, input: [outputFor(callsIn(waiting)[0]!, 'rain')] };
    expect((await bob.expectError(answer)).body.error.code).toBe('previous_response_not_found');
    expect(textIn(await abe.respond(answer))).toBe('Rain.');
  });
});

describe('a conversation of another tenant', () => {
  const never = `conv_${'f'.repeat(32)}`;

  /** What a client can see of an answer, without ids, which are random. */
  async function seen(key: string, method: string, path: string, body?: object): Promise<readonly string[]> {
    const answer = await fetch(fixture.server.url + path, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    return [String(answer.status), answer.headers.get('content-type') ?? '', text.replaceAll(/[0-9a-f]{32}/g, 'id')];
  }

  /** Only the new message: the server has the others. */
  const ui = (id: string, model: string, text: string): object => {
    return { id, model, message: { role: 'user', parts: [{ type: 'text', text }] } };
  };
  /** All messages: this protocol has no other form. */
  const agUi = (id: string, model: string, text: string): object => {
    const before = text === 'And?' ? ['Hi', 'Hello.'] : [];
    const messages = [...before, text].map((content, index) => ({
      id: String(index),
      role: index % 2 === 0 ? 'user' : 'assistant',
      content,
    }));
    return { threadId: id, runId: 'r', forwardedProps: { model }, messages };
  };

  /** An empty one, one with an answer, and one whose answer is in progress. */
  async function conversationsOfAnn(): Promise<readonly string[]> {
    const script = await fixture.script({ text: 'Of Acme only.' }, { calls: [call('hold', { tag: 'chat' })] });
    const ids: string[] = [];
    for (const _ of ['empty', 'answered', 'in progress']) {
      const { body } = await ann.send('POST', '/v1/conversations', {});
      ids.push((body as { readonly id: string }).id);
    }
    await seen('tk_ann', 'POST', '/v1/chat', { conversation_id: ids[1], model: script.model, message: 'Hi' });
    const held = fixture.server.held('chat');
    const request = { conversation_id: ids[2], model: script.model, message: 'Wait', tools: ['hold'] };
    void seen('tk_ann', 'POST', '/v1/chat', { ...request, on_disconnect: 'continue' }).catch(() => {});
    await held;
    return ids;
  }

  test('is a free id for front ends, and the same as an unknown one on every route', async () => {
    const ids = await conversationsOfAnn();
    const before = await Promise.all(ids.map((id) => ann.send('GET', `/v1/chat/${id}`)));
    const all = [...ids, never];
    for (const [path, bodyOf] of [
      ['/v1/chat/ui', ui],
      ['/v1/chat/ag-ui', agUi],
    ] as const) {
      const script = await fixture.script(...[...all, ...all].map(() => ({ text: 'Hello.' })));
      const answers: (readonly string[])[] = [];
      for (const id of all) answers.push(await seen('tk_bob', 'POST', path, bodyOf(id, script.model, 'Hi')));
      for (const answer of answers) expect(answer).toEqual(answers.at(-1));
      expect(answers.at(-1)).toMatchObject([
        '200',
        'text/event-stream; charset=utf-8',
        expect.stringContaining('Hello.'),
      ]);
      // Each is a conversation of the tenant now.
      for (const id of all) await seen('tk_bob', 'POST', path, bodyOf(id, script.model, 'And?'));
      for (const said of (await script.conversations()).slice(all.length)) {
        expect(said.slice(-3)).toEqual(['user: Hi', 'assistant: Hello.', 'user: And?']);
      }
    }
    for (const [method, path, body] of [
      ['GET', '/v1/chat/ui/ID/stream'],
      ['GET', '/v1/chat/ag-ui/ID/stream'],
      ['GET', '/v1/chat/ID'],
      ['GET', '/v1/chat/ID/stream'],
      ['GET', '/v1/chat/ID/export'],
      ['PATCH', '/v1/chat/ID', { title: 'Mine' }],
      ['POST', '/v1/chat/ID/branch', { message_id: 'x' }],
      ['POST', '/v1/chat/ID/answers', { id: 'x', answer: 1 }],
      ['POST', '/v1/chat/ID/messages', { message: 'x' }],
      ['POST', '/v1/chat/ID/cancel'],
      ['DELETE', '/v1/chat/ID'],
      ['GET', '/v1/conversations/ID'],
      ['GET', '/v1/conversations/ID/items'],
      ['POST', '/v1/conversations/ID', { metadata: { a: 'b' } }],
      ['POST', '/v1/conversations/ID/items', { items: [{ role: 'user', content: 'x' }] }],
      ['DELETE', '/v1/conversations/ID'],
      ['POST', '/v1/chat', { conversation_id: 'ID', message: 'x' }],
      ['POST', '/v1/responses', { conversation: 'ID', input: 'x' }],
    ] as const) {
      const answers: (readonly string[])[] = [];
      for (const id of all) {
        const sent = body && JSON.parse(JSON.stringify(body).replace('ID', id));
        answers.push(await seen('tk_bob', method, path.replace('ID', id), sent));
      }
      for (const answer of answers) expect([path, answer]).toEqual([path, answers.at(-1)]);
    }
    expect(await Promise.all(ids.map((id) => ann.send('GET', `/v1/chat/${id}`)))).toMatchObject(
      before.map(({ body }) => ({ status: 200, body })),
    );
    fixture.server.release('chat');
  });
});

test('a chat follow-up does not receive server results of another tenant', async () => {
  interface Chat {
    readonly choices: readonly [{ readonly message: { readonly tool_calls: readonly { readonly id: string }[] } }];
  }
  const mixed = { calls: [call('add', { a: 20, b: 22 }), call('weather', {})] };
  const script = await fixture.script(mixed, { text: 'No.' }, { text: 'Yes.' });
  const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }];
  const request = { model: script.model, tools };
  const user = { role: 'user', content: 'Go' };
  const { body } = await ann.send('POST', '/v1/chat/completions', { ...request, messages: [user], store: true });
  const { message } = (body as Chat).choices[0];
  expect(message.tool_calls).toHaveLength(1);
  const output = { role: 'tool', tool_call_id: message.tool_calls[0]!.id, content: 'rain' };
  const messages = [user, message, output];
  expect((await bob.send('POST', '/v1/chat/completions', { ...request, messages })).status).toBe(200);
  expect((await abe.send('POST', '/v1/chat/completions', { ...request, messages })).status).toBe(200);
  const [, otherTenant, sameTenant] = await script.conversations();
  expect(otherTenant).toEqual(['user: Go', 'assistant: [1] weather {}', 'tool: [1] rain']);
  expect(sameTenant).toEqual([
    'user: Go',
    'assistant: [1] add {"a":20,"b":22} [2] weather {}',
    'tool: [1] 42',
    'tool: [2] rain',
  ]);
});

test('a message does not continue a thread, and does not receive kept turns, of another tenant', async () => {
  interface Sent {
    readonly id: string;
    readonly content: readonly { readonly type: string; readonly id: string }[];
  }
  const thinking = { calls: [call('weather', {})], reasoning: 'Hm.' };
  const script = await fixture.script(thinking, { text: 'No.' }, { text: 'Yes.' }, { text: 'Done.' });
  const model = script.modelIn('anthropic');
  const request = { model, max_tokens: 99, tools: [{ name: 'weather', input_schema: {} }] };
  const user = { role: 'user', content: 'Go' };
  const first = { ...request, messages: [user], thread: { type: 'create' } };
  const { id, content } = (await ann.send('POST', '/v1/messages', first)).body as Sent;
  const output = { type: 'tool_result', tool_use_id: content[0]!.id, content: 'rain' };
  const rest = [{ role: 'user', content: [output] }];
  const thread = { type: 'continue', previous_message_id: id };
  const next = { model, max_tokens: 99, messages: rest, thread };
  expect(await bob.send('POST', '/v1/messages', next)).toMatchObject({
    status: 404,
    body: { error: { type: 'not_found_error', details: { error_code: 'thread_not_found' } } },
  });
  const whole = { ...request, messages: [user, { role: 'assistant', content }, ...rest] };
  expect((await bob.send('POST', '/v1/messages', whole)).status).toBe(200);
  expect((await abe.send('POST', '/v1/messages', whole)).status).toBe(200);
  expect((await abe.send('POST', '/v1/messages', next)).status).toBe(200);
  const [, ofBob, ofAbe] = (await script.requests()).map(({ body }) => JSON.stringify(body));
  expect([ofBob!.includes('Hm.'), ofAbe!.includes('Hm.')]).toEqual([false, true]);
});

describe('keys', () => {
  test.each([
    ['no key', {}],
    ['an unknown key', { authorization: 'Bearer tk_nobody' }],
    ['the name of a key', { authorization: 'Bearer ann' }],
    ['the hash of a key', { authorization: `Bearer ${hashKey('tk_ann')}` }],
    ['a key in Basic form', { authorization: 'Basic tk_ann' }],
    ['an empty key', { authorization: 'Bearer ' }],
  ])('%s is rejected with 401 on every route', async (_, headers) => {
    const client = responsesClient(() => fixture.server.url, headers);
    for (const [method, path, body] of [
      ['POST', '/v1/responses', { input: 'Hi' }],
      ['GET', '/v1/responses/resp_1', undefined],
      ['POST', '/v1/chat/completions', { messages: [] }],
      ['GET', '/v1/models', undefined],
      ['GET', '/v1/nothing', undefined],
    ] as const) {
      const answer = await client.send(method, path, body);
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer/);
      expect(errorOf(answer)).toMatchObject({ type: 'authentication_error', param: null, code: 'invalid_api_key' });
      expect(JSON.stringify(answer.body)).not.toContain('tk_');
    }
    for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
      const answer = await client.send('POST', path, {});
      const details = { error_code: 'invalid_api_key' };
      expect(answer).toMatchObject({ status: 401, body: { error: { type: 'authentication_error', details } } });
    }
  });

  test('the health endpoints need no key', async () => {
    for (const path of ['/healthz', '/readyz']) {
      expect((await responsesClient(() => fixture.server.url).send('GET', path)).status).toBe(200);
    }
  });

  test('the header x-api-key is accepted', async () => {
    const { status } = await responsesClient(() => fixture.server.url, { 'x-api-key': 'tk_ann' }).send(
      'GET',
      '/v1/models',
    );
    expect(status).toBe(200);
  });

  test('a key without agents:invoke is rejected with 403', async () => {
    const answer = await as('tk_idle').send('POST', '/v1/responses', { input: 'Hi' });
    expect(answer.status).toBe(403);
    expect(errorOf(answer)).toMatchObject({ type: 'permission_error', code: 'insufficient_scope' });
    expect(errorOf(answer).message).toContain('agents:invoke');
  });

  test('a key without tools:execute gets 403 for server tools, and no default tools', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'I cannot.' });
    const plain = as('tk_plain');
    const answer = await plain.expectError({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    expect(answer.status).toBe(403);
    expect(answer.body.error).toMatchObject({ type: 'permission_error', param: 'tools', code: 'insufficient_scope' });
    const response = await plain.respond({ model: script.model, input: 'Add' });
    expect(response.output).toMatchObject([{ type: 'mcp_call', status: 'failed', output: null }, { type: 'message' }]);
    expect((await script.bodies())[0]!.tools).toBeUndefined();
  });

  test('a key with tools:execute gets the default tools', async () => {
    const script = await fixture.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' });
    const response = await ann.respond({ model: script.model, input: 'Add' });
    expect(response.output[0]).toMatchObject({ type: 'mcp_call', server_label: 'treadle', output: '2' });
    expect((await script.bodies())[0]!.tools!.map(({ function: { name } }) => name)).toEqual(['add']);
  });

  test('a key over its own rate limit gets 429 with Retry-After and rate limit headers', async () => {
    const slow = as('tk_slow');
    const first = await slow.send('GET', '/v1/models');
    expect(first.status).toBe(200);
    expect(first.headers.get('ratelimit-policy')).toBe('"requests";q=2;w=60');
    expect(first.headers.get('x-ratelimit-limit-requests')).toBe('2');
    expect(first.headers.get('x-ratelimit-remaining-requests')).toBe('1');
    await slow.send('GET', '/v1/models');
    const third = await slow.send('POST', '/v1/responses', { input: 'Hi' });
    expect(third.status).toBe(429);
    expect(errorOf(third)).toMatchObject({ type: 'rate_limit_error', param: null, code: 'rate_limit_exceeded' });
    expect(Number(third.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(third.headers.get('x-ratelimit-remaining-requests')).toBe('0');
    expect((await ann.send('GET', '/v1/models')).status).toBe(200);
  });
});
