import {
  memoryJournal,
  registry,
  runLoop,
  textOf,
  type LoopOptions,
  type LoopResult,
  type ToolResult,
} from '@treadle/core';
import { scriptedModel, type ScriptedCall } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { todoReadTool, todoWriteTool } from './todos.ts';

const tools = [todoWriteTool(), todoReadTool()];
const write = (input: unknown): ScriptedCall => ({ name: 'todowrite', arguments: input });
const read = (input: unknown = {}): ScriptedCall => ({ name: 'todoread', arguments: input });

/** A run that makes these calls, each in a turn of its own. */
function runCalls(calls: readonly ScriptedCall[], more: Partial<LoopOptions> = {}): Promise<LoopResult> {
  const model = scriptedModel([...calls.map((call) => ({ calls: [call] })), 'Done.']);
  return runLoop({ model, tools, input: 'go', maxTurns: 500, errorLimit: 0, repeatLimit: 0, ...more });
}

function resultsIn({ messages }: LoopResult): readonly ToolResult[] {
  return messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
}

function textsIn(result: LoopResult): readonly string[] {
  return resultsIn(result).map(({ content }) => textOf(content));
}

test('adds, changes and lists todos by stable ids', async () => {
  const result = await runCalls([
    write({ task: 'Fix the parser', priority: 'high' }),
    write({ task: 'Write\n\u0007 tests ' }),
    write({ id: 1, status: 'completed' }),
    write({ id: 2, status: 'in_progress', priority: 'low', task: 'Write more tests' }),
    read(),
    read({ status: 'in_progress' }),
    read({ priority: 'high' }),
    read({ status: 'cancelled' }),
  ]);
  expect(textsIn(result)).toEqual([
    'Added: 1 [pending] (high) Fix the parser\n[1 open, 0 completed or cancelled]',
    'Added: 2 [pending] (medium) Write tests\n[2 open, 0 completed or cancelled]',
    'Changed: 1 [completed] (high) Fix the parser\n[1 open, 1 completed or cancelled]',
    'Changed: 2 [in_progress] (low) Write more tests\n[1 open, 1 completed or cancelled]',
    '1 [completed] (high) Fix the parser\n2 [in_progress] (low) Write more tests',
    '2 [in_progress] (low) Write more tests',
    '1 [completed] (high) Fix the parser',
    '[none of the 2 todos matches]',
  ]);
});

test('calls of one turn run in call order, and the list survives a resume', async () => {
  const journal = memoryJournal();
  const calls = ['a', 'b', 'c'].map((task) => write({ task }));
  const model = scriptedModel([{ calls: [...calls, read()] }, 'Done.', { calls: [read()] }, 'Still there.']);
  const first = await runLoop({ model, tools, journal, runId: 'r', input: 'go' });
  const list = '1 [pending] (medium) a\n2 [pending] (medium) b\n3 [pending] (medium) c';
  expect(textsIn(first).at(-1)).toBe(list);
  const second = await runLoop({ model, tools, journal, runId: 's', input: 'go', memory: first.memory! });
  expect(textsIn(second)).toEqual([list]);
});

test('an open todo with the same task is not added again', async () => {
  const result = await runCalls([write({ task: 'a' }), write({ task: 'a', priority: 'high' }), read()]);
  expect(textsIn(result).slice(1)).toEqual([
    'This todo exists already: 1 [pending] (high) a\n[1 open, 0 completed or cancelled]',
    '1 [pending] (high) a',
  ]);
});

describe('errors', () => {
  test.each([
    ['neither task nor id', {}, 'invalid_params', 'Give task to add a todo, or id to change one.'],
    ['a task of white space', { task: ' \n\u0000' }, 'invalid_params', 'The task is empty.'],
    ['an unknown id', { id: 7, status: 'completed' }, 'not_found', 'There is no todo 7. Ids: none.'],
    ['an unknown status', { id: 1, status: 'done' }, 'invalid_params', 'pending'],
    ['another type', { task: ['a'] }, 'invalid_params', 'Optional: task, priority, id, status.'],
    ['an unknown argument', { task: 'a', due: 'today' }, 'invalid_params', 'due: is not expected here'],
    ['a huge task', { task: 'x'.repeat(1_000_000) }, 'invalid_params', 'task: String is too long'],
    ['an id that is too large', { id: 1e300 }, 'not_found', 'There is no todo 1e+300'],
  ])('%s', async (_, input, errorType, text) => {
    const result = await runCalls([write(input)]);
    expect(resultsIn(result)).toMatchObject([{ isError: true, errorType }]);
    expect(textsIn(result)[0]).toContain(text);
    expect(textsIn(result)[0]!.length).toBeLessThan(500);
    expect(result.memory).toBeUndefined();
  });

  test('a memory with something else under the key', async () => {
    for (const todos of ['mine', 7, null, { nextId: 1, todos: [null] }]) {
      const result = await runCalls([read()], { memory: { todos } } as never);
      const isEmpty = todos === null;
      expect(textsIn(result)[0]).toContain(isEmpty ? 'there are no todos' : 'has something else under the key "todos"');
    }
  });

  test('a call that is not made by a run', async () => {
    const known = registry();
    for (const one of tools) known.register(one, 'test');
    for (const name of ['todowrite', 'todoread']) {
      const result = await known.execute(name, name === 'todoread' ? {} : { task: 'a' });
      expect(JSON.stringify(result)).toContain('only a run can call this tool');
    }
  });
});

test('a full list drops completed todos, never open ones, and a long list is cut with a note', async () => {
  const todos = Array.from({ length: 100 }, (_, index) => ({
    id: index + 1,
    task: 'x'.repeat(300),
    priority: 'low',
    status: index === 3 ? 'completed' : 'pending',
  }));
  const memory = { todos: { nextId: 101, todos } };
  const result = await runCalls([write({ task: 'one more' }), write({ task: 'too many' }), read()], {
    memory,
  } as never);
  const [added, refused, list] = textsIn(result);
  expect(added).toBe('Added: 101 [pending] (medium) one more\n[100 open, 0 completed or cancelled]');
  expect(refused).toContain('There are 100 open todos, and there cannot be more.');
  expect(list).toMatch(/^1 \[pending\].*\n\[only \d+ of 100 are shown: ask for a status or a priority\]$/s);
  expect(list!.length).toBeLessThan(12_500);
});
