import { hashKey } from '@treadle/server';
import { describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, stage, WEATHER } from './clients/stage.ts';
import {
  asking,
  callsIn,
  outputFor,
  textIn,
  type Answer,
  type Asking,
  type WireError,
} from './open-responses/asking.ts';

const SCOPES = ['agents:invoke', 'tools:execute'] as const;
const on = stage({
  defaultTools: ['add'],
  requiresAction: true,
  keys: [
    { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: SCOPES },
    { name: 'abe', hash: hashKey('tk_abe'), tenant: 'acme', scopes: SCOPES },
    { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: SCOPES },
    { name: 'plain', hash: hashKey('tk_plain'), tenant: 'plain' },
    { name: 'idle', hash: hashKey('tk_idle'), scopes: ['tools:execute'] },
    { name: 'slow', hash: hashKey('tk_slow'), requestsPerMinute: 2 },
  ],
});
const as = (key: string): Asking => asking(() => on.server.url, { authorization: `Bearer ${key}` });
const [ann, abe, bob] = [as('tk_ann'), as('tk_abe'), as('tk_bob')];
const errorOf = ({ body }: Answer): WireError['error'] => (body as WireError).error;

describe('a response of another tenant', () => {
  test('is not there, as if it had never been, by any route', async () => {
    const script = await on.script({ text: 'Of Acme only.' }, { text: 'Still there.' });
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

  test('cannot be gone on from', async () => {
    const script = await on.script({ text: 'Secret.' }, { text: 'Never.' });
    const { id } = await ann.respond({ model: script.model, input: 'Hi' });
    const asked = { model: script.model, input: 'And?', previous_response_id: id };
    for (const body of [asked, { ...asked, stream: true }]) {
      const { status, body: refusal } = await bob.refused(body);
      expect(status).toBe(400);
      expect(refusal.error).toMatchObject({ param: 'previous_response_id', code: 'previous_response_not_found' });
    }
    expect(await script.bodies()).toHaveLength(1);
  });

  test('has no items to refer to', async () => {
    const script = await on.script({ text: 'Secret.' }, { text: 'I see.' });
    const { output } = await ann.respond({ model: script.model, input: 'Hi' });
    const input = [
      { role: 'user', content: 'What was it?' },
      { type: 'item_reference', id: output[0]!.id },
      { role: 'user', content: 'Well?' },
    ];
    const { status, body } = await bob.refused({ model: script.model, input });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param: 'input[1].id', code: 'item_not_found' });
    await abe.respond({ model: script.model, input });
    expect((await script.heard()).at(-1)).toEqual(['user: What was it?', 'assistant: Secret.', 'user: Well?']);
  });

  test('does not fill in what a call of the server gave', async () => {
    const script = await on.script({ calls: [call('add', { a: 20, b: 22 })] }, { text: 'Done.' }, { text: 'No.' });
    const { output } = await ann.respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    const { output: _, ...bare } = output[0]!;
    await bob.respond({
      model: script.model,
      tools: [SERVER_TOOLS],
      input: [{ role: 'user', content: 'Add' }, bare, { role: 'user', content: 'Well?' }],
    });
    expect(JSON.stringify((await script.heard()).at(-1))).not.toContain('42');
  });

  test('cannot be cancelled while it runs, nor seen', async () => {
    const script = await on.script({ calls: [call('hold', { tag: 'mine' })] }, { text: 'Done.' });
    const { id, ended } = await ann.begin({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    await on.server.held('mine');
    expect((await bob.send('POST', `/v1/responses/${id}/cancel`)).status).toBe(404);
    expect((await bob.send('DELETE', `/v1/responses/${id}`)).status).toBe(404);
    expect((await bob.send('GET', `/v1/responses/${id}`)).status).toBe(404);
    const { status } = await bob.refused({ model: script.model, input: 'And?', previous_response_id: id });
    expect(status).toBe(400);
    on.server.release('mine');
    expect((await ended).response.status).toBe('completed');
  });

  test('that waits cannot be answered', async () => {
    const script = await on.script({ calls: [call('weather', {})] }, { text: 'Rain.' });
    const asked = { model: script.model, tools: [WEATHER] };
    const waiting = await ann.respond({ ...asked, input: 'Hi' });
    // This server says so to everybody.
    expect(waiting.status).toBe('requires_action');
    const answer = { ...asked, previous_response_id: waiting.id, input: [outputFor(callsIn(waiting)[0]!, 'rain')] };
    expect((await bob.refused(answer)).body.error.code).toBe('previous_response_not_found');
    expect(textIn(await abe.respond(answer))).toBe('Rain.');
  });
});

test('a follow-up of a chat gets nothing of what the server did for another tenant', async () => {
  interface Chat {
    readonly choices: readonly [{ readonly message: { readonly tool_calls: readonly { readonly id: string }[] } }];
  }
  const mixed = { calls: [call('add', { a: 20, b: 22 }), call('weather', {})] };
  const script = await on.script(mixed, { text: 'No.' }, { text: 'Yes.' });
  const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }];
  const asked = { model: script.model, tools };
  const user = { role: 'user', content: 'Go' };
  const { body } = await ann.send('POST', '/v1/chat/completions', { ...asked, messages: [user], store: true });
  const { message } = (body as Chat).choices[0];
  expect(message.tool_calls).toHaveLength(1);
  const output = { role: 'tool', tool_call_id: message.tool_calls[0]!.id, content: 'rain' };
  const messages = [user, message, output];
  expect((await bob.send('POST', '/v1/chat/completions', { ...asked, messages })).status).toBe(200);
  expect((await abe.send('POST', '/v1/chat/completions', { ...asked, messages })).status).toBe(200);
  const [, foreign, own] = await script.heard();
  expect(foreign).toEqual(['user: Go', 'assistant: [1] weather {}', 'tool: [1] rain']);
  expect(own).toEqual([
    'user: Go',
    'assistant: [1] add {"a":20,"b":22} [2] weather {}',
    'tool: [1] 42',
    'tool: [2] rain',
  ]);
});

