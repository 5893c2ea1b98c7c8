import type { AssistantPart, ModelDelta } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fixtures } from '../../test/fixtures.ts';
import { call, text } from '../../test/parts.ts';
import { replayer } from '../../test/replay.ts';
import { openaiResponsesProtocol } from './openai-responses.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

const protocol = openaiResponsesProtocol({
  model: 'm',
  stream: true,
  store: false,
  encryptedReasoning: true,
  strict: false,
  signer: 'openai-responses',
});
const { replay, expectSameHoweverCut, expectFailureWhenCutBefore } = replayer(protocol);
const fixture = fixtures('openai-responses');

const frames = (...events: object[]): Uint8Array[] =>
  events.map((event) => Buffer.from(`data: ${JSON.stringify(event)}\n\n`));

const reasoning = (text: string, item: object): unknown => ({
  type: 'reasoning',
  text,
  ...('summary' in item && Array.isArray(item.summary) && item.summary.length > 0 && { summary: true }),
  signature: JSON.stringify(item),
  protocol: 'openai-responses',
});
const thought = (text: string): object => ({ type: 'summary_text', text });

const GPT = { model: 'gpt-5-mini-2025-08-07' };

const EXPECTED: Record<string, unknown> = {
  'text.sse': {
    type: 'reply',
    content: [text('Grüße aus Tromsø: 🌨️ −4 °C.\n\n"Ok"')],
    finish: 'stop',
    rawFinish: 'completed',
    usage: { inputTokens: 21, outputTokens: 14, cachedTokens: 16, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'one-call.sse': {
    type: 'reply',
    content: [call('call_w7P1nRkq2mX0aJtYhD5cVb8s', 'get_weather', '{"city":"Tromsø","days":3}')],
    finish: 'tool-calls',
    rawFinish: 'completed',
    usage: { inputTokens: 93, outputTokens: 17, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'parallel-calls.sse': {
    type: 'reply',
    content: [
      text("I'll look up both."),
      call('call_Ht3zqYbK9mW2eRxLpN7vC1uD', 'get_weather', '{"city":"Oslo"}'),
      call('call_Zk8sVfQ4nJ6tBgMwXc0yE2aR', 'get_weather', '{"city":"Rome"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'completed',
    usage: { inputTokens: 88, outputTokens: 49, cachedTokens: 64, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'reasoning-call.sse': {
    type: 'reply',
    content: [
      reasoning('**Finding the weather**\n\nThe user asks about Oslo.\n\n**Calling a tool**\n\nOne call is enough.', {
        id: 'rs_0c7e3a51d2f84b96006918168a10f48193970b',
        type: 'reasoning',
        encrypted_content:
          'gAAAAABpGBaLw7Jx2mN0v5TtR1kYc8ZfQeU4hS9dPaLgXoBnV6iCzE3rMwKjD-_yHbGq8sTf1uA0xWcNl2pRvYk5oJ4eZ7mQhIgSdBtFaCzXnV9LrUwEyKjM3HbPq6Ts==',
        summary: [
          thought('**Finding the weather**\n\nThe user asks about Oslo.'),
          thought('**Calling a tool**\n\nOne call is enough.'),
        ],
      }),
      call('call_q1Nv8TzXw3RmKc5LbJ0sYhGd', 'get_weather', '{"city":"Oslo"}'),
      reasoning('', {
        id: 'rs_0c7e3a51d2f84b960069181698ed688193a552',
        type: 'reasoning',
        encrypted_content:
          'gAAAAABpGBaZ3dKf8sPqLxWmUeYcTn5vJhR0zBgA2iEoX7MtCkQ4rNyD9lVbHjSw6aFuGp1ZxTqIe_-8cLsOdRnYvKm3JwBfUhXgAtPz5oEiMqVyCrDl0SkNjWbH7Ga==',
        summary: [],
      }),
      call('call_B7fLs2QeVn9XtMw4KzRcJy6P', 'get_time', '{}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'completed',
    usage: { inputTokens: 170, outputTokens: 61, cachedTokens: 128, cacheWriteTokens: 0, reasoningTokens: 22 },
    ...GPT,
  },
  'refusal.sse': {
    type: 'reply',
    content: [{ type: 'text', text: "I'm sorry, I cannot assist with that.", refusal: true }],
    finish: 'stop',
    rawFinish: 'completed',
    usage: { inputTokens: 30, outputTokens: 9, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'length.sse': {
    type: 'reply',
    content: [text('Once upon'), call('call_5yGm0TnKxq3bZ1sWvR9dPcLe', 'write', '{"path":"tale.txt","content":"Once')],
    finish: 'length',
    rawFinish: 'max_output_tokens',
    usage: { inputTokens: 40, outputTokens: 16, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'length-in-reasoning.sse': {
    type: 'reply',
    content: [
      reasoning('', {
        id: 'rs_0c7e3a51d2f84b9600691817a1b31c8193f1e8',
        type: 'reasoning',
        encrypted_content: 'gAAAAABpGBeiT5nUeYcWvJhR0zBgA2iEoX7MtCkQ4rNyD9lVbHjSw6aFuGp1ZxTqIe==',
        summary: [],
      }),
    ],
    finish: 'length',
    rawFinish: 'max_output_tokens',
    usage: { inputTokens: 40, outputTokens: 16, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 16 },
    ...GPT,
  },
  'content-filter.sse': {
    type: 'reply',
    content: [text('First you')],
    finish: 'content-filter',
    rawFinish: 'content_filter',
    usage: { inputTokens: 12, outputTokens: 2, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    model: 'gpt-4.1-2025-04-14',
  },
  'error-frame.sse': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message:
        'The provider broke off with an error: The server had an error while processing your request. Sorry about that!',
      retryable: true,
    },
  },
  'error-frame-nested.sse': {
    type: 'failure',
    error: {
      code: 'rate-limit',
      message: expect.stringMatching(/^The provider broke off with an error: Rate limit reached for gpt-5-mini/),
      retryable: true,
    },
  },
  'failed.sse': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message:
        'The provider broke off with an error: The server had an error processing your request. Sorry about that! You can retry your request.',
      retryable: true,
    },
  },
  'web-search.sse': {
    type: 'reply',
    content: [text('It snows ([yr.no](https://yr.no)).')],
    finish: 'stop',
    rawFinish: 'completed',
    usage: { inputTokens: 310, outputTokens: 40, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'vllm-open-reasoning.sse': {
    type: 'reply',
    content: [
      reasoning('Two and two.', {
        id: 'rs_6b1f0d',
        type: 'reasoning',
        status: 'completed',
        summary: [],
        content: [{ type: 'reasoning_text', text: 'Two and two.' }],
        encrypted_content: null,
      }),
      text('4'),
    ],
    finish: 'stop',
    rawFinish: 'completed',
    usage: { inputTokens: 70, outputTokens: 14, cachedTokens: 64, reasoningTokens: 6 },
    model: 'openai/gpt-oss-20b',
  },
  'gateway-ids-change-no-output.sse': {
    type: 'reply',
    content: [call('call_A1', 'get_weather', '{"city":"Oslo"}')],
    finish: 'tool-calls',
    rawFinish: 'completed',
    usage: { inputTokens: 93, outputTokens: 17, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
  'gateway-pings.sse': {
    type: 'reply',
    content: [call('call_A1', 'get_weather', '{"city":"Oslo"}')],
    finish: 'tool-calls',
    rawFinish: 'completed',
    usage: { inputTokens: 93, outputTokens: 17, cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    ...GPT,
  },
};

test.each(Object.keys(EXPECTED))(
  '%s: reads the same whole, byte by byte, split at every point and with CRLF',
  (name) => {
    expect(replay([fixture(name)]).reply).toEqual(EXPECTED[name]);
    expectSameHoweverCut(fixture(name));
  },
);

test.each(Object.keys(EXPECTED))('%s: fails if it is truncated anywhere before its last event', (name) => {
  const whole = fixture(name);
  expectFailureWhenCutBefore(whole, whole.lastIndexOf('data: ') + 1);
});

/** The reply, assembled from its deltas. */
function fromDeltas(deltas: readonly ModelDelta[]): { text: string; reasoning: string; calls: string[][] } {
  const calls: string[][] = [];
  let [text, reasoning] = ['', ''];
  for (const delta of deltas) {
    if (delta.type === 'text-delta') text += delta.text;
    else if (delta.type === 'reasoning-delta') reasoning += delta.text;
    else (calls[delta.call] ??= [delta.name, ''])[1] += delta.arguments;
  }
  return { text, reasoning, calls };
}

const joined = (content: readonly AssistantPart[], type: 'text' | 'reasoning'): string =>
  content.map((part) => (part.type === type ? part.text : '')).join('');

test.each(Object.keys(EXPECTED))('%s: emits the pieces of the reply as deltas', (name) => {
  const { reply, deltas } = replay([fixture(name)]);
  if (reply.type === 'failure') return expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
  const calls = reply.content.filter((part) => part.type === 'tool-call');
  expect(fromDeltas(deltas)).toEqual({
    text: joined(reply.content, 'text'),
    reasoning: joined(reply.content, 'reasoning'),
    calls: calls.map(({ name, arguments: json }) => [name, json]),
  });
});

test('emits each delta of parallel calls', () => {
  expect(replay([fixture('parallel-calls.sse')]).deltas).toEqual([
    { type: 'text-delta', text: "I'll look" },
    { type: 'text-delta', text: ' up both.' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '{"' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: 'city":"' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: 'Oslo' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '"}' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: '' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: '{"' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: 'city":"' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: 'Rome' },
    { type: 'call-delta', call: 1, name: 'get_weather', arguments: '"}' },
  ]);
});

test.each([
  [
    'whole.json',
    {
      type: 'reply',
      content: [
        reasoning('**Two cities**', {
          id: 'rs_0c7e3a51d2f84b9600691819c8cf548193e1d3',
          type: 'reasoning',
          encrypted_content: 'gAAAAABpGBnIx0LrUwEyKjM3HbPq6Ts5oEiMqVyCrDl0SkNjWbH7Ga==',
          summary: [thought('**Two cities**')],
        }),
        text("I'll look up both."),
        call('call_A1', 'get_weather', '{"city":"Oslo"}'),
        call('call_B2', 'get_weather', '{"city":"Rome"}'),
      ],
      finish: 'tool-calls',
      rawFinish: 'completed',
      usage: { inputTokens: 88, outputTokens: 49, cachedTokens: 64, cacheWriteTokens: 0, reasoningTokens: 5 },
      ...GPT,
    },
  ],
  [
    'whole-refusal.json',
    { content: [{ type: 'text', text: "I'm sorry, I cannot assist with that.", refusal: true }], finish: 'stop' },
  ],
  ['whole-length.json', { content: [text('Once upon')], finish: 'length', rawFinish: 'max_output_tokens' }],
  ['whole-failed.json', { type: 'failure', error: { code: 'rate-limit', retryable: true } }],
])('decodes %s', (name, expected) => {
  expect(protocol.decode(fixture(name).toString())).toMatchObject(expected);
});

// ── Differences of hosts ─────────────────────────────────────────────────────────────────────────────────────────────

const message = (content: unknown): object => ({ type: 'message', role: 'assistant', content });
const functionCall = (call_id: string, json: unknown): object => ({
  type: 'function_call',
  call_id,
  name: 'f',
  arguments: json,
});
const completed = (response: object = {}): object => ({ type: 'response.completed', response });
const added = (output_index: number | undefined, item: object): object => ({
  type: 'response.output_item.added',
  output_index,
  item,
});
const done = (output_index: number | undefined, item: object): object => ({
  type: 'response.output_item.done',
  output_index,
  item,
});

test('emits deltas for items that only the last event contains', () => {
  const output = [message([{ type: 'output_text', text: 'Hi' }]), functionCall('c', '{}')];
  expect(replay(frames(completed({ output })))).toMatchObject({
    reply: { content: [text('Hi'), call('c', 'f', '{}')], finish: 'tool-calls' },
    deltas: [
      { type: 'text-delta', text: 'Hi' },
      { type: 'call-delta', arguments: '' },
      { type: 'call-delta', arguments: '{}' },
    ],
  });
});

test('assembles the reply from deltas if no item is complete', () => {
  expect(
    replay(
      frames(
        { type: 'response.reasoning_summary_text.delta', output_index: 0, summary_index: 0, delta: 'a' },
        { type: 'response.reasoning_summary_text.delta', output_index: 0, summary_index: 1, delta: 'b' },
        { type: 'response.output_text.delta', output_index: 1, delta: 'c' },
        added(2, functionCall('x', '')),
        { type: 'response.function_call_arguments.delta', output_index: 2, delta: '{"n"' },
        { type: 'response.function_call_arguments.delta', output_index: 2, delta: ':1}' },
        completed(),
      ),
    ).reply,
  ).toMatchObject({
    content: [{ type: 'reasoning', text: 'a\n\nb' }, text('c'), call('x', 'f', '{"n":1}')],
    finish: 'tool-calls',
  });
});

test('reads complete items, all at index 0 or without an index', () => {
  for (const index of [0, undefined]) {
    const { reply, deltas } = replay(
      frames(done(index, functionCall('x', '{"n":1}')), done(index, functionCall('y', { n: 2 })), completed()),
    );
    expect(reply).toMatchObject({ content: [call('x', 'f', '{"n":1}'), call('y', 'f', '{"n":2}')] });
    expect(fromDeltas(deltas).calls).toEqual([
      ['f', '{"n":1}'],
      ['f', '{"n":2}'],
    ]);
  }
});

test('separates items by the type of their deltas if every item has index 0', () => {
  const { reply } = replay(
    frames(
      { type: 'response.output_text.delta', output_index: 0, delta: 'a' },
      { type: 'response.function_call_arguments.delta', output_index: 0, delta: '{}' },
      completed(),
    ),
  );
  expect(reply).toMatchObject({ content: [text('a'), call('', '', '{}')] });
});

test('emits the deltas of a refusal', () => {
  expect(replay([fixture('refusal.sse')]).deltas).toEqual([
    { type: 'text-delta', text: "I'm sorry", refusal: true },
    { type: 'text-delta', text: ', I cannot', refusal: true },
    { type: 'text-delta', text: ' assist', refusal: true },
    { type: 'text-delta', text: ' with that.', refusal: true },
  ]);
});

test('separates items by id without an index', () => {
  const delta = (item_id: string, delta: string): object => ({
    type: 'response.function_call_arguments.delta',
    item_id,
    delta,
  });
  const { reply } = replay(
    frames(
      added(undefined, { ...functionCall('x', ''), id: 'a' }),
      added(undefined, { ...functionCall('y', ''), id: 'b' }),
      delta('a', '{"n"'),
      delta('b', '{"m"'),
      delta('a', ':1}'),
      delta('b', ':2}'),
      completed(),
    ),
  );
  expect(reply).toMatchObject({ content: [call('x', 'f', '{"n":1}'), call('y', 'f', '{"m":2}')] });
});

test('accepts the type in the event field only, a trailing [DONE], and an error without a type', () => {
  const named = Buffer.from('event: response.completed\ndata: {"response":{"model":"m-1"}}\n\ndata: [DONE]\n\n');
  expect(replay([named]).reply).toMatchObject({ type: 'reply', model: 'm-1', content: [] });
  for (const last of ['[DONE]', '[DONE] ']) {
    expect(replay([Buffer.from(`data: ${last}\n\n`)]).reply).toMatchObject({
      error: { code: 'protocol', message: expect.stringContaining('cut off') },
    });
  }
  expect(
    replay([Buffer.from('event: error\ndata: {"message":"no","code":"invalid_api_key"}\n\n')]).reply,
  ).toMatchObject({ error: { code: 'auth', message: 'The provider broke off with an error: no' } });
  expect(replay(frames({ error: { message: 'Busy', code: 503 } })).reply).toMatchObject({
    error: { code: 'overloaded', status: 503 },
  });
  expect(replay(frames({ object: 'error', message: 'CUDA out of memory', code: 500 })).reply).toMatchObject({
    error: { code: 'overloaded', message: 'The provider broke off with an error: CUDA out of memory', status: 500 },
  });
});

test('ignores invalid token counts', () => {
  const details = { input_tokens_details: { cached_tokens: -1 }, output_tokens_details: { reasoning_tokens: 0.5 } };
  const usage = { input_tokens: 1e300, output_tokens: -5, ...details };
  expect(protocol.decode(JSON.stringify({ status: 'completed', output: [], usage }))).toMatchObject({
    usage: { inputTokens: 0, outputTokens: 0 },
  });
});

test('reports data that is not JSON in full, so that a key in it can be redacted', () => {
  const junk = `${'x'.repeat(500)}sk-1`;
  const message = `The answer contains data that is not JSON: ${junk}`;
  expect(replay([Buffer.from(`data: ${junk}\n\n`)]).reply).toMatchObject({ error: { message } });
  expect(protocol.decode(junk)).toMatchObject({ error: { message } });
});

test('reads an event by the type in its data if its name is that of one that only repeats others', () => {
  const event = (name: string, data: object): Uint8Array =>
    Buffer.from(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
  const { deltas } = replay([
    event('response.created', { type: 'response.output_text.delta', output_index: 0, delta: 'a' }),
    event('response.output_text.done', { type: 'response.output_text.done', output_index: 0, text: 'ignored' }),
    event('response.in_progress', { output_index: 0, delta: 'ignored' }),
  ]);
  expect(deltas).toEqual([{ type: 'text-delta', text: 'a' }]);
});

test('ignores unknown events and items', () => {
  const { reply, deltas } = replay(
    frames(
      added(0, { type: 'mcp_call', id: 'mcp_1', name: 'search', arguments: '' }),
      { type: 'response.mcp_call_arguments.delta', output_index: 0, delta: '{}' },
      { type: 'response.mcp_call.failed', output_index: 0, error: 'not ours' },
      done(0, { type: 'mcp_call', id: 'mcp_1', name: 'search', arguments: '{}', error: 'no' }),
      { type: 'response.some_day.delta', delta: 'x' },
      { type: 'response.custom_tool_call_input.delta', output_index: 1, delta: 'x' },
      done(2, message([{ type: 'output_text', text: 'Hi' }, { type: 'some_day' }])),
      completed({ status: 'in_progress' }),
    ),
  );
  expect(reply).toMatchObject({ content: [text('Hi')], finish: 'stop', rawFinish: 'completed' });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hi' }]);
});

test.each([
  ['server_error', 'overloaded', true],
  ['rate_limit_exceeded', 'rate-limit', true],
  ['insufficient_quota', 'rate-limit', false],
  ['context_length_exceeded', 'context-length', false],
  ['invalid_prompt', 'content-filter', false],
  ['bio_policy', 'content-filter', false],
  ['image_content_policy_violation', 'content-filter', false],
  ['misalignment_policy_violation', 'content-filter', false],
  ['invalid_base64_image', 'invalid-request', false],
  ['image_too_large', 'invalid-request', false],
  ['unsupported_image_media_type', 'invalid-request', false],
  ['failed_to_download_image', 'invalid-request', false],
  ['data_residency_mismatch', 'invalid-request', false],
  ['vector_store_timeout', 'timeout', true],
  ['unknown_code', 'protocol', true],
])('reports a response that failed with %s as %s', (code, expected, retryable) => {
  const response = { status: 'failed', error: { code, message: 'No.' } };
  const failure = {
    type: 'failure',
    error: { code: expected, message: 'The provider broke off with an error: No.', retryable },
  };
  expect(replay(frames({ type: 'response.failed', response })).reply).toEqual(failure);
  expect(protocol.decode(JSON.stringify(response))).toEqual(failure);
});

test.each([
  ['{"status":"failed","error":null}', /failed without a reason: its status is "failed"/],
  ['{"status":"cancelled","output":[]}', /its status is "cancelled"/],
  ['{"status":"in_progress","output":[]}', /its status is "in_progress"/],
  ['{"choices":[]}', /not a response/],
  ['{"error":{"message":"Invalid key","code":"invalid_api_key"}}', /broke off with an error: Invalid key/],
  ['{"object":"error","message":"CUDA out of memory","code":500}', /broke off with an error: CUDA out of memory/],
  ['null', /not a response/],
  ['"text"', /not a response/],
  ['[]', /not a response/],
  ['<html>', /not JSON: <html>/],
  ['', /not JSON/],
])('fails on the whole answer %s', (body, message) => {
  expect(protocol.decode(body)).toMatchObject({ type: 'failure', error: { message: expect.stringMatching(message) } });
});

test('treats an incomplete response without a reason as truncated', () => {
  expect(replay(frames({ type: 'response.incomplete', response: {} })).reply).toMatchObject({
    finish: 'length',
    rawFinish: 'incomplete',
  });
});

// ── Any input ────────────────────────────────────────────────────────────────────────────────────────────────────────

const TYPES = [
  'response.created',
  'response.output_item.added',
  'response.output_item.done',
  'response.output_text.delta',
  'response.refusal.delta',
  'response.reasoning_summary_text.delta',
  'response.reasoning_text.delta',
  'response.function_call_arguments.delta',
  'response.completed',
  'response.incomplete',
  'response.failed',
  'error',
];
const json = fc.jsonValue({ maxDepth: 3 });
const item = fc.oneof(
  json,
  fc.record(
    {
      type: fc.oneof(fc.constantFrom('message', 'reasoning', 'function_call', 'mcp_call'), json),
      id: fc.oneof(fc.constantFrom('a', 'b'), json),
      call_id: json,
      name: json,
      arguments: json,
      content: fc.oneof(fc.array(fc.record({ text: json, refusal: json }, { requiredKeys: [] })), json),
      summary: fc.oneof(fc.array(fc.record({ text: json })), json),
      encrypted_content: json,
    },
    { requiredKeys: [] },
  ),
);
const response = fc.oneof(
  json,
  fc.record(
    {
      status: fc.oneof(fc.constantFrom('completed', 'incomplete', 'failed', 'queued'), json),
      model: json,
      output: fc.oneof(fc.array(item), json),
      usage: json,
      error: json,
      incomplete_details: json,
    },
    { requiredKeys: [] },
  ),
);
const event = fc.record(
  {
    type: fc.oneof(fc.constantFrom(...TYPES), json),
    output_index: fc.oneof(fc.constantFrom(0, 1), json),
    item_id: fc.oneof(fc.constantFrom('a', 'b'), json),
    summary_index: json,
    content_index: json,
    delta: fc.oneof(fc.string(), json),
    item,
    response,
    error: json,
  },
  { requiredKeys: ['type'] },
);

test('returns a reply or a failure for events of any shape, and emits only strings', () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 12 }), (events) => {
      const { reply, deltas } = replay(frames(...events));
      expect(['reply', 'failure']).toContain(reply.type);
      for (const delta of deltas) {
        expect(typeof (delta.type === 'call-delta' ? delta.arguments : delta.text)).toBe('string');
      }
    }),
    { numRuns: 200 * CASES },
  );
});

test('returns a reply or a failure for a whole answer of any shape and for any bytes', () => {
  fc.assert(
    fc.property(fc.oneof(response, json), (value) => {
      expect(['reply', 'failure']).toContain(protocol.decode(JSON.stringify(value)).type);
    }),
    { numRuns: 500 * CASES },
  );
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 64 })), (chunks) => {
      expect(['reply', 'failure']).toContain(replay(chunks).reply.type);
      expect(protocol.decode(Buffer.concat(chunks).toString()).type).toBe('failure');
    }),
  );
});

test('returns a reply or a failure for a fixture with any one byte changed', () => {
  const whole = fixture('reasoning-call.sse');
  fc.assert(
    fc.property(fc.nat(whole.length - 1), fc.nat(255), (at, byte) => {
      const changed = Buffer.from(whole);
      changed[at] = byte;
      expect(['reply', 'failure']).toContain(replay([changed]).reply.type);
    }),
    { numRuns: 200 * CASES },
  );
});

test('reads 1 MB of arguments in deltas of one character', () => {
  const state = protocol.start();
  const size = 1024 * 1024;
  let length = 0;
  const step = (event: object): unknown =>
    protocol.step(state, { name: '', data: JSON.stringify(event) }, (delta) => {
      if (delta.type === 'call-delta') length += delta.arguments.length;
    });
  step(added(0, functionCall('c', '')));
  const piece = {
    name: '',
    data: '{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_1","delta":"x"}',
  };
  for (let n = 0; n < size; n++) protocol.step(state, piece, () => length++);
  step(completed());
  expect(length).toBe(size);
  expect(protocol.end(state)).toMatchObject({ content: [{ type: 'tool-call', arguments: 'x'.repeat(size) }] });
});
