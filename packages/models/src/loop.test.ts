import { randomUUID } from 'node:crypto';
import { runLoop, tool, type LoopOptions } from '@treadle/core';
import { expect, test } from 'vitest';
import { DONE, chunk, says, scriptedServer, stream } from '../test/scripted-server.ts';
import { demo } from './demo/demo.ts';
import { openaiChat } from './openai-chat/openai-chat.ts';

const NONCE = randomUUID();

const read = tool({
  name: 'read',
  description: 'Read a text file',
  input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
  effect: 'pure',
  execute: (input) => {
    const { path } = input as { path: string };
    if (path === 'missing.txt') throw new Error('no such file');
    return `${path}: ${NONCE}`;
  },
});

test('openaiChat in the loop: runs the calls and sends one valid message per result', async () => {
  const call = (index: number, id: string, path: string): object => ({
    index,
    id,
    type: 'function',
    function: { name: 'read', arguments: JSON.stringify({ path }) },
  });
  await using host = await scriptedServer(
    stream(
      chunk({ content: 'I look.' }),
      chunk({ tool_calls: [call(0, 'c1', 'a.txt'), call(1, 'c1', 'missing.txt')] }),
      chunk({}, 'tool_calls'),
      DONE,
    ),
    says('Done.'),
  );
  const model = openaiChat({ model: 'm', baseURL: host.url });
  const result = await runLoop({ model, tools: [read], instructions: 'Be brief.', input: 'Read both.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2, calls: 2 });
  expect(host.seen).toHaveLength(2);
  expect(host.seen[1]!.body).toMatchObject({
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Read both.' },
      { role: 'assistant', content: 'I look.', tool_calls: [{ id: 'c1' }, { function: { name: 'read' } }] },
      { role: 'tool', tool_call_id: 'c1', content: `a.txt: ${NONCE}` },
      { role: 'tool', content: expect.stringMatching(/^Error: .*no such file/) },
    ],
  });
});

const demoRun = (input: string, overrides: Partial<LoopOptions> = {}): ReturnType<typeof runLoop> =>
  runLoop({ model: demo(), tools: [read], input, ...overrides });

test('demo in the loop: runs the calls and reports their results', async () => {
  const result = await demoRun('read a.txt and b.txt, then read missing.txt');
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 3, calls: 3, usage: { cost: 0 } });
  expect(result.text).toContain(`b.txt: ${NONCE}`);
  expect(result.text).toContain('no such file');
});

test('demo in the loop: repeats its answer when asked to confirm', async () => {
  const plain = await demoRun('read a.txt');
  const confirmed = await demoRun('read a.txt', { finish: 'confirm' });
  expect(confirmed).toMatchObject({ outcome: { type: 'completed' }, turns: 3, text: plain.text });
});

test('demo in the loop: calls a tool if one is required, and reports the rest when the turns are used up', async () => {
  expect(await demoRun('hello', { toolChoice: 'required' })).toMatchObject({
    outcome: { type: 'completed' },
    calls: 1,
  });
  const closed = await demoRun('read a.txt, then read b.txt', { maxTurns: 1, closingTurn: true });
  expect(closed).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, calls: 1 });
  expect(closed.text).toContain(`a.txt: ${NONCE}`);
  expect(closed.text).toContain('Not done, because no tool may be called now: read b.txt.');
});
