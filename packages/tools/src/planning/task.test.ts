import {
  memoryJournal,
  runLoop,
  textOf,
  tool,
  type LoopResult,
  type Policy,
  type Tool,
  type ToolResult,
} from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { agentHost, agentRegistry } from '@treadle/core/named-agents';
import { manualClock, scriptedModel, type ScriptedCall } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { agentsListTool } from './agents-list.ts';
import { questionTool } from './question.ts';
import { taskProgress, taskTool } from './task.ts';

const call = (task: string, model?: string): ScriptedCall => ({
  name: 'task',
  arguments: { task_description: task, ...(model !== undefined && { model }) },
});
const echo = tool({ name: 'echo', description: 'Echoes', effect: 'pure', execute: () => 'echoed' });

function resultsIn({ messages }: LoopResult): readonly (ToolResult & { readonly text: string })[] {
  const results = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  return results.map((result) => ({ ...result, text: textOf(result.content) }));
}

test('a task is a run of its own, and its answer is the result', async () => {
  const journal = memoryJournal();
  using child = scriptedModel([{ calls: [{ name: 'echo' }] }, 'Found it.']);
  const tools = [taskTool({ models: { small: child }, tools: [echo], instructions: 'Search.' })];
  const model = scriptedModel([{ calls: [call('Find it.')] }, 'Done.']);
  const result = await runLoop({ model, tools, journal, runId: 'p', input: 'go' });
  expect(resultsIn(result)).toMatchObject([{ isError: false, text: 'Found it.' }]);
  expect(result.calls).toBe(2);
  expect(child.requests[0]).toMatchObject({ instructions: 'Search.', messages: [{ content: [{ text: 'Find it.' }] }] });
  expect(await journal.list({ parent: 'p' })).toHaveLength(1);
});

test('a task reports its calls as progress', async () => {
  const tools = [taskTool({ models: { small: scriptedModel([{ calls: [{ name: 'echo' }] }, 'ok']) }, tools: [echo] })];
  const reported: unknown[] = [];
  await runLoop({
    model: scriptedModel([{ calls: [call('a')] }, 'Done.']),
    tools,
    input: 'go',
    onItem: (item) => void reported.push(taskProgress(item)),
  });
  expect(reported.filter((one) => one !== undefined)).toMatchObject([
    { type: 'call-started', call: { name: 'echo' } },
    { type: 'call-answered', call: { name: 'echo' }, result: { content: [{ text: 'echoed' }] } },
  ]);
});

test('the caller chooses the model by name, the first is the default, and others are refused', async () => {
  using small = scriptedModel(['small']);
  using large = scriptedModel(['large']);
  const tools = [taskTool({ models: { small, large } })];
  const calls = [call('a'), call('a', 'large'), call('a', 'huge')];
  const result = await runLoop({ model: scriptedModel([{ calls }, 'Done.']), tools, input: 'go' });
  const [first, second, third] = resultsIn(result);
  expect([first!.text, second!.text]).toEqual(['small', 'large']);
  expect(third).toMatchObject({ errorType: 'invalid_params', text: expect.stringContaining('model: ') });
  expect(tools[0]!.asks).toEqual([small, large]);
});

test('tasks of one reply run at the same time', async () => {
  let running = 0;
  const both = Promise.withResolvers<string>();
  const meet = (): Promise<string> => {
    if (++running === 2) both.resolve('met');
    return both.promise;
  };
  const tools = [taskTool({ models: { small: scriptedModel([meet, meet]) } })];
  const model = scriptedModel([{ calls: [call('a'), call('b')] }, 'Done.']);
  expect(resultsIn(await runLoop({ model, tools, input: 'go' })).map(({ text }) => text)).toEqual(['met', 'met']);
});

describe('nesting', () => {
  const toolNames = (child: ReturnType<typeof scriptedModel>): unknown =>
    child.requests.map(({ tools }) => tools.map(({ name }) => name));

  test('by default a task cannot start a task', async () => {
    const child = scriptedModel([{ calls: [call('again')] }, 'I cannot.']);
    const tools = [taskTool({ models: { small: child } })];
    await runLoop({ model: scriptedModel([{ calls: [call('a')] }, 'Done.']), tools, input: 'go' });
    expect(toolNames(child)).toEqual([[], []]);
  });

  test('maxDepth allows it, and ends it', async () => {
    const child = scriptedModel([{ calls: [call('inner')] }, 'From inside.', 'Passed on.']);
    const tools = [taskTool({ models: { small: child }, maxDepth: 2 })];
    const result = await runLoop({ model: scriptedModel([{ calls: [call('a')] }, 'Done.']), tools, input: 'go' });
    expect(resultsIn(result)).toMatchObject([{ text: 'Passed on.' }]);
    expect(toolNames(child)).toEqual([['task'], [], ['task']]);
  });
});

