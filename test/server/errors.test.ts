import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import type { FaultName } from '../provider/script.ts';
import { call, SERVER_TOOLS, useServerFixture, WEATHER } from './support/fixture.ts';
import { responsesClient, callsIn, outputFor, textIn, type WireError } from './support/responses-client.ts';

const fixture = useServerFixture();
const { respond, stream, startStream, expectError, send } = responsesClient(() => fixture.server.url);

const message = (content: unknown, role = 'user'): object => ({ type: 'message', role, content });
const callItem = (call_id: string, name = 'weather'): object => ({
  type: 'function_call',
  call_id,
  name,
  arguments: '{}',
});

test('an error body has exactly four fields, and the response a request id', async () => {
  const { body, headers, status } = await expectError({ model: 'nobody', input: 'Hi' });
  expect(status).toBe(404);
  expect(body).toEqual({
    error: {
      message: expect.stringContaining('"nobody"'),
      type: 'invalid_request_error',
      param: 'model',
      code: 'model_not_found',
    },
  });
  expect(headers.get('content-type')).toMatch(/^application\/json/);
  expect(headers.get('x-request-id')).toMatch(/^req_\w+$/);
});

describe('an invalid body', () => {
  test.each([
    ['truncated', '{"input":', 'position 9'],
    ['empty', '', 'empty'],
    ['only white space', ' \n', 'empty'],
    ['with a syntax error', '{"input": Hi}', 'line 1'],
    ['two JSON values', '{"input":"Hi"}{}', 'position 14'],
  ])('%s: rejected with 400', async (_, text, expected) => {
    const { body, status } = await expectError(text);
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param: null, code: 'invalid_json' });
    expect(body.error.message).toContain(expected);
  });

  test('nested too deeply: rejected with 400', async () => {
    const { body, status } = await expectError(`{"input":${'['.repeat(5_000)}${']'.repeat(5_000)}}`);
    expect(status).toBe(400);
    expect(body.error.message).toContain('deep');
  });

  test.each(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])(
    'with the content type %s: rejected with 415',
    async (type) => {
      const { body, status } = await expectError('{"input":"Hi"}', { 'content-type': type });
      expect(status).toBe(415);
      expect(body.error).toMatchObject({ type: 'invalid_request_error', code: 'unsupported_media_type' });
    },
  );
});

