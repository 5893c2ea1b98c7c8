import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { call, SERVER_TOOLS, stage, WEATHER } from './clients/stage.ts';
import { asking, callsIn, textIn, type WireError } from './open-responses/asking.ts';
import { startServer, type ServerProcess } from './process/start.ts';

const MOST_BYTES = 500_000;
const on = stage({ maxBodyBytes: MOST_BYTES, maxConcurrentRuns: 2 });
const { respond, stream, begin, refused, retrieve, cancel, send } = asking(() => on.server.url);

const add = (a: number): { calls: { name: string; arguments: string }[] } => ({ calls: [call('add', { a, b: 1 })] });

describe('sizes', () => {
  test('a body that is too large is a 413, also if it does not say how large it is', async () => {
    const input = 'x'.repeat(MOST_BYTES);
    const known = await refused({ input });
    expect(known.status).toBe(413);
    expect(known.body.error).toMatchObject({
      type: 'invalid_request_error',
      param: null,
      code: 'request_too_large',
      message: expect.stringContaining(String(MOST_BYTES)),
    });
    const chunks = new Blob([JSON.stringify({ input })]).stream();
    const streamed = await fetch(`${on.server.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: chunks,
      duplex: 'half',
    }).catch((error: unknown) => error);
    // The server may well stop reading before all of it was sent.
    if (streamed instanceof Response) expect(streamed.status).toBe(413);
    const chat = await send('POST', '/v1/chat/completions', { messages: [{ role: 'user', content: input }] });
    expect(chat.status).toBe(413);
  });

  test('one just below it is taken', async () => {
    const script = await on.script({ text: 'Long.' });
    const body = { model: script.model, input: '' };
    const input = 'x'.repeat(MOST_BYTES - JSON.stringify(body).length);
    expect(textIn(await respond({ ...body, input }))).toBe('Long.');
  });

  test.each<[string, object, string, string]>([
    [
      'too many tools',
      { tools: Array.from({ length: 257 }, (_, n) => ({ type: 'function', name: `f${n}` })) },
      'tools',
      'array_above_max_length',
    ],
    ['too large a tool', { tools: [{ ...WEATHER, description: 'x'.repeat(140_000) }] }, 'tools[0]', 'tool_too_large'],
    [
      'too many items',
      { input: Array.from({ length: 10_001 }, () => ({ role: 'user', content: 'x' })) },
      'input',
      'array_above_max_length',
    ],
    [
      'too large a schema',
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
    ['too long a value', { metadata: { a: 'x'.repeat(513) } }, 'metadata.a', 'string_above_max_length'],
    [
      'too long a name',
      { tools: [{ type: 'function', name: 'x'.repeat(65) }] },
      'tools[0].name',
      'string_above_max_length',
    ],
  ])('%s is a 400', async (_, more, param, code) => {
    const { status, body } = await refused({ input: 'Hi', ...more });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param, code });
  });
});

describe('turns', () => {
  test('are ten at most, and what was reached is there', async () => {
    const script = await on.script(...Array.from({ length: 11 }, (_, turn) => add(turn)));
    const response = await respond({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' } });
    expect(response.output).toHaveLength(10);
    expect(response.output.every(({ status }) => status === 'completed')).toBe(true);
    expect(response.usage).toMatchObject({ input_tokens: 200, output_tokens: 100, total_tokens: 300 });
    // Whoever goes on has ten more.
    await script.add({ text: 'Enough.' });
    const next = await respond({ model: script.model, input: 'Go on', previous_response_id: response.id });
    expect(next.status).toBe('completed');
  });

  test('ten are not too many', async () => {
    const script = await on.script(...Array.from({ length: 9 }, (_, turn) => add(turn)), { text: 'Nine.' });
    const response = await respond({ model: script.model, input: 'Count', tools: [SERVER_TOOLS] });
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Nine.');
  });
});

describe('max_tool_calls', () => {
  test('counts calls, not turns: those beyond it are answered with an error', async () => {
    const script = await on.script({ calls: [1, 2, 3].map((a) => call('add', { a, b: 1 })) }, add(4), {
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

  test('that are called on and on end it: incomplete, with that reason', async () => {
    const script = await on.script(add(1), add(2), add(3), { text: 'Never.' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_tool_calls: 1 });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_tool_calls' } });
    expect(response.output.map(({ status }) => status)).toEqual(['completed', 'failed', 'failed']);
  });

  test('within one reply', async () => {
    const script = await on.script({ calls: [1, 2, 3].map((a) => call('add', { a, b: 1 })) }, { text: 'One.' });
    const response = await respond({ model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_tool_calls: 1 });
    expect(response.output.map(({ status }) => status)).toEqual(['completed', 'failed', 'failed', 'completed']);
  });
});

describe('max_output_tokens', () => {
  test('is of all turns together: the model is told what is left', async () => {
    const script = await on.script(
      { ...add(1), usage: { input: 5, output: 40 } },
      { ...add(2), usage: { input: 5, output: 30 } },
      { text: 'Done.', usage: { input: 5, output: 20 } },
    );
    const asked = { model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_output_tokens: 100 };
    const response = await respond(asked);
    expect(response).toMatchObject({ status: 'completed', max_output_tokens: 100, usage: { output_tokens: 90 } });
    const told = (await script.bodies()).map((body) => body['max_completion_tokens'] ?? body['max_tokens']);
    expect(told).toEqual([100, 60, 30]);
  });

  test('used up between two turns ends it: incomplete, with that reason, and the calls are done', async () => {
    const script = await on.script({ ...add(1), usage: { input: 5, output: 100 } }, { text: 'Never.' });
    const asked = { model: script.model, input: 'Go', tools: [SERVER_TOOLS], max_output_tokens: 100 };
    const { response, events } = await stream(asked);
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

  test('a reply that was cut off', async () => {
    const script = await on.script({ text: 'Once upon a', finish: 'length' });
    const response = await respond({ model: script.model, input: 'Go', max_output_tokens: 16 });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ type: 'message', status: 'incomplete' }],
    });
  });

  test('a call of the client in a reply that was cut off is not to be answered', async () => {
    const script = await on.script({ calls: [call('weather', { city: 'Oslo' })], finish: 'length' });
    const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER] });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ type: 'function_call', status: 'incomplete' }],
    });
    expect(response.pending_call_ids).toBeUndefined();
  });

  test('a filtered reply has its own reason', async () => {
    const script = await on.script({ text: 'This is', finish: 'content-filter' });
    const response = await respond({ model: script.model, input: 'Go' });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'content_filter' } });
  });
});

test('usage is the sum of all turns, with its details', async () => {
  const script = await on.script(
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

test('more than 128 calls in one reply: the rest is refused, and none of it asked of the client', async () => {
  const calls = Array.from({ length: 130 }, (_, n) => call('weather', { n }));
  const script = await on.script({ calls });
  const { response } = await stream({ model: script.model, input: 'Go', tools: [WEATHER] });
  expect(callsIn(response)).toHaveLength(128);
  expect(response.pending_call_ids).toHaveLength(128);
  expect(response.output.slice(128)).toMatchObject([{ status: 'failed' }, { status: 'failed' }]);
});

test('more runs at once than there may be: 429, and room again when one has ended', async () => {
  const script = await on.script(
    { calls: [call('hold', { tag: 'one' })] },
    { calls: [call('hold', { tag: 'two' })] },
    { text: 'Done.' },
    { text: 'Done.' },
    { text: 'Done.' },
  );
  const asked = { model: script.model, input: 'Wait', tools: [SERVER_TOOLS] };
  const one = await begin(asked);
  await on.server.held('one');
  const two = await begin(asked);
  await on.server.held('two');
  const { status, body, headers } = await refused(asked);
  expect(status).toBe(429);
  expect(body.error).toMatchObject({ type: 'rate_limit_error', param: null, code: 'too_many_runs' });
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  const chat = await send('POST', '/v1/chat/completions', { ...asked, messages: [{ role: 'user', content: 'Hi' }] });
  expect([chat.status, (chat.body as WireError).error.code]).toEqual([429, 'too_many_runs']);
  // What is no run is not counted.
  expect((await retrieve(one.id)).status).toBe('in_progress');
  await cancel(one.id);
  await one.ended;
  expect((await respond(asked)).status).toBe('completed');
  on.server.release('two');
  expect((await two.ended).response.status).toBe('completed');
});

describe.concurrent('time', () => {
  let hasty: ServerProcess;
  beforeAll(async () => {
    hasty = await startServer(on.provider, { maxDurationMs: 1_500 });
  }, 60_000);
  afterAll(() => hasty[Symbol.asyncDispose]());
  const quick = asking(() => hasty.url);

  test('a tool that takes longer than a response may: incomplete, with that reason', async () => {
    const script = await on.script({ text: 'I wait.', calls: [call('hold', { tag: 'late' })] }, { text: 'Never.' });
    const { response } = await quick.stream({ model: script.model, input: 'Wait', tools: [SERVER_TOOLS] });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_duration' },
      error: null,
    });
    expect(textIn(response)).toBe('I wait.');
    expect(await quick.retrieve(response.id)).toEqual(response);
  });

  test.each(['stall', 'slow-headers'] as const)('a model that says nothing more (%s)', async (fault) => {
    const script = await on.script({ fault });
    const { response } = await quick.stream({ model: script.model, input: 'Wait' });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_duration' } });
  });
});