describe('a task is under its caller', () => {
  test('the policy of the caller judges its calls', async () => {
    const policy: Policy = {
      judge: (calls) =>
        calls.map(({ name }) => (name === 'echo' ? { type: 'deny', reason: 'no echo' } : { type: 'allow' })),
    };
    const child = scriptedModel([{ calls: [{ name: 'echo' }] }, 'Denied.']);
    const tools = [taskTool({ models: { small: child }, tools: [echo] })];
    const model = scriptedModel([{ calls: [call('a')] }, 'Done.']);
    await runLoop({ model, tools, policy, input: 'go' });
    expect(JSON.stringify(child.requests[1])).toContain('no echo');
  });

  test('it draws on the ledger of the caller, and its limits are a share of those that the caller has left', async () => {
    const child = scriptedModel([{ calls: [{ name: 'echo' }, { name: 'echo' }] }, 'Half of it.', 'Half of it.']);
    const tools = [taskTool({ models: { small: child }, tools: [echo] })];
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [call('a')] }, 'Done.']);
    const budgets = memoryBudgets({ all: { calls: 10 } });
    const ledger = budgets.ledger(['all']);
    await runLoop({ model, tools, journal, runId: 'p', limits: { calls: 3 }, ledger, input: 'go' });
    expect((await budgets.get('all'))?.settled.calls).toBe(2);
    const [started] = await journal.read('p.t1.tool.0');
    expect(started!.event).toMatchObject({ rules: { limits: { calls: 1 } } });
    expect(JSON.stringify(child.requests[1])).toContain('all 1 tool calls of this run are used up');
  });

  test('its questions reach the caller, and it is resumed with the answers and the chosen model', async () => {
    const child = scriptedModel([{ calls: [{ name: 'question', arguments: { prompt: 'Which?' } }] }, 'Blue it is.']);
    const tools = [taskTool({ models: { small: scriptedModel([]), large: child }, tools: [questionTool()] })];
    const model = scriptedModel([{ calls: [call('a', 'large')] }, 'Done.']);
    const run = { model, tools, journal: memoryJournal(), runId: 'p' };
    const { waiting } = await runLoop({ ...run, input: 'go' });
    const effect = 't1.tool.0/t1.question.0.0';
    expect(waiting).toMatchObject([{ type: 'question', effect, question: { prompt: 'Which?' } }]);
    const result = await runLoop({ ...run, answers: [{ type: 'answer', effect, value: 'blue' }] });
    expect(resultsIn(result)).toMatchObject([{ text: 'Blue it is.' }]);
  });

  test('it has no time limit of its own', async () => {
    const clock = manualClock();
    const slow = (): Promise<string> =>
      new Promise((resolve) => void clock.timer(86_400_000, () => resolve('At last.')));
    const tools = [taskTool({ models: { small: scriptedModel([slow]) } })];
    const model = scriptedModel([{ calls: [call('a')] }, 'Done.']);
    const result = runLoop({ model, tools, clock, toolTimeoutMs: 1_000, input: 'go' });
    await clock.advance(86_400_000);
    expect(resultsIn(await result)).toMatchObject([{ text: 'At last.' }]);
  });

  test('it ends when the caller is cancelled', async () => {
    const controller = new AbortController();
    const cancel = (): Promise<string> => (controller.abort(), new Promise(() => {}));
    const tools = [taskTool({ models: { small: scriptedModel([cancel]) } })];
    const model = scriptedModel([{ calls: [call('a')] }]);
    const result = await runLoop({ model, tools, signal: controller.signal, input: 'go' });
    expect(result.outcome).toMatchObject({ type: 'cancelled' });
    expect(resultsIn(result)).toMatchObject([{ errorType: 'interrupted' }]);
  });
});