describe('keys', () => {
  test.each([
    ['none', {}],
    ['another', { authorization: 'Bearer tk_nobody' }],
    ['the name of one', { authorization: 'Bearer ann' }],
    ['the hash of one', { authorization: `Bearer ${hashKey('tk_ann')}` }],
    ['one in another form', { authorization: 'Basic tk_ann' }],
    ['an empty one', { authorization: 'Bearer ' }],
  ])('%s: 401 on every route', async (_, headers) => {
    const nobody = asking(() => on.server.url, headers);
    for (const [method, path, body] of [
      ['POST', '/v1/responses', { input: 'Hi' }],
      ['GET', '/v1/responses/resp_1', undefined],
      ['POST', '/v1/chat/completions', { messages: [] }],
      ['GET', '/v1/models', undefined],
      ['GET', '/v1/nothing', undefined],
    ] as const) {
      const answer = await nobody.send(method, path, body);
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer/);
      expect(errorOf(answer)).toMatchObject({ type: 'authentication_error', param: null, code: 'invalid_api_key' });
      expect(JSON.stringify(answer.body)).not.toContain('tk_');
    }
  });

  test('who is well needs no key to ask', async () => {
    for (const path of ['/healthz', '/readyz']) {
      expect((await asking(() => on.server.url).send('GET', path)).status).toBe(200);
    }
  });

  test('x-api-key will do as well', async () => {
    const { status } = await asking(() => on.server.url, { 'x-api-key': 'tk_ann' }).send('GET', '/v1/models');
    expect(status).toBe(200);
  });

  test('a key that may not use the API: 403', async () => {
    const answer = await as('tk_idle').send('POST', '/v1/responses', { input: 'Hi' });
    expect(answer.status).toBe(403);
    expect(errorOf(answer)).toMatchObject({ type: 'permission_error', code: 'insufficient_scope' });
    expect(errorOf(answer).message).toContain('agents:invoke');
  });

  test('a key that may not use tools of the server: 403 if it asks for them, and none by default', async () => {
    const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'I cannot.' });
    const plain = as('tk_plain');
    const answer = await plain.refused({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    expect(answer.status).toBe(403);
    expect(answer.body.error).toMatchObject({ type: 'permission_error', param: 'tools', code: 'insufficient_scope' });
    const response = await plain.respond({ model: script.model, input: 'Add' });
    expect(response.output).toMatchObject([{ type: 'mcp_call', status: 'failed', output: null }, { type: 'message' }]);
    expect((await script.bodies())[0]!.tools).toBeUndefined();
  });

  test('the default tools are there for a key that may use them', async () => {
    const script = await on.script({ calls: [call('add', { a: 1, b: 1 })] }, { text: 'Two.' });
    const response = await ann.respond({ model: script.model, input: 'Add' });
    expect(response.output[0]).toMatchObject({ type: 'mcp_call', server_label: 'treadle', output: '2' });
    expect((await script.bodies())[0]!.tools!.map(({ function: { name } }) => name)).toEqual(['add']);
  });

  test('a key with a limit of its own: 429 with the headers that say when to come again', async () => {
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