describe('an invalid field', () => {
  const input = 'Hi';
  test.each<[object | string | number | null, string | null, string]>([
    [[], null, 'invalid_type'],
    ['"Hi"', null, 'invalid_type'],
    ['null', null, 'invalid_type'],
    [{}, 'input', 'missing_required_parameter'],
    [{ input: 5 }, 'input', 'invalid_type'],
    [{ input: '' }, 'input', 'empty_input'],
    [{ input: [] }, 'input', 'empty_input'],
    [{ input: [5] }, 'input[0]', 'invalid_type'],
    [{ input: [{ type: 'nonsense' }] }, 'input[0].type', 'invalid_value'],
    [{ input: [message('Hi', 'boss')] }, 'input[0].role', 'invalid_value'],
    [{ input: [message(5)] }, 'input[0].content', 'invalid_type'],
    [{ input: [message([{ type: 'input_text' }])] }, 'input[0].content[0].text', 'missing_required_parameter'],
    [
      { input: [message([{ type: 'input_image', image_url: 'ftp://x' }])] },
      'input[0].content[0].image_url',
      'invalid_url',
    ],
    [
      { input: [message([{ type: 'input_file', file_id: 'f' }])] },
      'input[0].content[0].file_id',
      'unsupported_parameter',
    ],
    [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, 'input[0].id', 'item_not_found'],
    [
      { input: [{ type: 'compaction', encrypted_content: 'x' }] },
      'input[0].encrypted_content',
      'invalid_encrypted_content',
    ],
    [{ input, context_management: [{ type: 'other' }] }, 'context_management[0].type', 'invalid_value'],
    [{ input, model: 5 }, 'model', 'invalid_type'],
    [{ input, stream: 'yes' }, 'stream', 'invalid_type'],
    [{ input, store: 1 }, 'store', 'invalid_type'],
    [{ input, instructions: 5 }, 'instructions', 'invalid_type'],
    [{ input, temperature: 3 }, 'temperature', 'decimal_above_max_value'],
    [{ input, top_p: 'all' }, 'top_p', 'invalid_type'],
    [{ input, max_output_tokens: 1 }, 'max_output_tokens', 'integer_below_min_value'],
    [{ input, max_tool_calls: 0 }, 'max_tool_calls', 'decimal_below_min_value'],
    [{ input, truncation: 'some' }, 'truncation', 'invalid_value'],
    [{ input, service_tier: 'gold' }, 'service_tier', 'invalid_value'],
    [{ input, reasoning: { effort: 'huge' } }, 'reasoning.effort', 'invalid_value'],
    [{ input, metadata: { a: 1 } }, 'metadata.a', 'invalid_type'],
    [{ input, text: { format: { type: 'xml' } } }, 'text.format.type', 'invalid_value'],
    [
      { input, text: { format: { type: 'json_schema', name: 'a' } } },
      'text.format.schema',
      'missing_required_parameter',
    ],
    [{ input, tools: {} }, 'tools', 'invalid_type'],
    [{ input, tools: [{ type: 'function' }] }, 'tools[0].name', 'missing_required_parameter'],
    [{ input, tools: [{ type: 'function', name: 'a b' }] }, 'tools[0].name', 'invalid_value'],
    [{ input, tools: [WEATHER, WEATHER] }, 'tools[1].name', 'duplicate_tool'],
    [{ input, tools: [{ type: 'code_interpreter' }] }, 'tools', 'unsupported_tool'],
    [{ input, tools: [{ type: 'shell', environment: { type: 'container_auto' } }] }, 'tools', 'unsupported_tool'],
    [
      { input, tools: [{ type: 'shell', environment: { type: 'moon' } }] },
      'tools[0].environment.type',
      'invalid_value',
    ],
    [{ input, tools: [{ type: 'mcp', server_label: 'other' }] }, 'tools', 'unsupported_tool'],
    [{ input, tool_choice: 'maybe' }, 'tool_choice', 'invalid_value'],
    [{ input, background: true, store: false }, 'background', 'invalid_value'],
    [{ input, conversation: 7 }, 'conversation', 'invalid_type'],
    [{ input, prompt: { id: 'p' } }, 'prompt', 'unsupported_parameter'],
    [{ input, previous_response_id: 'resp_none' }, 'previous_response_id', 'previous_response_not_found'],
    [{ input, previous_response_id: 'chatcmpl-1' }, 'previous_response_id', 'previous_response_not_found'],
  ])('is rejected with its path: %j', async (invalid, param, code) => {
    for (const streamed of [false, true]) {
      const canStream = typeof invalid === 'object' && !Array.isArray(invalid);
      const body = canStream && streamed ? { stream: true, ...invalid } : invalid;
      const answer = await expectError(body);
      expect(answer.status).toBe(400);
      expect(answer.body.error).toMatchObject({ type: 'invalid_request_error', param, code });
      expect(answer.body.error.message).toMatch(/^.{10,500}$/);
    }
  });

  test.each([
    [{ type: 'function', name: 'time' }],
    [{ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'time' }] }],
    [{ type: 'mcp', server_label: 'treadle' }],
  ])('tool_choice with an unknown tool is rejected: %j', async (tool_choice) => {
    const script = await fixture.script({ text: 'Never.' });
    const { body, status } = await expectError({ model: script.model, input, tools: [WEATHER], tool_choice });
    expect(status).toBe(400);
    expect(body.error.param).toMatch(/^tool_choice/);
    expect(await script.requests()).toEqual([]);
  });

  test('an unknown field is ignored', async () => {
    const script = await fixture.script({ text: 'Hello.' });
    expect(textIn(await respond({ model: script.model, input, unheard_of: { a: 1 } }))).toBe('Hello.');
  });
});

