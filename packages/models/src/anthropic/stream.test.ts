import type { ModelReply } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fixtures } from '../../test/fixtures.ts';
import { call, text } from '../../test/parts.ts';
import { replayer } from '../../test/replay.ts';
import { anthropicProtocol } from './anthropic.ts';
import { traitsOf } from './models.ts';
import { failureOfAnthropicBody, failureOfAnthropicFrame } from './stream.ts';

const BODY = { model: 'm', stream: true, signer: 'anthropic', ...traitsOf('m') };

const protocol = anthropicProtocol({ ...BODY, thinking: 'adaptive', cache: true });
const { replay, expectSameHoweverCut, expectFailureWhenCutBefore } = replayer(protocol);
const fixture = fixtures('anthropic');

const thought = (text: string, signature: string): unknown => ({
  type: 'reasoning',
  text,
  ...(text !== '' && { summary: true }),
  signature,
  protocol: 'anthropic',
});

const SIGNATURE =
  'EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds4bAc9mR1yQnhK3fVgWvG7eXPyKnXg0uT3p/w6Qhd2Jm+LHWQ5ZtRrEaGipHT9sK8m0=';
const REDACTED =
  'EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpPkNRj2YfWXGmKDxH4mPnZ5sQ7vB9URj2pLmN3kF8dW0/xR7aUYc0q';
const uncached = { cachedTokens: 0, cacheWriteTokens: 0 };

