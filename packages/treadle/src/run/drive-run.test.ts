import { agentTool, memoryJournal, textOf, tool } from '@treadle/core';
import type { Item, LoopResult, Model, QuestionOptions, RunStore, Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { askQuestion } from './ask-approval.ts';
import { driveRun } from './drive-run.ts';

/** Drives a run whose tool asks these questions at once. `lines`: what the user enters; undefined is Ctrl-D. */
async function drive(
  questions: readonly (string | QuestionOptions)[],
  lines: readonly (string | undefined)[],
): Promise<{ readonly result: LoopResult; readonly screen: readonly string[]; readonly got: unknown }> {
  const screen: string[] = [];
  const left = [...lines];
  let got: unknown;
  const book = tool({
    name: 'book',
    description: 'Books',
    execute: async (_, { ask }) => {
      got = await Promise.all(questions.map((question) => ask(question as QuestionOptions)));
      return 'booked';
    },
  });
  const prompter = {
    writeLine: (line: string) => void screen.push(line),
    async ask(prompt: string) {
      screen.push(prompt);
      return left.shift();
    },
  };
  const result = await driveRun({
    start: { model: scriptedModel([{ calls: [{ name: 'book' }] }, 'Done.']), tools: [book], input: 'Go.' },
    store: memoryJournal() as RunStore,
    signal: new AbortController().signal,
    stopping: 'detach',
    onItem: (_: Item) => {},
    answer: (request, rejected) => askQuestion(request, prompter, rejected),
    user: 'ann',
  });
  expect(left).toEqual([]);
  return { result, screen, got };
}

test('shows a step of the run when it is durable', async () => {
  const journal = memoryJournal();
  const waits = new Set<unknown>();
  const store: RunStore = {
    ...journal,
    append(...given) {
      waits.add(given[3]);
      return journal.append(...given);
    },
  };
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'a bird' });
  await driveRun({
    start: { model: scriptedModel([{ calls: [{ name: 'look' }] }, 'A bird.']), tools: [look], input: 'Go.' },
    store,
    signal: new AbortController().signal,
    stopping: 'detach',
    onItem: () => {},
  });
  expect([...waits]).toEqual(['durable']);
});

test('asks the user the questions of a tool, until each has an answer that fits', async () => {
  const seat = { prompt: 'Which seat?\n\u001b[2J', choices: ['aisle', 'window'] };
  const { result, screen, got } = await drive(['Who flies?', seat, seat.prompt], ['', ' Ann ', 'roof', '3', '2', 'x']);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  expect(got).toEqual(['Ann', 'window', 'x']);
  expect(screen.slice(0, 8)).toEqual([
    'book asks: Who flies?',
    'Your answer: ',
    'Your answer: ',
    'book asks: Which seat?\n  \\u001b[2J',
    '  1 aisle',
    '  2 window',
    'Your choice [1-2]: ',
    'Your choice [1-2]: ',
  ]);
});

test.each([
  [['aisle', 'window'], 'aisle', 'aisle'],
  [['2', '1'], '2', '2'],
  [['none', ''], '2', ''],
])('of %j the user chooses with %j', async (choices, line, value) => {
  const { got } = await drive([{ prompt: 'Which?', choices }], [line]);
  expect(got).toEqual([value]);
});

test('asks again if the schema of the question rejects the answer', async () => {
  const rows = { prompt: 'How many rows?', schema: { type: 'integer' } };
  const { result, screen, got } = await drive([rows], ['a few', '"two"', '2']);
  expect(result).toMatchObject({ outcome: { type: 'completed' } });
  expect(got).toEqual([2]);
  expect(screen.filter((line) => line.includes('does not fit'))).toHaveLength(1);
});

test('leaves the run paused if the user gives no answer', async () => {
  const { result } = await drive(['Who flies?'], [undefined]);
  expect(result).not.toHaveProperty('outcome');
  expect(result.waiting).toMatchObject([{ type: 'question' }]);
});

test('asks again only for what is left', async () => {
  const { result } = await drive(['Who flies?', 'When?'], ['Ann', undefined, undefined]);
  expect(result.waiting).toMatchObject([{ question: { prompt: 'When?' } }]);
});

/** Drives a run, and approves everything. Returns the results of its calls. */
async function driveApproved(model: Model, tools: readonly Tool[]): Promise<readonly string[]> {
  const { outcome, messages } = await driveRun({
    start: { model, tools, input: 'Go.' },
    store: memoryJournal() as RunStore,
    signal: new AbortController().signal,
    stopping: 'detach',
    onItem: () => {},
    approve: async () => ({ approved: true }),
  });
  expect(outcome).toEqual({ type: 'completed' });
  const results = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  return results.map(({ content }) => textOf(content));
}

const shell = tool({
  name: 'shell',
  description: 'A shell',
  needsApproval: true,
  async execute(_, { hold }) {
    const { isNew } = await hold(
      'shell',
      () => 'a shell',
      () => {},
    );
    return isNew ? 'a new shell' : 'the same shell';
  },
});
const CALL = { calls: [{ name: 'shell' }] };

test('what tools hold stays open while the user is asked', async () => {
  expect(await driveApproved(scriptedModel([CALL, CALL, 'Done.']), [shell])).toEqual(['a new shell', 'the same shell']);
});

test('asks for what a child run waits for', async () => {
  const task = agentTool({
    name: 'task',
    description: 'A task',
    input: { type: 'object' },
    prompt: () => 'Go.',
    model: scriptedModel([CALL, 'Child done.']),
    tools: [shell],
  });
  expect(await driveApproved(scriptedModel([{ calls: [{ name: 'task' }] }, 'Done.']), [task])).toEqual(['Child done.']);
});

test('a pattern of exponential time in the schema of a tool does not block the command', async () => {
  const search = tool({
    name: 'search',
    description: 'Searches',
    input: { type: 'object', properties: { text: { type: 'string', pattern: '^(a+)+$' } } },
    execute: () => 'found',
  });
  const call = { calls: [{ name: 'search', arguments: { text: `${'a'.repeat(60)}!` } }] };
  const { messages } = await driveRun({
    start: { model: scriptedModel([call, 'Done.']), tools: [search], input: 'Go.' },
    store: memoryJournal() as RunStore,
    signal: new AbortController().signal,
    stopping: 'detach',
    onItem: (_: Item) => {},
  });
  expect(JSON.stringify(messages)).toContain('text: String does not match pattern');
});
