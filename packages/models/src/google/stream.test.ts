import type { AssistantPart, ModelReply, ToolCall } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fixtures } from '../../test/fixtures.ts';
import { call, text } from '../../test/parts.ts';
import { replayer } from '../../test/replay.ts';
import { failureOfBody } from '../http/failures.ts';
import { googleProtocol } from './google.ts';

const protocol = googleProtocol({ model: 'gemini-3.1-pro-preview', stream: true, thinking: 'level', signer: 'google' });
const { replay, expectSameHoweverCut, expectFailureWhenCutBefore } = replayer(protocol);
const fixture = fixtures('google');

const SIGNATURE = 'EqoGCqcGAXLI2nyhB9Cv0b3s7dY9fKqU+Hq4xW1m0u5gk3cQe/8rPzv2JtLaXw==';
const SECOND = 'Ep4CCpsCAb4+9vvQ1t7mZ0hZc5yH3nLk2QwXo8+eR/9sVtUaBdFgJiKlMnOpQrSt';

const thought = (shown: string): AssistantPart => ({ type: 'reasoning', text: shown, summary: true });
const signature = (of: string): AssistantPart => ({ type: 'reasoning', text: '', signature: of, protocol: 'google' });
const kept = (made: ToolCall, thoughtSignature?: string): ToolCall => ({
  ...made,
  provider: { protocol: 'google', data: { id: made.id, ...(thoughtSignature && { thoughtSignature }) } },
});

const reply = (fields: object): unknown => ({
  type: 'reply',
  model: 'gemini-3.1-pro-preview',
  finish: 'stop',
  rawFinish: 'STOP',
  ...fields,
});
const failure = (error: object): unknown => ({ type: 'failure', error });

const EXPECTED: Record<string, unknown> = {
  'text.sse': reply({
    content: [text('Grüße aus Tromsø: 🌨️ −4 °C.\n\n"Ok" \\ \t')],
    usage: { inputTokens: 9, outputTokens: 21 },
    model: 'gemini-2.5-flash-lite',
  }),
  'thinking-call.sse': reply({
    content: [
      thought('**Considering Oslo**\n\nThe user wants the weather.'),
      kept(call('8f2b1a3c', 'get_weather', '{"city":"Tromsø, NO","days":3}'), SIGNATURE),
    ],
    finish: 'tool-calls',
    usage: { inputTokens: 614, outputTokens: 80, cachedTokens: 512, reasoningTokens: 58 },
  }),
  'parallel-calls.sse': reply({
    content: [
      text("I'll look up both."),
      kept(call('a1', 'get_weather', '{"city":"Oslo"}'), SIGNATURE),
      kept(call('a2', 'get_time', '{}')),
      kept(call('a3', 'get_weather', '{"city":"Rome"}')),
    ],
    finish: 'tool-calls',
    usage: { inputTokens: 388, outputTokens: 175, reasoningTokens: 131 },
  }),
  'no-ids.sse': reply({
    content: [call('', 'get_weather', '{"city":"Oslo"}'), call('', 'get_time', '{}')],
    finish: 'tool-calls',
    usage: { inputTokens: 100, outputTokens: 12 },
    model: 'gemini-2.0-flash',
  }),
  'signed-text.sse': reply({
    content: [thought('Twelve, I think.'), text('It is noon.'), signature(`text:0:${SIGNATURE}`)],
    usage: { inputTokens: 12, outputTokens: 18, reasoningTokens: 14 },
  }),
  'signed-last-piece.sse': reply({
    content: [text('It is noon.'), signature(`text:5:${SIGNATURE}`), text(' Bye.')],
    usage: { inputTokens: 12, outputTokens: 6 },
  }),
  'finish-in-every-event.sse': reply({
    content: [text('One, two.')],
    usage: { inputTokens: 5, outputTokens: 4 },
    model: 'gemini-1.5-flash',
  }),
  'max-tokens.sse': reply({
    content: [text('Once upon a time')],
    finish: 'length',
    rawFinish: 'MAX_TOKENS',
    usage: { inputTokens: 18, outputTokens: 4 },
  }),
  'safety.sse': reply({
    content: [text('Well, ')],
    finish: 'content-filter',
    rawFinish: 'SAFETY',
    usage: { inputTokens: 7, outputTokens: 2 },
  }),
  'blocked-prompt.sse': failure({
    code: 'content-filter',
    message: 'The provider blocked the request: PROHIBITED_CONTENT. Change the input or the instructions.',
    retryable: false,
  }),
  'malformed-call.sse': failure({
    code: 'protocol',
    message:
      'The model broke off its reply: MALFORMED_FUNCTION_CALL (Malformed function call: print(default_api.add(a=1, b=).',
    retryable: true,
  }),
  'overloaded-in-mid-stream.sse': failure({
    code: 'overloaded',
    message: 'The provider broke off with an error: The model is overloaded. Please try again later.',
    retryable: true,
    status: 503,
  }),
  'closed-without-finish.sse': failure({
    code: 'protocol',
    message: 'The reply was cut off: it ended without a finish reason.',
    retryable: true,
  }),
  'whole.json': reply({
    content: [text('I look it up.'), kept(call('c1', 'get_weather', '{"city":"Oslo"}'), SECOND)],
    finish: 'tool-calls',
    usage: { inputTokens: 30, outputTokens: 32, reasoningTokens: 20 },
  }),
  'whole-signed-text.json': reply({
    content: [thought('Noon is now, I think.'), text('It is noon.'), signature(`text:11:${SECOND}`)],
    usage: { inputTokens: 30, outputTokens: 32, reasoningTokens: 20 },
  }),
  'whole-array.json': reply({ content: [text('One, two.')], usage: { inputTokens: 5, outputTokens: 4 } }),
};

