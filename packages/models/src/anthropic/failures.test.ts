import { expect, test } from 'vitest';
import { failureOfBody, failureOfFrame } from './failures.ts';

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
  expect(failureOfBody(status, body)).toMatchObject({ code, retryable, status });
});

test('the provider keeps its words', () => {
  expect(failureOfBody(401, error('authentication_error', 'invalid x-api-key'))).toEqual({
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
  ['of_tomorrow', 'protocol', true],
])('%s inside a stream is %s', (type, code, retryable) => {
  expect(failureOfFrame({ error: { type, message: 'Words' } })).toEqual({
    code,
    message: 'The provider broke off with an error: Words',
    retryable,
  });
});

test('an error inside a stream without a type', () => {
  expect(failureOfFrame({ error: 'gone' })).toMatchObject({ code: 'protocol' });
  expect(failureOfFrame({ error: true })).toMatchObject({ code: 'protocol' });
  expect(failureOfFrame({})).toMatchObject({ code: 'protocol' });
});
