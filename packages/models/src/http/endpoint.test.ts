import { expect, test } from 'vitest';
import { openaiChat } from '../openai-chat/openai-chat.ts';

test.each(['', ' '])('a key that is empty is told from one that cannot be sent: %j', (apiKey) => {
  expect(() => openaiChat({ model: 'm', apiKey })).toThrow(
    'openaiChat: "apiKey" is empty. Set what it was read from, or leave it out where none is needed.',
  );
});

test('a key may be absent, as a variable of the environment is', () => {
  const apiKey: string | undefined = process.env['TREADLE_NO_SUCH_KEY'];
  expect(openaiChat({ model: 'm', apiKey }).id).toBe('m');
});

test.each([{ headers: 5 }, { headers: null }, { stream: 'no' }])('options that cannot work throw: %j', (options) => {
  expect(() => openaiChat({ model: 'm', ...(options as object) })).toThrow(/"(headers|stream)" must be/);
});