test.each(Object.keys(EXPECTED))('reads %s', (name) => {
  const read: ModelReply = name.endsWith('.json')
    ? protocol.decode(fixture(name).toString('utf8'))
    : replay([fixture(name)]).reply;
  expect(read).toEqual(EXPECTED[name]);
});

test.each(['text.sse', 'thinking-call.sse', 'signed-last-piece.sse', 'safety.sse', 'overloaded-in-mid-stream.sse'])(
  'reads %s the same however it is split',
  (name) => expectSameHoweverCut(fixture(name)),
);

test.each(['text.sse', 'thinking-call.sse', 'signed-text.sse'])('fails if %s ends before its finish reason', (name) => {
  expectFailureWhenCutBefore(fixture(name), fixture(name).indexOf('"finishReason"'));
});

test('emits each piece as it arrives', () => {
  expect(replay([fixture('thinking-call.sse')]).deltas).toEqual([
    { type: 'reasoning-delta', text: '**Considering Oslo**\n\nThe user wants ', summary: true },
    { type: 'reasoning-delta', text: 'the weather.', summary: true },
    { type: 'call-delta', call: 0, name: 'get_weather', arguments: '{"city":"Tromsø, NO","days":3}' },
  ]);
  expect(replay([fixture('parallel-calls.sse')]).deltas.map((delta) => 'call' in delta && delta.call)).toEqual([
    false,
    0,
    1,
    2,
  ]);
});

test('reads any JSON as a reply or a failure', () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 4 }), (json) => {
      for (const body of [
        json,
        `{"candidates":[{"content":{"parts":${json}},"finishReason":"STOP"}],"usageMetadata":${json}}`,
      ]) {
        expect(['reply', 'failure']).toContain(protocol.decode(body).type);
      }
    }),
    { numRuns: 300 },
  );
});

const status = (code: number, name: string, message: string, details?: unknown[]): string =>
  JSON.stringify({ error: { code, message, status: name, ...(details && { details }) } });
const retryInfo = { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34.074824224s' };
const quota = (quotaId: string): object => ({
  '@type': 'type.googleapis.com/google.rpc.QuotaFailure',
  violations: [{ quotaMetric: 'generativelanguage.googleapis.com/generate_content_free_tier_requests', quotaId }],
});

test.each([
  [
    429,
    status(429, 'RESOURCE_EXHAUSTED', 'You exceeded your current quota.', [
      quota('GenerateRequestsPerMinutePerProjectPerModel-FreeTier'),
      retryInfo,
    ]),
    { code: 'rate-limit', retryable: true, retryAfterMs: 34_075 },
  ],
  [
    429,
    status(429, 'RESOURCE_EXHAUSTED', 'You exceeded your current quota.', [
      quota('GenerateRequestsPerDayPerProjectPerModel-FreeTier'),
      retryInfo,
    ]),
    { code: 'rate-limit', retryable: false },
  ],
  [429, `[${status(429, 'RESOURCE_EXHAUSTED', 'Resource exhausted.')}]`, { code: 'rate-limit', retryable: true }],
  [
    400,
    status(400, 'INVALID_ARGUMENT', 'API key not valid. Please pass a valid API key.', [
      { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID', domain: 'googleapis.com' },
    ]),
    { code: 'auth', retryable: false },
  ],
  [
    403,
    status(403, 'PERMISSION_DENIED', "Method doesn't allow unregistered callers."),
    { code: 'auth', retryable: false },
  ],
  [
    404,
    status(404, 'NOT_FOUND', 'models/x is not found for API version v1beta.'),
    { code: 'invalid-request', retryable: false },
  ],
  [
    400,
    status(
      400,
      'INVALID_ARGUMENT',
      'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
    ),
    { code: 'context-length', retryable: false },
  ],
  [
    400,
    status(400, 'FAILED_PRECONDITION', 'User location is not supported.'),
    { code: 'invalid-request', retryable: false },
  ],
  [500, status(500, 'INTERNAL', 'An internal error has occurred.'), { code: 'overloaded', retryable: true }],
  [503, status(503, 'UNAVAILABLE', 'The model is overloaded.'), { code: 'overloaded', retryable: true }],
  [504, status(504, 'DEADLINE_EXCEEDED', 'The request timed out.'), { code: 'timeout', retryable: true }],
])('an error with status %s: %s', (code, body, expected) => {
  const { message, ...rest } = failureOfBody(code, body);
  expect(rest).toEqual({ ...expected, status: code });
  expect(message).toContain(`The provider answered ${code}: `);
});
