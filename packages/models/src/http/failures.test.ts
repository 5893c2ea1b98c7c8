import { expect, test } from 'vitest';
import { failureOfBody, failureOfFrame } from './failures.ts';

const error = (message: string, type?: string, code?: string | number): string =>
  JSON.stringify({ error: { message, type, param: null, code } });

test.each([
  [401, error('Incorrect API key provided', 'invalid_request_error', 'invalid_api_key'), 'auth', false],
  [403, error('Country not supported', 'request_forbidden', 'unsupported_country_region_territory'), 'auth', false],
  [429, error('Rate limit reached for gpt-5', 'tokens', 'rate_limit_exceeded'), 'rate-limit', true],
  [429, error('You exceeded your current quota', 'insufficient_quota', 'insufficient_quota'), 'rate-limit', false],
  [402, error('Insufficient credits', undefined, 402), 'rate-limit', false],
  [
    400,
    error("This model's maximum context length is 128000 tokens.", 'invalid_request_error', 'context_length_exceeded'),
    'context-length',
    false,
  ],
  [
    400,
    '{"object":"error","message":"This model\'s maximum context length is 4096 tokens","type":"BadRequestError","code":400}',
    'context-length',
    false,
  ],
  [
    400,
    '{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}',
    'context-length',
    false,
  ],
  [413, 'Request too large', 'context-length', false],
  [400, error('The response was filtered', undefined, 'content_filter'), 'content-filter', false],
  [
    400,
    error("Unsupported parameter: 'max_tokens'", 'invalid_request_error', 'unsupported_parameter'),
    'invalid-request',
    false,
  ],
  [
    404,
    error('The model `gpt-9` does not exist', 'invalid_request_error', 'model_not_found'),
    'invalid-request',
    false,
  ],
  [422, '{"detail":[{"loc":["body"],"msg":"field required"}]}', 'invalid-request', false],
  [408, '', 'timeout', true],
  [500, error('The server had an error', 'server_error'), 'overloaded', true],
  [502, '<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>', 'overloaded', true],
  [503, '{"error":"model is loading"}', 'overloaded', true],
  [504, 'upstream timeout', 'timeout', true],
  [529, error('Overloaded', 'overloaded_error'), 'overloaded', true],
])('status %i with %s is %s', (status, body, code, retryable) => {
  expect(failureOfBody(status, body)).toMatchObject({ code, retryable, status });
});

test('reports the message of the provider in every shape of error', () => {
  const messageOf = (body: string): string => failureOfBody(400, body).message;
  expect(messageOf(error('Bad temperature'))).toBe('The provider answered 400: Bad temperature');
  expect(messageOf('{"error":"model is loading"}')).toBe('The provider answered 400: model is loading');
  expect(messageOf('[{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}]')).toBe(
    'The provider answered 400: API key not valid',
  );
  expect(messageOf('{"detail":"Not Found"}')).toBe('The provider answered 400: Not Found');
  expect(messageOf('{"message":"no such deployment"}')).toBe('The provider answered 400: no such deployment');
  expect(messageOf('<html><title>Bad Gateway</title>')).toBe('The provider answered 400: Bad Gateway');
  expect(messageOf('plain words')).toBe('The provider answered 400: plain words');
  expect(messageOf('')).toBe('The provider answered 400: no reason given');
  expect(messageOf('null')).toBe('The provider answered 400: null');
});

test('classifies an error inside a stream', () => {
  expect(failureOfFrame({ error: { message: 'Busy', type: 'server_error' } })).toMatchObject({
    code: 'overloaded',
    retryable: true,
  });
  expect(failureOfFrame({ error: { message: 'Slow down', code: 429 } })).toMatchObject({
    code: 'rate-limit',
    status: 429,
  });
  expect(failureOfFrame({ error: { message: 'prompt is too long' } })).toMatchObject({ code: 'context-length' });
  expect(failureOfFrame({ error: { message: 'No', type: 'invalid_request_error' } })).toMatchObject({
    code: 'invalid-request',
    retryable: false,
  });
  expect(failureOfFrame({ error: 'went wrong' })).toEqual({
    code: 'protocol',
    message: 'The provider broke off with an error: went wrong',
    retryable: true,
  });
  expect(failureOfFrame({ error: true })).toMatchObject({ code: 'protocol' });
});