describe('function call outputs that do not match the calls', () => {
  async function pausedResponse(): Promise<{
    readonly model: string;
    readonly id: string;
    readonly ids: readonly string[];
  }> {
    const { model } = await fixture.script(
      { calls: [call('weather', { n: 1 }), call('weather', { n: 2 })] },
      { text: 'Never.' },
    );
    const first = await respond({ model, input: 'Go', tools: [WEATHER] });
    return { model, id: first.id, ids: callsIn(first).map(({ call_id: id }) => id) };
  }

  test('missing outputs are rejected, and the error names the calls', async () => {
    const { model, id, ids } = await pausedResponse();
    for (const input of [[outputFor(ids[0]!, 'a')], [outputFor(ids[0]!, 'a'), message('Well?')]]) {
      const { body, status } = await expectError({ model, previous_response_id: id, input });
      expect(status).toBe(400);
      expect(body.error).toMatchObject({ type: 'invalid_request_error', param: 'input', code: 'missing_output' });
      expect(body.error.message).toContain(ids[1]);
      expect(body.error.message).not.toContain(ids[0]);
    }
  });

  test('a request without any output is rejected, and the error names all calls', async () => {
    const { model, id, ids } = await pausedResponse();
    for (const more of [{ input: 'Never mind.' }, { input: [] }, {}]) {
      const { body, status } = await expectError({ model, previous_response_id: id, ...more });
      expect(status).toBe(400);
      expect(body.error.code).toBe('missing_output');
      for (const one of ids) expect(body.error.message).toContain(one);
    }
  });

  test('an output for an unknown call is rejected', async () => {
    const { model, id, ids } = await pausedResponse();
    const input = [...ids.map((one) => outputFor(one, 'a')), outputFor('call_other', 'b')];
    const { body, status } = await expectError({ model, previous_response_id: id, input });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param: 'input[2].call_id', code: 'unknown_call' });
    expect(body.error.message).toContain('call_other');
  });

  test('a second output for the same call is rejected', async () => {
    const { model, id, ids } = await pausedResponse();
    const input = [ids[0]!, ids[1]!, ids[0]!].map((one) => outputFor(one, 'a'));
    const { body, status } = await expectError({ model, previous_response_id: id, input });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param: 'input[2].call_id', code: 'duplicate_output' });
    expect(body.error.message).toContain(ids[0]);
  });

  test('outputs for calls of another response are rejected', async () => {
    const [one, other] = [await pausedResponse(), await pausedResponse()];
    const input = other.ids.map((id) => outputFor(id, 'a'));
    const { body } = await expectError({ model: one.model, previous_response_id: one.id, input });
    expect(body.error.code).toBe('unknown_call');
    expect(body.error.message).toContain(other.ids[0]);
    expect(body.error.message).toContain(one.ids[0]);
  });

  test('an output for a response without pending calls is rejected', async () => {
    const { model } = await fixture.script({ text: 'Hello.' });
    const { id } = await respond({ model, input: 'Hi' });
    const { body, status } = await expectError({ model, previous_response_id: id, input: [outputFor('call_x', 'a')] });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ param: 'input[0].call_id', code: 'unknown_call' });
  });

  test('after a rejected request the correct outputs are accepted', async () => {
    const { model, id, ids } = await pausedResponse();
    await expectError({ model, previous_response_id: id, input: [] });
    const input = ids.map((one) => outputFor(one, 'a'));
    expect(textIn(await respond({ model, previous_response_id: id, input }))).toBe('Never.');
  });

  test.each([
    ['an output without its call', [message('Hi'), outputFor('c1', 'a')], 'input[1].call_id', 'c1'],
    ['a call without its output', [message('Hi'), callItem('c1')], 'input', 'c1'],
    ['a call that is not answered', [message('Hi'), callItem('c1'), message('Well?')], 'input', 'c1'],
    ['two calls with one id', [message('Hi'), callItem('c1'), callItem('c1')], 'input[2].call_id', 'c1'],
    ['an output before its call', [message('Hi'), outputFor('c1', 'a'), callItem('c1')], 'input[1].call_id', 'c1'],
  ])('among the input items, %s is rejected', async (_, input, param, callId) => {
    const script = await fixture.script({ text: 'Never.' });
    const { body, status } = await expectError({ model: script.model, input, tools: [WEATHER] });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param });
    expect(body.error.message).toContain(callId);
    expect(await script.requests()).toEqual([]);
  });
});

