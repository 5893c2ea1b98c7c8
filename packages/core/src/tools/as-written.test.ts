import { expect, test } from 'vitest';
import { runLoop } from '../driver/run.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool } from './tool.ts';

const called = (text: string, finish: 'tool-calls' | 'length' = 'tool-calls') =>
  scriptedModel([{ calls: [{ name: 'ask', arguments: text }], finish }, { text: 'done' }]);

const ask = tool({
  name: 'ask',
  description: 'Asks the client',
  parameters: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] },
  asWritten: true,
});

test.each(['{"q":1}', '{"q":', '', 'not JSON at all', '[1]'])(
  'a client that reads its arguments itself gets them as the model wrote them: %j',
  async (text) => {
    const { waiting } = await runLoop({ model: called(text), tools: [ask], input: 'go' });
    expect(waiting).toMatchObject([{ type: 'client', call: { arguments: text } }]);
  },
);

test('a call that was cut off is still not handed on', async () => {
  const { waiting, outcome } = await runLoop({ model: called('{"q":', 'length'), tools: [ask], input: 'go' });
  expect(waiting).toEqual([]);
  expect(outcome).toEqual({ type: 'completed' });
});

test('only of a tool that the client executes', () => {
  expect(() => tool({ ...ask, execute: () => '' })).toThrow('Leave out asWritten');
});
