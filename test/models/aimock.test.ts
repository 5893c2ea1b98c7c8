import { LLMock } from '@copilotkit/aimock';
import { runLoop, tool, type Message, type Model } from '@treadle/core';
import { anthropic, google, ollama, openaiChat, openaiResponses, type OpenAiChatOptions } from '@treadle/models';
import { afterAll, beforeAll, expect, test } from 'vitest';

/** Each protocol against a mock of the providers that is not part of this project. */

let mock: LLMock;
beforeAll(async () => {
  mock = new LLMock({ port: 0 });
  mock.on(
    { userMessage: 'Oslo', turnIndex: 0 },
    { content: 'I look.', toolCalls: [{ name: 'get_weather', arguments: '{"city":"Oslo"}' }] },
  );
  mock.on({ userMessage: 'Oslo', turnIndex: 1 }, { content: 'Snow in Oslo. ❄️' });
  await mock.start();
});
afterAll(() => mock.stop());

const weather = tool({
  name: 'get_weather',
  description: 'The weather in a city',
  input: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  effect: 'pure',
  execute: (input) => `Snow in ${(input as { city: string }).city}`,
});

const hosts: Readonly<Record<string, [make: (options: OpenAiChatOptions) => Model, path: string]>> = {
  'openai-chat': [openaiChat, '/v1'],
  'openai-responses': [openaiResponses, '/v1'],
  anthropic: [anthropic, '/v1'],
  google: [google, '/v1beta'],
  ollama: [ollama, ''],
};
const variants = Object.keys(hosts).flatMap((form) => [true, false].map((stream) => ({ form, stream })));

test.each(variants)('$form completes a run with a call, streamed: $stream', async ({ form, stream }) => {
  const [make, path] = hosts[form]!;
  mock.clearRequests();
  mock.resetMatchCounts();
  const model = make({ model: 'm-1', apiKey: 'k', baseURL: mock.url + path, stream, maxRetries: 0 });
  const result = await runLoop({ model, tools: [weather], input: 'How is the weather in Oslo?' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Snow in Oslo. ❄️', turns: 2, calls: 1 });
  expect(result.messages.map(withoutReasoning)).toMatchObject([
    [{ text: 'How is the weather in Oslo?' }],
    [
      { type: 'text', text: 'I look.' },
      { type: 'tool-call', name: 'get_weather', arguments: '{"city":"Oslo"}' },
    ],
    [{ type: 'tool-result', name: 'get_weather', content: [{ type: 'text', text: 'Snow in Oslo' }], isError: false }],
    [{ type: 'text', text: 'Snow in Oslo. ❄️' }],
  ]);
  expect(mock.getRequests()).toHaveLength(2);
});

/** The mock sends empty reasoning with each answer of Responses. */
function withoutReasoning({ content }: Message): readonly object[] {
  return content.filter((part) => part.type !== 'reasoning');
}