describe('an unknown', () => {
  const ID = `resp_${'0'.repeat(32)}`;

  test.each([
    ['GET', `/v1/responses/${ID}`],
    ['DELETE', `/v1/responses/${ID}`],
    ['POST', `/v1/responses/${ID}/cancel`],
    ['GET', `/v1/responses/${ID}/input_items`],
    ['GET', '/v1/responses/chatcmpl-1'],
    ['GET', `/v1/responses/${encodeURIComponent("'; DROP TABLE responses; --")}`],
  ])('response returns 404: %s %s', async (method, path) => {
    const { status, body } = await send(method, path);
    expect(status).toBe(404);
    expect((body as WireError).error).toMatchObject({
      type: 'invalid_request_error',
      param: 'response_id',
      code: 'response_not_found',
    });
  });

  test('model returns 404 on every endpoint', async () => {
    for (const answer of [
      await expectError({ model: 'gpt-99', input: 'Hi' }),
      await expectError({ model: 'gpt-99', input: 'Hi', stream: true }),
      await send('POST', '/v1/chat/completions', { model: 'gpt-99', messages: [{ role: 'user', content: 'Hi' }] }),
      await send('GET', '/v1/models/gpt-99'),
    ]) {
      expect(answer.status).toBe(404);
      const { error } = answer.body as WireError;
      expect(error).toMatchObject({ param: 'model', code: 'model_not_found' });
      expect(error.message).toContain('gpt-99');
    }
  });

  test.each([
    ['GET', '/v1/nothing'],
    ['POST', '/v1/responses/a/b/c'],
    ['GET', '/nothing'],
  ])('path returns 404: %s %s', async (method, path) => {
    const { status, body } = await send(method, path);
    expect(status).toBe(404);
    expect((body as WireError).error).toMatchObject({ type: 'not_found_error', param: null, code: 'unknown_url' });
  });

  test.each([
    ['PUT', '/v1/responses', 'POST'],
    ['POST', '/v1/models', 'GET'],
    ['GET', '/v1/conversations', 'POST'],
    ['GET', '/v1/chat/completions', 'POST'],
    ['GET', `/v1/responses/${ID}/cancel`, 'POST'],
    ['PATCH', `/v1/responses/${ID}`, 'GET'],
  ])('method returns 405 with Allow: %s %s', async (method, path, allowed) => {
    const { status, body, headers } = await send(method, path);
    expect(status).toBe(405);
    expect(headers.get('allow')).toContain(allowed);
    expect((body as WireError).error).toMatchObject({ type: 'invalid_request_error', code: 'method_not_allowed' });
  });
});

test('a response in progress cannot be continued: 409', async () => {
  const script = await fixture.script(
    { calls: [call('hold', { tag: 'conflict' })] },
    { text: 'Done.' },
    { text: 'And on.' },
  );
  const { id, ended } = await startStream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
  await fixture.server.held('conflict');
  const { status, body } = await expectError({ model: script.model, input: 'And?', previous_response_id: id });
  expect(status).toBe(409);
  expect(body.error).toMatchObject({ type: 'invalid_request_error', param: 'previous_response_id' });
  expect(body.error.message).toContain(id);
  fixture.server.release('conflict');
  expect((await ended).response.status).toBe('completed');
  expect(textIn(await respond({ model: script.model, input: 'And?', previous_response_id: id }))).toBe('And on.');
});

