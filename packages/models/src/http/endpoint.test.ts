import { expect, test } from 'vitest';
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