test('a task whose model fails says why', async () => {
  const error = { code: 'overloaded', message: 'Too many requests.', retryable: false } as const;
  const failing = scriptedModel([{ type: 'failure', error }]);
  const tools = [taskTool({ models: { small: failing } })];
  const result = await runLoop({ model: scriptedModel([{ calls: [call('a')] }, 'Done.']), tools, input: 'go' });
  expect(resultsIn(result)[0]).toMatchObject({ isError: true, errorType: 'execution_failed' });
  expect(resultsIn(result)[0]!.text).toBe('task failed: Too many requests. (overloaded)');
});

test.each([
  ['no description', {}],
  ['a huge description', { task_description: 'x'.repeat(1_000_000) }],
  ['another type', { task_description: { task: 'a' } }],
  ['an unknown argument', { task_description: 'a', depth: 100 }],
])('%s is refused', async (_, input) => {
  using child = scriptedModel([]);
  const tools = [taskTool({ models: { small: child } })];
  const model = scriptedModel([{ calls: [{ name: 'task', arguments: input }] }, 'Done.']);
  const [result] = resultsIn(await runLoop({ model, tools, input: 'go' }));
  expect(result).toMatchObject({ errorType: 'invalid_params', text: expect.stringContaining('Optional: model.') });
});

test.each([
  ['no models', { models: {} }, /at least one model/],
  ['a depth of 0', { models: { small: scriptedModel([]) }, maxDepth: 0 }, /maxDepth 0/],
])('%s is misuse', (_, options, message) => {
  expect(() => taskTool(options)).toThrow(message);
});

describe('agents', () => {
  const main = (...calls: readonly object[]): ReturnType<typeof scriptedModel> =>
    scriptedModel([{ calls: calls.map((args) => ({ name: 'task', arguments: args })) }, 'Done.']);

  const registry = agentRegistry([
    { name: 'finder', description: 'Finds things.', tools: ['echo'] },
    { name: 'adder', description: 'Adds.', inputs: { a: { type: 'number', required: true } } },
  ]);

  function toolsOf(model: ReturnType<typeof scriptedModel>): readonly Tool[] {
    const host = agentHost({ registry, model: () => model, tools: [echo] });
    const agents = { list: registry.list, tool: host.agentTool! };
    return [agentsListTool(agents), taskTool({ models: { small: scriptedModel(['plain']) }, namedAgents: agents })];
  }

  test('do tasks by their definitions', async () => {
    using child = scriptedModel([{ calls: [{ name: 'echo' }] }, 'Found.', 'Found.', 'Two.']);
    const model = main(
      { task_description: 'Find it.', agent: 'finder' },
      { task_description: 'Add.', agent: 'adder', inputs: { a: 2 } },
      { task_description: 'Add.', agent: 'adder', inputs: { b: 2 } },
      { task_description: 'Find it.', agent: 'findr' },
      { task_description: 'Plain.' },
    );
    const result = await runLoop({ model, tools: toolsOf(child), maxParallel: 1, input: 'go' });
    const texts = resultsIn(result).map(({ text }) => text);
    expect(texts).toEqual([
      'Found.',
      'Two.',
      expect.stringContaining('The agent "adder" has no input "b".'),
      expect.stringContaining('There is no agent "findr". Did you mean "finder"? The agents are finder, adder.'),
      'plain',
    ]);
    expect(child.requests[0]).toMatchObject({
      instructions: expect.stringContaining('You are "finder".'),
      messages: [{ content: [{ text: '{"task":"Find it."}' }] }],
    });
  });

  test('are listed, and found by keywords', async () => {
    const list = (query?: string): string =>
      String(agentsListTool(registry).execute!(query === undefined ? {} : { query }, {} as never));
    expect(list()).toBe('- finder: Finds things. Inputs: task.\n- adder: Adds. Inputs: a.');
    expect(list('things')).toBe('- finder: Finds things. Inputs: task.');
    expect(list('zebra')).toBe('No agent matches. Use other words.');
    expect(agentsListTool({ list: () => [] }).execute!({}, {} as never)).toBe('There are no agents.');
  });

  test('without any, the tool is as before', () => {
    const { parameters } = taskTool({ models: { small: scriptedModel([]) } });
    expect(Object.keys(parameters['properties'] as object)).toEqual(['task_description', 'model']);
  });
});