describe('a server without keys', () => {
  const status = (headers: Record<string, string>): Promise<number> =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(fixture.server.url);
      const sent = request({ hostname, port, path: '/v1/models', headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode!);
      });
      sent.on('error', reject).end();
    });

  test('rejects a foreign Host header with 403', async () => {
    expect(await status({ host: 'evil.example' })).toBe(403);
    expect(await status({ host: 'localhost' })).toBe(200);
  });

  test('rejects a foreign Origin header with 403', async () => {
    const { status: got, body } = await send(
      'POST',
      '/v1/responses',
      { input: 'Hi' },
      { origin: 'https://evil.example' },
    );
    expect(got).toBe(403);
    expect((body as WireError).error).toMatchObject({ type: 'permission_error', code: 'not_local' });
  });
});

describe('a failing model', () => {
  const faults: readonly [FaultName, number | undefined, number, string, string][] = [
    ['status', 400, 400, 'invalid_prompt', 'invalid_prompt'],
    ['status', 401, 502, 'model_auth', 'server_error'],
    ['status', 402, 429, 'insufficient_quota', 'rate_limit_exceeded'],
    ['status', 429, 429, 'rate_limit_exceeded', 'rate_limit_exceeded'],
    ['status', 500, 503, 'model_overloaded', 'server_error'],
    ['status', 503, 503, 'model_overloaded', 'server_error'],
    ['reset-at-once', undefined, 502, 'model_unreachable', 'server_error'],
    ['web-page', undefined, 502, 'model_protocol', 'server_error'],
    ['error-in-200', 500, 503, 'model_overloaded', 'server_error'],
  ];

  test.each(faults)('%s %s before any output: %s %s', async (fault, status, expected, code, inStream) => {
    const failing = { fault, ...(status !== undefined && { status }) };
    const script = await fixture.script(failing, failing);
    const { body, headers, status: got } = await expectError({ model: script.model, input: 'Hi' });
    expect([got, body.error.code]).toEqual([expected, code]);
    const types: Partial<Record<number, string>> = { 400: 'invalid_request_error', 429: 'rate_limit_error' };
    expect(body.error.type).toBe(types[expected] ?? 'server_error');
    // Official clients would retry a 429 and a 502.
    const isLasting = code === 'insufficient_quota' || code === 'model_auth';
    expect(headers.get('x-should-retry')).toBe(isLasting ? 'false' : null);

    const { events, response } = await stream({ model: script.model, input: 'Hi' });
    expect(events.map(({ type }) => type)).toEqual([
      'response.created',
      'response.in_progress',
      'error',
      'response.failed',
    ]);
    expect(response).toMatchObject({ status: 'failed', output: [], error: { code: inStream } });
  });

  test('Retry-After of the provider is passed on with a 429', async () => {
    const script = await fixture.script({ fault: 'status', status: 429, retryAfter: 7 });
    const { headers, status } = await expectError({ model: script.model, input: 'Hi' });
    expect(status).toBe(429);
    expect(headers.get('retry-after')).toBe('7');
  });

  test.each<[FaultName]>([['error-in-stream'], ['reset'], ['close'], ['garbage']])(
    '%s in the middle of a text: an error event with flat and nested fields, then response.failed',
    async (fault) => {
      const script = await fixture.script({ fault }, { fault });
      const { events, response } = await stream({ model: script.model, input: 'Hi' });
      const error = events.at(-2)!;
      const { code, message } = response.error!;
      expect(error).toEqual({
        type: 'error',
        sequence_number: events.length - 2,
        code,
        message,
        param: null,
        error: { type: 'server_error', code, message, param: null },
      });
      expect(events.at(-1)!.type).toBe('response.failed');
      expect(response.output).toMatchObject([{ type: 'message', status: 'incomplete' }]);
      expect(textIn(response)).not.toBe('');

      const whole = await respond({ model: script.model, input: 'Hi' });
      expect(whole).toMatchObject({ status: 'failed', error: { code } });
      expect(textIn(whole)).toBe(textIn(response));
    },
  );

  test('after a tool turn: the failed response keeps its output', async () => {
    const steps = [
      { text: 'I add.', calls: [call('add', { a: 1, b: 1 })] },
      { fault: 'status', status: 429 },
    ] as const;
    const script = await fixture.script(...steps, ...steps);
    const body = { model: script.model, input: 'Add', tools: [SERVER_TOOLS] };
    const response = await respond(body);
    expect(response).toMatchObject({
      status: 'failed',
      error: { code: 'rate_limit_exceeded' },
      output: [{ type: 'message' }, { type: 'mcp_call', output: '2' }],
      usage: { input_tokens: 20, output_tokens: 10 },
    });
    const { events } = await stream(body);
    expect(events.at(-2)).toMatchObject({ type: 'error', error: { type: 'rate_limit_error' } });
  });

  test('does not end the conversation: the failed response can be continued', async () => {
    const script = await fixture.script(
      { calls: [call('add', { a: 1, b: 1 })] },
      { fault: 'status', status: 500 },
      { text: 'Two.' },
    );
    const failed = await respond({ model: script.model, input: 'Add', tools: [SERVER_TOOLS] });
    expect(failed.status).toBe('failed');
    const next = await respond({ model: script.model, previous_response_id: failed.id, input: 'Once more' });
    expect(textIn(next)).toBe('Two.');
    expect((await script.conversations()).at(-1)).toEqual([
      'user: Add',
      'assistant: [1] add {"a":1,"b":1}',
      'tool: [1] 2',
      'user: Once more',
    ]);
  });

  test('a failing tool does not fail the response', async () => {
    const script = await fixture.script({ calls: [call('fail', {})] }, { text: 'It failed.' });
    const { events, response } = await stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS] });
    expect(events.some(({ type }) => type === 'error')).toBe(false);
    expect(response).toMatchObject({ status: 'completed', error: null });
  });

  test('is reported by Chat Completions with the same errors', async () => {
    const script = await fixture.script({ fault: 'status', status: 429, retryAfter: 3 }, { fault: 'error-in-stream' });
    const completion = { model: script.model, messages: [{ role: 'user', content: 'Hi' }] };
    const { status, body, headers } = await send('POST', '/v1/chat/completions', completion);
    expect(status).toBe(429);
    expect(headers.get('retry-after')).toBe('3');
    expect((body as WireError).error).toMatchObject({ type: 'rate_limit_error', code: 'rate_limit_exceeded' });
    const streamed = await send('POST', '/v1/chat/completions', { ...completion, stream: true });
    expect(streamed.status).toBe(200);
    const frames = String(streamed.body).trim().split('\n\n');
    expect(frames.pop()).toBe('data: [DONE]');
    expect(JSON.parse(frames.at(-1)!.slice('data: '.length))).toMatchObject({
      error: { message: expect.any(String), type: 'server_error', param: null, code: expect.any(String) },
    });
  });

  test('is reported by Messages in the form of that API, with a status before the first block', async () => {
    const script = await fixture.script(
      { fault: 'status', status: 429, retryAfter: 3 },
      { fault: 'status', status: 503 },
      { fault: 'error-in-stream', reply: { text: 'This reply is not complete.' } },
    );
    const message = { model: script.model, max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }], stream: true };
    const limited = await send('POST', '/v1/messages', message);
    expect([limited.status, limited.headers.get('retry-after')]).toEqual([429, '3']);
    expect(limited.body).toMatchObject({
      type: 'error',
      error: { type: 'rate_limit_error', details: { error_code: 'rate_limit_exceeded' } },
      request_id: limited.headers.get('request-id'),
    });
    const busy = await send('POST', '/v1/messages', message);
    expect([busy.status, busy.body]).toMatchObject([529, { error: { type: 'overloaded_error' } }]);
    const broken = await send('POST', '/v1/messages', message);
    const [event, data] = String(broken.body).trim().split('\n\n').at(-1)!.split('\n');
    expect([broken.status, event]).toEqual([200, 'event: error']);
    expect(JSON.parse(data!.slice('data: '.length))).toMatchObject({ type: 'error', request_id: expect.any(String) });
  });
});
