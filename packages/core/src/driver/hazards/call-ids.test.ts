import { expect, test } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import { textOf, type Message } from '../../messages.ts';
import { scriptedModel, type ScriptStep } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import type { LoopResult } from '../options.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop } from '../run.ts';

const keys: string[] = [];
const echo = tool({
  name: 'echo',
  description: 'x',
  input: { type: 'object', properties: { n: { type: 'integer' } } },
  execute: async ({ n }, { key }) => {
    keys.push(key);
    return `result ${String(n)}`;
  },
});

async function run(script: readonly ScriptStep[], input: string | readonly Message[] = 'go'): Promise<LoopResult> {
  keys.length = 0;
  const journal = memoryJournal();
  using model = scriptedModel(script);
  const result = await runLoop({ model, tools: [echo], input, journal, runId: 'r' });
  expect(replay(JSON.parse(JSON.stringify(await journal.read('r'))))).toMatchObject({ type: 'replayed' });
  return result;
}

const call = (id: string, n: number): { name: string; id: string; arguments: object } => ({
  name: 'echo',
  id,
  arguments: { n },
});

/** Every call and its result as `id=text`. Expects the results of each turn in call order. */
function pairs({ messages }: LoopResult): string[] {
  return messages.flatMap((message, index) => {
    if (message.role !== 'tool') return [];
    const called = messages[index - 1]!.content.flatMap((part) => (part.type === 'tool-call' ? part : []));
    expect(message.content.map(({ callId }) => callId)).toEqual(called.map(({ id }) => id));
    return message.content.map(({ callId, content }) => `${callId}=${textOf(content)}`);
  });
}

test('replaces an id that occurs several times in one reply, and runs all calls', async () => {
  const result = await run([{ calls: [call('a', 1), call('a', 2), call('b', 3), call('a', 4)] }, 'done']);
  expect(pairs(result)).toEqual(['a=result 1', 'call_t1_1=result 2', 'b=result 3', 'call_t1_3=result 4']);
  expect(keys).toEqual(['r/t1.tool.0', 'r/t1.tool.1', 'r/t1.tool.2', 'r/t1.tool.3']);
});

test('replaces an id that occurs in several turns', async () => {
  const script = Array.from({ length: 5 }, (_, n) => ({ calls: [call('call_1', n)] }));
  const result = await run([...script, 'done']);
  expect(pairs(result)).toEqual([
    'call_1=result 0',
    'call_t2_0=result 1',
    'call_t3_0=result 2',
    'call_t4_0=result 3',
    'call_t5_0=result 4',
  ]);
});

test('generates ids for calls without ids', async () => {
  const result = await run([{ calls: [call('', 1), call('', 2)] }, { calls: [call('', 3)] }, 'done']);
  expect(pairs(result)).toEqual(['call_t1_0=result 1', 'call_t1_1=result 2', 'call_t2_0=result 3']);
});

test('replaces an id that occurs in the input', async () => {
  const input: Message[] = [
    { role: 'user', content: [{ type: 'text', text: 'go' }] },
    { role: 'assistant', content: [{ type: 'tool-call', id: 'a', name: 'echo', arguments: '{}' }] },
    { role: 'tool', content: [{ type: 'tool-result', callId: 'a', name: 'echo', content: [], isError: false }] },
  ];
  const result = await run([{ calls: [call('a', 1)] }, 'done'], input);
  expect(pairs(result)).toEqual(['a=', 'call_t1_0=result 1']);
});

test('generates ids that differ from those of the model', async () => {
  const result = await run([
    { calls: [call('call_t2_0', 1), call('', 2), call('call_t1_1', 3)] },
    { calls: [call('', 4), call('call_t2_0', 5)] },
    'done',
  ]);
  const ids = pairs(result).map((pair) => pair.split('=')[0]);
  expect(new Set(ids).size).toBe(5);
  expect(pairs(result).map((pair) => pair.split('=')[1])).toEqual([1, 2, 3, 4, 5].map((n) => `result ${n}`));
});

test('accepts ids named like members of Object.prototype', async () => {
  const result = await run([
    { calls: [call('__proto__', 1), call('constructor', 2), call('__proto__', 3)] },
    { calls: [call('toString', 4), call('constructor', 5)] },
    'done',
  ]);
  expect(pairs(result)).toEqual([
    '__proto__=result 1',
    'constructor=result 2',
    'call_t1_2=result 3',
    'toString=result 4',
    'call_t2_1=result 5',
  ]);
});

test('replaces repeated ids of refused calls too', async () => {
  const result = await run([
    { calls: [{ name: 'unknown', id: 'a' }, { name: 'unknown', id: 'a' }, call('a', 1)] },
    'done',
  ]);
  expect(pairs(result).map((pair) => pair.split('=')[0])).toEqual(['a', 'call_t1_1', 'call_t1_2']);
});
