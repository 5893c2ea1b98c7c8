import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, useServerFixture, WEATHER } from './support/fixture.ts';
import { responsesClient, callsIn, textIn, type WireError } from './support/responses-client.ts';
import { startServer, type ServerProcess } from './support/server-process.ts';

const MAX_BYTES = 500_000;
const fixture = useServerFixture({ maxBodyBytes: MAX_BYTES, maxConcurrentRuns: 2 });
const { respond, stream, startStream, expectError, retrieve, cancel, send } = responsesClient(() => fixture.server.url);

const add = (a: number): { calls: { name: string; arguments: string }[] } => ({ calls: [call('add', { a, b: 1 })] });

describe('sizes', () => {
  test('a body over maxBodyBytes is rejected with 413, also without Content-Length', async () => {
    const input = 'x'.repeat(MAX_BYTES);
    const withLength = await expectError({ input });
    expect(withLength.status).toBe(413);
    expect(withLength.body.error).toMatchObject({
      type: 'invalid_request_error',
      param: null,
      code: 'request_too_large',
      message: expect.stringContaining(String(MAX_BYTES)),
    });
    const chunks = new Blob([JSON.stringify({ input })]).stream();
    const withoutLength = await fetch(`${fixture.server.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: chunks,
      duplex: 'half',
    }).catch((error: unknown) => error);
    // The server may close the connection before the whole body was sent.
    if (withoutLength instanceof Response) expect(withoutLength.status).toBe(413);
    const chat = await send('POST', '/v1/chat/completions', { messages: [{ role: 'user', content: input }] });
    expect(chat.status).toBe(413);
  });

  test('a body of exactly maxBodyBytes is accepted', async () => {
    const script = await fixture.script({ text: 'Long.' });
    const body = { model: script.model, input: '' };
    const input = 'x'.repeat(MAX_BYTES - JSON.stringify(body).length);
    expect(textIn(await respond({ ...body, input }))).toBe('Long.');
  });

  test.each<[string, object, string, string]>([
    [
      'too many tools',
      { tools: Array.from({ length: 257 }, (_, n) => ({ type: 'function', name: `f${n}` })) },
      'tools',
      'array_above_max_length',
    ],
    [
      'a tool that is too large',
      { tools: [{ ...WEATHER, description: 'x'.repeat(140_000) }] },
      'tools[0]',
      'tool_too_large',
    ],
    [
      'too many input items',
      { input: Array.from({ length: 10_001 }, () => ({ role: 'user', content: 'x' })) },
      'input',
      'array_above_max_length',
    ],
    [
      'a schema that is too large',
      { text: { format: { type: 'json_schema', name: 'a', schema: { description: 'x'.repeat(140_000) } } } },
      'text.format.schema',
      'schema_too_large',
    ],
    [
      'too much metadata',
      { metadata: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`k${n}`, 'v'])) },
      'metadata',
      'object_above_max_properties',
    ],
    [
      'a metadata value that is too long',
      { metadata: { a: 'x'.repeat(513) } },
      'metadata.a',
      'string_above_max_length',
    ],
    [
      'a tool name that is too long',
      { tools: [{ type: 'function', name: 'x'.repeat(65) }] },
      'tools[0].name',
      'string_above_max_length',
    ],
  ])('%s: rejected with 400', async (_, more, param, code) => {
    const { status, body } = await expectError({ input: 'Hi', ...more });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param, code });
  });
});

describe('turns', () => {
  test('are limited to ten, and the response keeps its output', async () => {
    const script = await fixture.script(...Array.from({ length: 11 }, (_, turn) => add(turn)));
    const response = await respond({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' } });
    expect(response.output).toHaveLength(10);
    expect(response.output.every(({ status }) => status === 'completed')).toBe(true);
    expect(response.usage).toMatchObject({ input_tokens: 200, output_tokens: 100, total_tokens: 300 });
    // A continuation has its own ten turns.
    await script.add({ text: 'Enough.' });
    const next = await respond({ model: script.model, input: 'Go on', previous_response_id: response.id });
    expect(next.status).toBe('completed');
  });

  test('the tenth turn can complete the response', async () => {
    const script = await fixture.script(...Array.from({ length: 9 }, (_, turn) => add(turn)), { text: 'Nine.' });
    const response = await respond({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Nine.');
  });
});

describe('max_tool_calls', () => {
  test('counts calls, not turns, and answers further calls with an error', async () => {
    const script = await fixture.script({ calls: [1, 2, 3].map((a) => call('add', { a, b: 1 })) }, add(4), {
      text: 'Enough.',
    });
    const response = await respond({ model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_tool_calls: 3 });
    expect(response.output.map(({ type, status }) => `${type} ${status}`)).toEqual([
      'mcp_call completed',
      'mcp_call completed',
      'mcp_call completed',
      'mcp_call failed',
      'message completed',
    ]);
    expect(response).toMatchObject({ status: 'completed', max_tool_calls: 3 });
  });

  test('ends the response as incomplete when the model keeps calling', async () => {
    const script = await fixture.script(add(1), add(2), add(3), { text: 'Never.' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_tool_calls: 1 });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_tool_calls' } });
    expect(response.output.map(({ status }) => status)).toEqual(['completed', 'failed', 'failed']);
  });

  test('applies within one reply', async () => {
    const script = await fixture.script({ calls: [1, 2, 3].map((a) => call('add', { a, b: 1 })) }, { text: 'One.' });
    const response = await respond({ model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_tool_calls: 1 });
    expect(response.output.map(({ status }) => status)).toEqual(['completed', 'failed', 'failed', 'completed']);
  });
});

describe('max_output_tokens', () => {
  test('applies to all turns: each model request gets the remainder', async () => {
    const script = await fixture.script(
      { ...add(1), usage: { input: 5, output: 40 } },
      { ...add(2), usage: { input: 5, output: 30 } },
      { text: 'Done.', usage: { input: 5, output: 20 } },
    );
    const request = { model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_output_tokens: 100 };
    const response = await respond(request);
    expect(response).toMatchObject({ status: 'completed', max_output_tokens: 100, usage: { output_tokens: 90 } });
    const maxTokens = (await script.bodies()).map((body) => body['max_completion_tokens'] ?? body['max_tokens']);
    expect(maxTokens).toEqual([100, 60, 30]);
  });

  test('used up between two turns ends the response as incomplete, after the calls', async () => {
    const script = await fixture.script({ ...add(1), usage: { input: 5, output: 100 } }, { text: 'Never.' });
    const request = { model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_output_tokens: 100 };
    const { response, events } = await stream(request);
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      error: null,
      output: [{ type: 'mcp_call', output: '2', status: 'completed' }],
    });
    expect(events.some(({ type }) => type === 'error')).toBe(false);
    expect(await script.bodies()).toHaveLength(1);
    expect(await retrieve(response.id)).toEqual(response);
  });

  test('a truncated reply makes the response incomplete', async () => {
    const script = await fixture.script({ text: 'Once upon a', finish: 'length' });
    const response = await respond({ model: script.model, input: 'Go', max_output_tokens: 16 });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ type: 'message', status: 'incomplete' }],
    });
  });

  test('a client call in a truncated reply is not pending', async () => {
    const script = await fixture.script({ calls: [call('weather', { city: 'Oslo' })], finish: 'length' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER] });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ type: 'function_call', status: 'incomplete' }],
    });
    expect(response.pending_call_ids).toBeUndefined();
  });

  test('a filtered reply has the reason content_filter', async () => {
    const script = await fixture.script({ text: 'This is', finish: 'content-filter' });
    const response = await respond({ model: script.model, input: 'Go' });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'content_filter' } });
  });
});

test('usage is the sum of all turns, including its details', async () => {
  const script = await fixture.script(
    { ...add(1), usage: { input: 10, output: 5, cached: 3, reasoning: 2 } },
    { ...add(2), usage: { input: 20, output: 6, cached: 10, reasoning: 1 } },
    { text: 'Three.', usage: { input: 30, output: 7 } },
  );
  const { response } = await stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS] });
  expect(response.usage).toEqual({
    input_tokens: 60,
    input_tokens_details: { cached_tokens: 13 },
    output_tokens: 18,
    output_tokens_details: { reasoning_tokens: 3 },
    total_tokens: 78,
  });
});

test('calls beyond 128 in one reply are rejected and not sent to the client', async () => {
  const calls = Array.from({ length: 130 }, (_, n) => call('weather', { n }));
  const script = await fixture.script({ calls });
  const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER] });
  expect(callsIn(response)).toHaveLength(128);
  expect(response.pending_call_ids).toHaveLength(128);
  expect(response.output.slice(128)).toMatchObject([{ status: 'failed' }, { status: 'failed' }]);
});

test('runs over maxConcurrentRuns are rejected with 429 until one has ended', async () => {
  const script = await fixture.script(
    { calls: [call('hold', { tag: 'one' })] },
    { calls: [call('hold', { tag: 'two' })] },
    { text: 'Done.' },
    { text: 'Done.' },
    { text: 'Done.' },
  );
  const request = { model: script.model, input: 'Wait', tools: [SERVER_TOOLS] };
  const one = await startStream(request);
  await fixture.server.held('one');
  const two = await startStream(request);
  await fixture.server.held('two');
  const { status, body, headers } = await expectError(request);
  expect(status).toBe(429);
  expect(body.error).toMatchObject({ type: 'rate_limit_error', param: null, code: 'too_many_runs' });
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  const chat = await send('POST', '/v1/chat/completions', { ...request, messages: [{ role: 'user', content: 'Hi' }] });
  expect([chat.status, (chat.body as WireError).error.code]).toEqual([429, 'too_many_runs']);
  // Other requests are not limited.
  expect((await retrieve(one.id)).status).toBe('in_progress');
  await cancel(one.id);
  await one.ended;
  expect((await respond(request)).status).toBe('completed');
  fixture.server.release('two');
  expect((await two.ended).response.status).toBe('completed');
});

describe.concurrent('maxDurationMs', () => {
  let limited: ServerProcess;
  beforeAll(async () => {
    limited = await startServer(fixture.provider, { maxDurationMs: 1_500 });
  }, 60_000);
  afterAll(() => limited[Symbol.asyncDispose]());
  const client = responsesClient(() => limited.url);

  test('ends a response as incomplete while a tool runs', async () => {
    const script = await fixture.script(
      { text: 'I wait.', calls: [call('hold', { tag: 'late' })] },
      { text: 'Never.' },
    );
    const { response } = await client.stream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_duration' },
      error: null,
    });
    expect(textIn(response)).toBe('I wait.');
    expect(await client.retrieve(response.id)).toEqual(response);
  });

  test.each(['stall', 'slow-headers'] as const)(
    'ends a response as incomplete while the model hangs (%s)',
    async (fault) => {
      const script = await fixture.script({ fault });
      const { response } = await client.stream({ model: script.model, input: 'Wait' });
      expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_duration' } });
    },
  );
});
