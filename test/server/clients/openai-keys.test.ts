import { hashKey } from '@treadle/server';
import OpenAI, { AuthenticationError, NotFoundError, PermissionDeniedError, RateLimitError } from 'openai';
import { expect, test } from 'vitest';
import { SERVER_TOOLS, stage } from './stage.ts';

const on = stage({
  keys: [
    { name: 'all', hash: hashKey('tk_all'), scopes: ['agents:invoke', 'tools:execute'] },
    { name: 'plain', hash: hashKey('tk_plain') },
    { name: 'other', hash: hashKey('tk_other'), tenant: 'other' },
    { name: 'slow', hash: hashKey('tk_slow'), requestsPerMinute: 1 },
  ],
});
const client = (apiKey: string): OpenAI => new OpenAI({ baseURL: on.baseURL, apiKey, maxRetries: 0 });

test('a key is needed, and no other will do', async () => {
  const script = await on.script({ text: 'Hello.' });
  const asked = { model: script.model, input: 'Hi' };
  const failure = client('tk_wrong').responses.create(asked);
  await expect(failure).rejects.toThrow(AuthenticationError);
  await expect(failure).rejects.toMatchObject({ status: 401, code: 'invalid_api_key' });
  await expect(failure).rejects.not.toThrow(/tk_wrong/);
  await expect(client('tk_wrong').chat.completions.create({ model: script.model, messages: [] })).rejects.toThrow(
    AuthenticationError,
  );
  await expect(client('tk_wrong').models.list()).rejects.toThrow(AuthenticationError);
  expect((await client('tk_plain').responses.create(asked)).output_text).toBe('Hello.');
});

test('tools of the server need a scope', async () => {
  const script = await on.script({ calls: [{ name: 'add', arguments: '{"a":1,"b":2}' }] }, { text: 'Three.' });
  const asked = { model: script.model, input: 'Hi', tools: [SERVER_TOOLS] };
  await expect(client('tk_plain').responses.create(asked)).rejects.toThrow(PermissionDeniedError);
  expect((await client('tk_all').responses.create(asked)).output_text).toBe('Three.');
});

test('responses of one tenant are not there for another', async () => {
  const script = await on.script({ text: 'Secret.' }, { text: 'Never.' });
  const { id } = await client('tk_all').responses.create({ model: script.model, input: 'Hi' });
  const other = client('tk_other');
  await expect(other.responses.retrieve(id)).rejects.toThrow(NotFoundError);
  await expect(other.responses.cancel(id)).rejects.toThrow(NotFoundError);
  await expect(other.responses.delete(id)).rejects.toThrow(NotFoundError);
  await expect(other.responses.inputItems.list(id)).rejects.toThrow(NotFoundError);
  const asked = { model: script.model, input: 'And?', previous_response_id: id };
  await expect(other.responses.create(asked)).rejects.toMatchObject({ code: 'previous_response_not_found' });
  expect((await client('tk_plain').responses.retrieve(id)).output_text).toBe('Secret.');
});

test('too many requests', async () => {
  const script = await on.script({ text: 'Once.' });
  const asked = { model: script.model, input: 'Hi' };
  expect((await client('tk_slow').responses.create(asked)).output_text).toBe('Once.');
  const failure = await client('tk_slow')
    .responses.create(asked)
    .catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(RateLimitError);
  const { headers, status } = failure as RateLimitError;
  expect(status).toBe(429);
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  expect(headers.get('x-ratelimit-remaining-requests')).toBe('0');
  expect(await script.requests()).toHaveLength(1);
});