const EXPECTED: Record<string, unknown> = {
  'text.sse': {
    type: 'reply',
    content: [text('Grüße aus Tromsø: 🌨️ −4 °C.\n\n"Ok" \\ \t')],
    finish: 'stop',
    rawFinish: 'end_turn',
    usage: { inputTokens: 25, outputTokens: 21, ...uncached },
    model: 'claude-opus-5',
  },
  'one-call.sse': {
    type: 'reply',
    content: [
      text("Okay, let's check the weather."),
      call('toolu_01T1x1fJ34qAmk2tNTrN7Up6', 'get_weather', '{"city": "Tromsø, NO", "days": 3}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_use',
    usage: { inputTokens: 472, outputTokens: 89, ...uncached },
    model: 'claude-sonnet-4-5-20250929',
  },
  'parallel-calls.sse': {
    type: 'reply',
    content: [
      text("I'll look up both."),
      call('toolu_01A09q90qw90lq917835lq9', 'get_weather', '{"city": "Oslo"}'),
      call('toolu_01B7r2cWkYp3mXzQdVt9NsLf', 'get_time', '{}'),
      call('toolu_01C4kT8xZs6bHnWjRqYv2MpG', 'get_weather', '{"city": "Rome"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_use',
    usage: { inputTokens: 388, outputTokens: 131, ...uncached },
    model: 'claude-sonnet-4-5-20250929',
  },
  'thinking-call.sse': {
    type: 'reply',
    content: [
      thought("The user wants Oslo's  weather.\nI have a tool for that.", SIGNATURE),
      text('Let me check.'),
      call('toolu_01V5nQwXcYd8RkTzPm3HbJ7s', 'get_weather', '{"city": "Oslo"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_use',
    usage: { inputTokens: 614, outputTokens: 147, ...uncached, reasoningTokens: 58 },
    model: 'claude-sonnet-4-5-20250929',
  },
  'thinking-omitted.sse': {
    type: 'reply',
    content: [thought('', 'ErUBCkYIBxgCIkDmVq0yT+3bLz9nYc8PZ1sXf6wKjQe2RrHgMuN5vBoAiC7tE4dW=='), text('4')],
    finish: 'stop',
    rawFinish: 'end_turn',
    usage: { inputTokens: 91, outputTokens: 212, ...uncached, reasoningTokens: 204 },
    model: 'claude-opus-5',
  },
  'redacted-thinking.sse': {
    type: 'reply',
    content: [
      thought('Hm.', 'EpIBCgIYAiJAKx9vQm2dRw7TzPb5HcYn8LsGfJ3kXoWqUe1iVtA6NyDh0rMZpC4S'),
      thought('', `redacted_thinking:${REDACTED}`),
      call('toolu_01Mx7dKqYbRz2VtWnPc5HjLs', 'get_weather', '{"city": "Oslo"}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_use',
    usage: { inputTokens: 93, outputTokens: 75, ...uncached },
    model: 'claude-3-7-sonnet-20250219',
  },
  'refusal.sse': {
    type: 'reply',
    content: [text('First you')],
    finish: 'content-filter',
    rawFinish: 'refusal',
    usage: { inputTokens: 33, outputTokens: 6, ...uncached },
    model: 'claude-opus-5',
  },
  'max-tokens-in-call.sse': {
    type: 'reply',
    content: [
      text('Once upon'),
      call('toolu_01Nw3VtKcXzRbQ2dYp8mHjLs', 'write_file', '{"path": "tale.txt", "content": "Once'),
    ],
    finish: 'length',
    rawFinish: 'max_tokens',
    usage: { inputTokens: 300, outputTokens: 64, ...uncached },
    model: 'claude-sonnet-4-5-20250929',
  },
  'max-tokens-before-arguments.sse': {
    type: 'reply',
    content: [call('toolu_01Wd9KcXzRbN5mHjLpQ2Vt8Y', 'write_file', '')],
    finish: 'length',
    rawFinish: 'max_tokens',
    usage: { inputTokens: 300, outputTokens: 16, ...uncached },
    model: 'claude-sonnet-4-5-20250929',
  },
  'stop-sequence.sse': {
    type: 'reply',
    content: [text('One, two')],
    finish: 'stop',
    rawFinish: 'stop_sequence',
    usage: { inputTokens: 18, outputTokens: 5, ...uncached },
    model: 'claude-sonnet-4-5-20250929',
  },
  'cache.sse': {
    type: 'reply',
    content: [text('Done.')],
    finish: 'stop',
    rawFinish: 'end_turn',
    usage: { inputTokens: 7 + 18_432 + 1_210, outputTokens: 4, cachedTokens: 18_432, cacheWriteTokens: 1_210 },
    model: 'claude-opus-5',
  },
  'server-tool.sse': {
    type: 'reply',
    content: [text('I look it up.'), text('It is cold.')],
    finish: 'stop',
    rawFinish: 'end_turn',
    usage: { inputTokens: 1_200, outputTokens: 60, ...uncached },
    model: 'claude-sonnet-4-5-20250929',
  },
  'overloaded-in-mid-stream.sse': {
    type: 'failure',
    error: {
      code: 'overloaded',
      message: 'The provider broke off with an error: Overloaded',
      retryable: true,
    },
  },
  'closed-without-stop.sse': {
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('cut off'), retryable: true },
  },
  'closed-in-mid-frame.sse': {
    type: 'failure',
    error: { code: 'protocol', message: expect.stringContaining('not JSON'), retryable: true },
  },
};

test.each(Object.keys(EXPECTED))(
  '%s: reads the same whole, byte by byte, split at every point and with CRLF',
  (name) => {
    expect(replay([fixture(name)]).reply).toEqual(EXPECTED[name]);
    expectSameHoweverCut(fixture(name));
  },
);

test('fails if the stream is truncated anywhere before its stop reason, and succeeds after it', () => {
  const whole = fixture('thinking-call.sse');
  const reason = whole.indexOf('"stop_reason":"tool_use"');
  expectFailureWhenCutBefore(whole, reason);
  const stop = whole.indexOf('event: message_stop');
  expect(replay([whole.subarray(0, stop)]).reply).toEqual(EXPECTED['thinking-call.sse']);
});

test('emits the pieces of the reply as deltas', () => {
  expect(replay([fixture('thinking-call.sse')]).deltas).toEqual([
    { type: 'reasoning-delta', text: "The user wants Oslo's", summary: true },
    { type: 'reasoning-delta', text: '  weather.\n', summary: true },
    { type: 'reasoning-delta', text: 'I have a tool for that.', summary: true },
    { type: 'text-delta', text: 'Let me check.' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '{"city":' },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: ' "Oslo"}' },
  ]);
  expect(
    replay([fixture('parallel-calls.sse')]).deltas.flatMap((delta) => (delta.type === 'call-delta' ? delta.call : [])),
  ).toEqual([0, 0, 0, 1, 2, 2, 2]);
});

test('decodes whole answers', () => {
  expect(protocol.decode(fixture('whole-thinking-calls.json').toString())).toEqual({
    type: 'reply',
    content: [
      thought('Both, then.', SIGNATURE),
      thought('', `redacted_thinking:${REDACTED}`),
      text("I'll look up both."),
      call('toolu_01D7FLrfh4GYq7yT1ULFeyMV', 'get_weather', '{"city":"Tromsø","days":3}'),
      call('toolu_01E8GMsgi5HZr8zU2VMGfzNW', 'get_time', '{}'),
    ],
    finish: 'tool-calls',
    rawFinish: 'tool_use',
    usage: { inputTokens: 2_782, outputTokens: 147, cachedTokens: 2_048, cacheWriteTokens: 120, reasoningTokens: 58 },
    model: 'claude-sonnet-4-5-20250929',
  });
  expect(protocol.decode(fixture('whole-text.json').toString())).toEqual({
    type: 'reply',
    content: [text('Grüße 🌨️')],
    finish: 'stop',
    rawFinish: 'end_turn',
    usage: { inputTokens: 12, outputTokens: 6 },
    model: 'claude-opus-5',
  });
  expect(protocol.decode(fixture('whole-error.json').toString())).toMatchObject({
    type: 'failure',
    error: { code: 'overloaded', retryable: true },
  });
});

function answer(content: readonly object[], stop_reason: string): ModelReply {
  return protocol.decode(JSON.stringify({ type: 'message', model: 'm', content, stop_reason, usage: {} }));
}

test.each([
  ['end_turn', 'stop', 'tool-calls'],
  ['stop_sequence', 'stop', 'tool-calls'],
  ['tool_use', 'stop', 'tool-calls'],
  ['pause_turn', 'stop', 'tool-calls'],
  ['max_tokens', 'length', 'length'],
  ['model_context_window_exceeded', 'length', 'length'],
  ['refusal', 'content-filter', 'content-filter'],
  ['unknown_reason', 'stop', 'tool-calls'],
])('maps the stop reason %s to %s, and with calls to %s', (raw, plain, withCalls) => {
  const said = { type: 'text', text: 'a' };
  expect(answer([said], raw)).toMatchObject({ finish: plain, rawFinish: raw });
  const use = { type: 'tool_use', id: 'c', name: 'f', input: {} };
  expect(answer([said, use], raw)).toMatchObject({ finish: withCalls, rawFinish: raw });
});

test('a truncated thought has no signature and no protocol', () => {
  expect(answer([{ type: 'thinking', thinking: 'Hm', signature: '' }], 'max_tokens')).toMatchObject({
    content: [{ type: 'reasoning', text: 'Hm', summary: true }],
  });
  expect(answer([{ type: 'thinking', thinking: 'Hm', signature: '' }], 'max_tokens')).not.toMatchObject({
    content: [{ protocol: 'anthropic' }],
  });
  const nothing = [
    { type: 'thinking', thinking: '', signature: '' },
    { type: 'redacted_thinking', data: '' },
  ];
  expect(answer(nothing, 'max_tokens')).toMatchObject({ content: [] });
});

const frames = (...events: object[]): Uint8Array =>
  Buffer.from(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''));
const lastDelta = { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } };

test('accepts streams of compatible hosts without event names, ids, indexes, block starts and usage', () => {
  expect(
    replay([
      frames(
        { type: 'message_start', message: { usage: { input_tokens: 5 } } },
        { type: 'content_block_delta', delta: { type: 'text_delta', text: 'a' } },
        { type: 'content_block_delta', delta: { type: 'text_delta', text: 'b' } },
        { type: 'content_block_start', content_block: { type: 'tool_use', name: 'f', input: { a: 1 } } },
        { type: 'content_block_start', content_block: { type: 'tool_use', name: 'g', input: {} } },
        { type: 'content_block_delta', delta: { type: 'input_json_delta', partial_json: '{"b":2}' } },
        { type: 'content_block_start', content_block: { type: 'text', text: 'all at once' } },
        lastDelta,
      ),
    ]).reply,
  ).toEqual({
    type: 'reply',
    content: [text('ab'), call('call_0', 'f', '{"a":1}'), call('call_1', 'g', '{"b":2}'), text('all at once')],
    finish: 'tool-calls',
    rawFinish: 'end_turn',
    usage: { inputTokens: 5, outputTokens: 3 },
    model: '',
  });
});

test('ignores pings of any form, empty events and counts that are null', () => {
  const noise = Buffer.from('event: ping\ndata: pong\n\nevent: message_delta\ndata:\n\n: keep-alive\n\n');
  const start = frames({ type: 'message_start', message: { usage: { input_tokens: 5, cache_read_input_tokens: 2 } } });
  const usage = { input_tokens: null, cache_read_input_tokens: null, output_tokens: 3 };
  expect(replay([start, noise, frames({ ...lastDelta, usage }), noise]).reply).toMatchObject({
    usage: { inputTokens: 7, outputTokens: 3, cachedTokens: 2 },
  });
});

test('ignores invalid token counts', () => {
  const usage = {
    input_tokens: -5,
    output_tokens: 1e300,
    cache_read_input_tokens: -1,
    cache_creation_input_tokens: 0.5,
  };
  const reply = protocol.decode(JSON.stringify({ content: [], stop_reason: 'end_turn', usage }));
  expect(reply.type === 'reply' && reply.usage).toEqual({ inputTokens: 0, outputTokens: 0 });
});

test('reports data that is not JSON in full, so that a key in it can be redacted', () => {
  const junk = `${'x'.repeat(500)}sk-1`;
  const message = `The answer contains data that is not JSON: ${junk}`;
  expect(replay([Buffer.from(`data: ${junk}\n\n`)]).reply).toMatchObject({ error: { message } });
  expect(protocol.decode(junk)).toMatchObject({ error: { message } });
});

test('reports an error object that is the event itself', () => {
  const failure = {
    error: { code: 'overloaded', message: 'The provider broke off with an error: CUDA out of memory' },
  };
  const frame = { object: 'error', message: 'CUDA out of memory', type: 'InternalServerError', code: 500 };
  expect(replay([frames(frame)]).reply).toMatchObject(failure);
  expect(protocol.decode(JSON.stringify(frame))).toMatchObject(failure);
});

test('assembles interleaved blocks', () => {
  const piece = (index: number, text: string): object => ({
    type: 'content_block_delta',
    index,
    delta: { type: 'text_delta', text },
  });
  const open = (index: number): object => ({
    type: 'content_block_start',
    index,
    content_block: { type: 'text', text: '' },
  });
  const { reply } = replay([frames(open(0), open(1), piece(1, 'c'), piece(0, 'a'), piece(1, 'd'), lastDelta)]);
  expect(reply).toMatchObject({ content: [text('a'), text('cd')] });
});

test('reports errors without a type, with and without a message', () => {
  expect(replay([Buffer.from('event: error\ndata: upstream closed\n\n')]).reply).toMatchObject({
    type: 'failure',
    error: { code: 'protocol', message: 'The provider broke off with an error: upstream closed' },
  });
  expect(replay([frames({ error: { type: 'api_error', message: 'Internal server error' } })]).reply).toMatchObject({
    error: { code: 'overloaded', retryable: true },
  });
  expect(replay([frames({ type: 'error' })]).reply).toMatchObject({ type: 'failure', error: { code: 'protocol' } });
});

test('reads 1 MB of arguments in deltas of one character', () => {
  const state = protocol.start();
  const step = (event: object): void => {
    protocol.step(state, { name: '', data: JSON.stringify(event) }, () => count++);
  };
  let count = 0;
  step({ type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 'c', name: 'f', input: {} } });
  const piece = {
    name: 'content_block_delta',
    data: '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"x"}}',
  };
  const size = 1024 * 1024;
  for (let n = 0; n < size; n++) protocol.step(state, piece, () => count++);
  step(lastDelta);
  expect(count).toBe(size + 1);
  expect(protocol.end(state)).toMatchObject({ content: [{ type: 'tool-call', arguments: 'x'.repeat(size) }] });
});

// ── Any input ────────────────────────────────────────────────────────────────────────────────────────────────────────

function expectWellFormed(reply: ModelReply): void {
  if (reply.type === 'failure') expect(reply.error.message).toEqual(expect.any(String));
  else {
    const { inputTokens, outputTokens } = reply.usage;
    expect([inputTokens, outputTokens].every(Number.isFinite)).toBe(true);
    for (const part of reply.content) {
      expect(part.type === 'tool-call' ? [part.id, part.name, part.arguments] : [part.text]).toEqual(
        expect.arrayContaining([expect.any(String)]),
      );
    }
  }
}

test('returns a reply or a failure for any bytes', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 200 })), (chunks) => expectWellFormed(replay(chunks).reply)),
  );
  fc.assert(fc.property(fc.string(), (body) => expectWellFormed(protocol.decode(body))));
  fc.assert(
    fc.property(fc.integer({ min: 100, max: 599 }), fc.string(), (status, body) => {
      expect(protocol.failure(status, body).message).toEqual(expect.any(String));
    }),
  );
});

