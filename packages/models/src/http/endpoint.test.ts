import { expect, test } from 'vitest';
import { request } from '../../test/request.ts';
import { anthropic } from '../anthropic/anthropic.ts';
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

test('sends the settings of the options unless a request sets them', async () => {
  const sent: unknown[] = [];
  const fetch = async (_: unknown, init?: { readonly body?: unknown }): Promise<Response> => {
    sent.push(JSON.parse(new TextDecoder().decode(init!.body as Uint8Array)));
    return new Response('{}', { status: 400 });
  };
  const model = openaiChat({ model: 'm', fetch, settings: { temperature: 0.1, maxOutputTokens: 9 } });
  const { signal } = new AbortController();
  await model.reply(request(), () => {}, signal);
  await model.reply(request({ settings: { temperature: 1 } }), () => {}, signal);
  expect(sent).toMatchObject([
    { temperature: 0.1, max_completion_tokens: 9 },
    { temperature: 1, max_completion_tokens: 9 },
  ]);
});

test('rejects settings that would be ignored', () => {
  expect(() => anthropic({ model: 'claude-opus-5', settings: { temperature: 1 } })).toThrow(
    'anthropic: the model takes no "settings.temperature". Remove it. It takes maxOutputTokens',
  );
});
