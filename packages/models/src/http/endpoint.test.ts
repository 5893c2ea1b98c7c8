import { expect, test, vi } from 'vitest';
import { asked } from '../../test/request.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';

test.each(['', ' '])('rejects an empty key with a message of its own: %j', (apiKey) => {
  expect(() => openaiChat({ model: 'm', apiKey })).toThrow(
    'openaiChat: "apiKey" is empty. Set the variable that it is read from, or omit it if no key is needed.',
  );
});

test('accepts an undefined key, as an unset environment variable gives', () => {
  const apiKey: string | undefined = process.env['TREADLE_NO_SUCH_KEY'];
  expect(openaiChat({ model: 'm', apiKey }).id).toBe('m');
});

test.each([{ headers: 5 }, { headers: null }, { stream: 'no' }])('rejects invalid options: %j', (options) => {
  expect(() => openaiChat({ model: 'm', ...(options as object) })).toThrow(/"(headers|stream)" must be/);
});

test.each(['Cloudflare-Workers', 'Bun/1.4.4', 'Deno/2.9.6'])('uses the fetch of %s', async (userAgent) => {
  const fetch = vi.fn<typeof globalThis.fetch>(async () =>
    Response.json({ error: { message: 'no' } }, { status: 401 }),
  );
  vi.stubGlobal('navigator', { userAgent });
  vi.stubGlobal('fetch', fetch);
  try {
    const { reply } = await asked(openaiChat({ model: 'm', baseURL: 'http://127.0.0.1:9/v1', maxRetries: 0 }));
    expect(reply).toMatchObject({ type: 'failure', error: { code: 'auth', status: 401 } });
    expect(String(fetch.mock.calls[0]![0])).toBe('http://127.0.0.1:9/v1/chat/completions');
  } finally {
    vi.unstubAllGlobals();
  }
});