test('returns a reply or a failure for any JSON in the fields of the API', () => {
  const any = fc.oneof(fc.jsonValue(), fc.constantFrom('text', 'thinking', 'redacted_thinking', 'tool_use', '', 0));
  const record = (...keys: string[]): fc.Arbitrary<object> =>
    fc.record(Object.fromEntries(keys.map((key) => [key, any])), { requiredKeys: [] });
  const block = fc.oneof(any, record('type', 'text', 'thinking', 'signature', 'data', 'id', 'name', 'input'));
  const delta = fc.oneof(
    any,
    fc
      .tuple(
        fc.constantFrom('text_delta', 'thinking_delta', 'signature_delta', 'input_json_delta'),
        record('text', 'thinking', 'signature', 'partial_json', 'stop_reason'),
      )
      .map(([type, rest]) => ({ type, ...rest })),
  );
  const message = fc
    .tuple(record('model', 'stop_reason', 'usage', 'error'), fc.oneof(any, fc.array(block)))
    .map(([rest, content]) => ({ ...rest, content }));
  const event = fc
    .tuple(
      fc.constantFrom(
        'message_start',
        'content_block_start',
        'content_block_delta',
        'content_block_stop',
        'message_delta',
        'message_stop',
        'ping',
      ),
      fc.record({ message, content_block: block, delta, index: any, usage: any }, { requiredKeys: [] }),
    )
    .map(([type, rest]) => ({ type, ...rest }));
  fc.assert(fc.property(fc.array(event), (events) => expectWellFormed(replay([frames(...events, lastDelta)]).reply)));
  fc.assert(fc.property(message, (whole) => expectWellFormed(protocol.decode(JSON.stringify(whole)))));
});

// ── Failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const error = (type: string, message: string): string =>
  JSON.stringify({
    type: 'error',
    error: { details: null, type, message },
    request_id: 'req_011CSHoEeqs5C35K2UUqR7Fy',
  });

test.each([
  [401, error('authentication_error', 'invalid x-api-key'), 'auth', false],
  [403, error('permission_error', 'Your API key does not have permission'), 'auth', false],
  [402, error('billing_error', 'Payment required'), 'rate-limit', false],
  [
    400,
    error('invalid_request_error', 'Your credit balance is too low to access the Anthropic API.'),
    'rate-limit',
    false,
  ],
  [429, error('rate_limit_error', 'This request would exceed your rate limit'), 'rate-limit', true],
  [404, error('not_found_error', 'model: claude-none'), 'invalid-request', false],
  [413, error('request_too_large', 'Request exceeds the maximum size'), 'context-length', false],
  [400, error('invalid_request_error', 'prompt is too long: 205036 tokens > 200000 maximum'), 'context-length', false],
  [
    400,
    error(
      'invalid_request_error',
      'input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens` and try again',
    ),
    'context-length',
    false,
  ],
  [400, error('invalid_request_error', 'Output blocked by content filtering policy'), 'content-filter', false],
  [
    400,
    error('invalid_request_error', 'max_tokens: 90000 > 64000, which is the maximum allowed number of output tokens'),
    'invalid-request',
    false,
  ],
  [400, error('invalid_request_error', '`temperature` is deprecated for this model.'), 'invalid-request', false],
  [500, error('api_error', 'Internal server error'), 'overloaded', true],
  [504, error('timeout_error', 'Request timed out'), 'timeout', true],
  [529, error('overloaded_error', 'Overloaded'), 'overloaded', true],
  [529, '', 'overloaded', true],
  [502, '<html><head><title>502 Bad Gateway</title></head></html>', 'overloaded', true],
])('status %i with %s is %s', (status, body, code, retryable) => {
  expect(failureOfAnthropicBody(status, body)).toMatchObject({ code, retryable, status });
});

test('reports the message of the provider', () => {
  expect(failureOfAnthropicBody(401, error('authentication_error', 'invalid x-api-key'))).toEqual({
    code: 'auth',
    message: 'The provider answered 401: invalid x-api-key',
    retryable: false,
    status: 401,
  });
});

test.each([
  ['overloaded_error', 'overloaded', true],
  ['api_error', 'overloaded', true],
  ['rate_limit_error', 'rate-limit', true],
  ['authentication_error', 'auth', false],
  ['timeout_error', 'timeout', true],
  ['invalid_request_error', 'invalid-request', false],
  ['unknown_error', 'protocol', true],
])('%s inside a stream is reported as %s', (type, code, retryable) => {
  expect(failureOfAnthropicFrame({ error: { type, message: 'Details' } })).toEqual({
    code,
    message: 'The provider broke off with an error: Details',
    retryable,
  });
});

test('classifies an error inside a stream without a type', () => {
  expect(failureOfAnthropicFrame({ error: 'closed' })).toMatchObject({ code: 'protocol' });
  expect(failureOfAnthropicFrame({ error: true })).toMatchObject({ code: 'protocol' });
  expect(failureOfAnthropicFrame({})).toMatchObject({ code: 'protocol' });
});
