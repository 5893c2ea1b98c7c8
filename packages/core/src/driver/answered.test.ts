import { describe, expect, test } from 'vitest';
import type { Item } from '../journal/items.ts';
import { memoryJournal } from '../journal/memory.ts';
import { walkJournal } from '../journal/replay.ts';
import type { Message, ToolResult } from '../messages.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { LoopOptions } from './options.ts';
import { runLoop, startLoop } from './run.ts';

const REPLY: Message = {
  role: 'assistant',
  content: [
    { type: 'text', text: 'Look.' },
    { type: 'tool-call', id: 'a', name: 'done_before', arguments: '{}' },
    { type: 'tool-call', id: 'b', name: 'pay', arguments: '{"sum":3}' },
    { type: 'tool-call', id: 'c', name: 'look', arguments: '{}' },
  ],
};
const INPUT: readonly Message[] = [{ role: 'user', content: [{ type: 'text', text: 'Go' }] }, REPLY];
const FIRST = result('a', 'done_before', 'known');

function result(callId: string, name: string, text: string): ToolResult {
  return { type: 'tool-result', callId, name, content: [{ type: 'text', text }], isError: false };
}

function setting(more: Partial<LoopOptions> = {}) {
  const paid: unknown[] = [];
  const pay = tool({
    name: 'pay',
    description: 'Pays',
    input: { type: 'object', properties: { sum: { type: 'number' } }, required: ['sum'] },
    needsApproval: true,
    execute: (input) => (paid.push(input), 'paid'),
  });
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'seen' });
  const model = scriptedModel(['Done.']);
  const journal = memoryJournal();
  const items: Item[] = [];
  const options = {
    model,
    tools: [pay, look],
    input: INPUT,
    answered: [FIRST],
    journal,
    runId: 'r',
    onItem: (item: Item) => void items.push(item),
    ...more,
  } satisfies LoopOptions;
  return { options, paid, model, journal, items };
}

describe('a run whose input ends with a reply', () => {
  test('executes the calls that have no result, in the order of the reply, before it calls the model', async () => {
    const { options, paid, items, journal } = setting();
    const paused = await runLoop(options);
    expect(paused.waiting).toMatchObject([{ type: 'approval', effect: 't0.approval.1', call: { name: 'pay' } }]);
    expect(paid).toEqual([]);
    const [{ effect, digest }] = paused.waiting as unknown as [{ effect: string; digest: string }];
    const { runId, tools, model } = options;
    const answers = [{ type: 'approval', effect, digest, approved: true } as const];
    const { outcome, messages, turns, calls } = await runLoop({ runId, tools, model, journal, answers });
    expect(outcome).toEqual({ type: 'completed' });
    expect(paid).toEqual([{ sum: 3 }]);
    expect(messages.slice(0, 3)).toEqual([
      ...INPUT,
      { role: 'tool', content: [FIRST, result('b', 'pay', 'paid'), result('c', 'look', 'seen')] },
    ]);
    expect([turns, calls]).toEqual([1, 2]);
    // What was answered before is not reported again.
    expect(items.flatMap((item) => (item.type === 'call-answered' ? item.call.name : []))).toEqual(['look']);
    const replayed = walkJournal(await journal.read(runId));
    expect(replayed).toMatchObject({ type: 'replayed', state: { phase: { type: 'ended' }, history: { length: 4 } } });
  });

  test('can be answered while it runs, and gets input after the results', async () => {
    const { options, paid } = setting({
      beforePause: async ([waiting]) => {
        if (waiting?.type !== 'approval') return;
        const { effect, digest } = waiting;
        await run.answer({ type: 'approval', effect, digest, approved: false, reason: 'too much' });
      },
    });
    const run = startLoop(options);
    await run.send('And hurry.');
    const { messages } = await run.result;
    expect(paid).toEqual([]);
    expect(messages.slice(2, 4)).toMatchObject([
      {
        role: 'tool',
        content: [FIRST, { isError: true, content: [{ text: expect.stringContaining('too much') }] }, {}],
      },
      { role: 'user', content: [{ text: 'And hurry.' }] },
    ]);
  });

  test('applies the tool choice to its own replies only', async () => {
    const { options } = setting({ tools: [], toolChoice: 'none' });
    const { messages } = await runLoop(options);
    expect(messages[2]).toMatchObject({ content: [FIRST, { errorType: 'not_found' }, { errorType: 'not_found' }] });
  });

  test('reports calls that cannot run', async () => {
    const { options, items } = setting({ tools: [] });
    await runLoop(options);
    expect(items.flatMap((item) => (item.type === 'call-answered' ? item.index : []))).toEqual([1, 2]);
  });

  test('does not count calls that have a result for the limit', async () => {
    const { options } = setting({ limits: { calls: 1 } });
    const looking = { ...options, answered: [FIRST, result('b', 'pay', 'paid')] };
    const { messages } = await runLoop(looking);
    expect(messages[2]).toMatchObject({ content: [{}, {}, { content: [{ text: 'seen' }] }] });
  });

  test('checks the arguments', async () => {
    const broken: Message = { ...REPLY, content: [{ type: 'tool-call', id: 'b', name: 'pay', arguments: '{}' }] };
    const { options, paid } = setting({
      input: [INPUT[0]!, broken],
      answered: [],
      beforePause: async ([waiting]) => {
        const { effect, digest } = waiting as { effect: string; digest: string };
        await run.answer({ type: 'approval', effect, digest, approved: true });
      },
    });
    const run = startLoop(options);
    const { messages } = await run.result;
    expect(paid).toEqual([]);
    expect(messages[2]).toMatchObject({ content: [{ isError: true, errorType: 'invalid_params' }] });
  });
});

describe('misuse', () => {
  test.each([
    ['no calls at the end', { input: 'Go', answered: [] }],
    ['a result of another call', { answered: [result('z', 'pay', '')] }],
    ['an incomplete result', { answered: [{ type: 'tool-result', callId: 'a' } as ToolResult] }],
  ])('%s is rejected', async (_, more) => {
    await expect(runLoop(setting(more).options)).rejects.toThrow('answered');
  });

  test('calls at the end without "answered" are rejected', async () => {
    const { answered: _, ...options } = setting().options;
    await expect(runLoop(options)).rejects.toThrow('have no results');
  });
});
