import { hashKey } from '@treadle/server';
import OpenAI, { AuthenticationError, NotFoundError, PermissionDeniedError, RateLimitError } from 'openai';
import { expect, test } from 'vitest';
import { SERVER_TOOLS, useServerFixture } from '../support/fixture.ts';

const fixture = useServerFixture({
  keys: [
    { name: 'all', hash: hashKey('tk_all'), scopes: ['agents:invoke', 'tools:execute'] },
    { name: 'plain', hash: hashKey('tk_plain') },
    { name: 'other', hash: hashKey('tk_other'), tenant: 'other' },
    { name: 'slow', hash: hashKey('tk_slow'), requestsPerMinute: 1 },
  ],
});
const client = (apiKey: string): OpenAI => new OpenAI({ baseURL: fixture.baseURL, apiKey, maxRetries: 0 });

test('a wrong key is an AuthenticationError that does not contain the key', async () => {
  const script = await fixture.script({ text: 'Hello.' });
  const request = { model: script.model, input: 'Hi' };
  const failure = client('tk_wrong').responses.create(request);
  await expect(failure).rejects.toThrow(AuthenticationError);
  await expect(failure).rejects.toMatchObject({ status: 401, code: 'invalid_api_key' });
  await expect(failure).rejects.not.toThrow(/tk_wrong/);
  await expect(client('tk_wrong').chat.completions.create({ model: script.model, messages: [] })).rejects.toThrow(
    AuthenticationError,
  );
  await expect(client('tk_wrong').models.list()).rejects.toThrow(AuthenticationError);
  expect((await client('tk_plain').responses.create(request)).output_text).toBe('Hello.');
});

test('server tools need the scope tools:execute', async () => {
  const script = await fixture.script({ calls: [{ name: 'add', arguments: '{"a":1,"b":2}' }] }, { text: 'Three.' });
  const request = { model: script.model, input: 'Hi', tools: [SERVER_TOOLS] };
  await expect(client('tk_plain').responses.create(request)).rejects.toThrow(PermissionDeniedError);
  expect((await client('tk_all').responses.create(request)).output_text).toBe('Three.');
});

test('responses of another tenant are a NotFoundError', async () => {
  const script = await fixture.script({ text: 'Secret.' }, { text: 'Never.' });
  const { id } = await client('tk_all').responses.create({ model: script.model, input: 'Hi' });
  const other = client('tk_other');
  await expect(other.responses.retrieve(id)).rejects.toThrow(NotFoundError);
  await expect(other.responses.cancel(id)).rejects.toThrow(NotFoundError);
  await expect(other.responses.delete(id)).rejects.toThrow(NotFoundError);
  await expect(other.responses.inputItems.list(id)).rejects.toThrow(NotFoundError);
  const request = { model: script.model, input: 'And?', previous_response_id: id };
  await expect(other.responses.create(request)).rejects.toMatchObject({ code: 'previous_response_not_found' });
  expect((await client('tk_plain').responses.retrieve(id)).output_text).toBe('Secret.');
});

test('a key over its rate limit gets a RateLimitError with headers', async () => {
  const script = await fixture.script({ text: 'Once.' });
  const request = { model: script.model, input: 'Hi' };
  expect((await client('tk_slow').responses.create(request)).output_text).toBe('Once.');
  const failure = await client('tk_slow')
    .responses.create(request)
    .catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(RateLimitError);
  const { headers, status } = failure as RateLimitError;
  expect(status).toBe(429);
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  expect(headers.get('x-ratelimit-remaining-requests')).toBe('0');
  expect(await script.requests()).toHaveLength(1);
});
