import { describe, expect, test } from 'vitest';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { runLoop } from './run.ts';

/** Adds its input to a list. */
function adder(name: string, key: string): Tool {
  return tool({
    name,
    description: name,
    input: { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] },
    remembers: [key],
    async execute({ what }, { memory }) {
      const list = [...((memory![key] as unknown[] | undefined) ?? []), what];
      await Promise.resolve();
      memory![key] = list;
      return list.join();
    },
  });
}

const add = (name: string, what: string) => ({ name, arguments: { what } });

test('a tool finds what earlier calls stored, and the result has the final memory', async () => {
  const model = scriptedModel([{ calls: [add('todo', 'a')] }, { calls: [add('todo', 'b')] }, 'done']);
  const result = await runLoop({ model, tools: [adder('todo', 'todo')], input: 'go', memory: { todo: ['first'] } });
  expect(result.memory).toEqual({ todo: ['first', 'a', 'b'] });
});

test('parallel calls with different keys keep each other’s changes, and calls with the same key run in call order', async () => {
  const tools = [adder('todo', 'todo'), adder('skill', 'skills')];
  const calls = [add('todo', 'a'), add('skill', 'x'), add('todo', 'b'), add('skill', 'y')];
  const result = await runLoop({ model: scriptedModel([{ calls }, 'done']), tools, input: 'go' });
  expect(result.memory).toEqual({ todo: ['a', 'b'], skills: ['x', 'y'] });
});

test('memory survives a compaction of the turns that stored it', async () => {
  const usage = { inputTokens: 90, outputTokens: 10, cost: 0 };
  const calls = ['a', 'b', 'c', 'd'].map((what, index) => ({
    calls: [add('todo', what)],
    ...(index === 2 && { usage }),
  }));
  const model = scriptedModel([...calls, 'done']);
  const result = await runLoop({
    model,
    summariser: scriptedModel(['Two items.']),
    tools: [adder('todo', 'todo')],
    input: 'go',
    compaction: { tokens: 100, keepTurns: 1 },
  });
  expect(JSON.stringify(model.requests.at(-1)!.messages)).toContain('Two items.');
  expect(result.memory).toEqual({ todo: ['a', 'b', 'c', 'd'] });
});

test('a tool gets only the keys that it remembers, as a copy', async () => {
  const seen: unknown[] = [];
  const peek = tool({
    name: 'peek',
    description: 'peek',
    remembers: ['a', 'unset'],
    execute(_, { memory }) {
      seen.push({ ...memory });
      (memory!['a'] as number[]).push(2);
      return { content: 'no', isError: true };
    },
  });
  const memory = { a: [1], b: 2 };
  const result = await runLoop({
    model: scriptedModel([{ calls: [{ name: 'peek' }] }, 'ok']),
    tools: [peek],
    input: 'go',
    memory,
  });
  expect(seen).toEqual([{ a: [1, 2] }]);
  // The call failed, so its change is not stored.
  expect(result.memory).toEqual({ a: [1], b: 2 });
});

test('a deleted key is removed', async () => {
  const drop = tool({
    name: 'drop',
    description: 'drop',
    remembers: ['a', 'b'],
    execute(_, { memory }) {
      delete memory!['a'];
      memory!['b'] = null;
    },
  });
  const options = { tools: [drop], input: 'go', memory: { a: 1, b: 2, c: 3 } };
  const result = await runLoop({ ...options, model: scriptedModel([{ calls: [{ name: 'drop' }] }, 'ok']) });
  expect(result.memory).toEqual({ c: 3 });
});

test.each([
  ['a key that it does not remember', 'b', 1, 'the tool does not remember "b". Add the key to "remembers"'],
  ['a value without a JSON form', 'a', new Date(0), 'it contains a value that JSON cannot represent'],
])('a change of %s is an error, and nothing is stored', async (_, key, value, problem) => {
  const bad = tool({
    name: 'bad',
    description: 'bad',
    remembers: ['a'],
    execute(__, { memory }) {
      memory![key] = value;
      return 'fine';
    },
  });
  const result = await runLoop({
    model: scriptedModel([{ calls: [{ name: 'bad' }] }, 'ok']),
    tools: [bad],
    input: 'go',
  });
  expect(JSON.stringify(result.messages)).toContain(JSON.stringify(problem).slice(1, -1));
  expect(result.memory).toBeUndefined();
});

test('a tool without "remembers" gets no memory', async () => {
  const seen: unknown[] = [];
  const plain = tool({ name: 'plain', description: '', execute: (_, { memory }) => void seen.push(memory) });
  const model = scriptedModel([{ calls: [{ name: 'plain' }] }, 'ok']);
  await runLoop({ model, tools: [plain], input: 'go', memory: { a: 1 } });
  expect(seen).toEqual([undefined]);
});

describe('with a journal', () => {
  const tools = [adder('todo', 'todo')];

  test('a resumed run continues with its memory', async () => {
    const journal = memoryJournal();
    const ask = tool({ name: 'ask', description: 'ask' });
    const options = { tools: [...tools, ask], journal, runId: 'r' };
    const model = scriptedModel([{ calls: [add('todo', 'a')] }, { calls: [{ name: 'ask' }] }]);
    const paused = await runLoop({ ...options, model, input: 'go' });
    expect(paused.memory).toEqual({ todo: ['a'] });
    const answers = paused.waiting.map(({ effect }) => ({ type: 'result' as const, effect, content: 'yes' }));
    const next = scriptedModel([{ calls: [add('todo', 'b')] }, 'done']);
    expect((await runLoop({ ...options, model: next, answers })).memory).toEqual({ todo: ['a', 'b'] });
  });

  test('a fork has the memory at the fork point', async () => {
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [add('todo', 'a')] }, { calls: [add('todo', 'b')] }, 'done']);
    await runLoop({ tools, journal, runId: 'r', model, input: 'go' });
    const runId = await forkRun({ journal, runId: 'r', at: 2, changes: { instructions: 'other' } });
    const forked = await runLoop({
      tools,
      journal,
      runId,
      model: scriptedModel([{ calls: [add('todo', 'c')] }, 'done']),
    });
    expect(forked.memory).toEqual({ todo: ['a', 'c'] });
  });
});

test('a child run has a memory of its own', async () => {
  const child = agentTool({
    name: 'child',
    description: 'child',
    model: scriptedModel([{ calls: [add('todo', 'inside')] }, 'done']),
    tools: [adder('todo', 'todo')],
    memory: { todo: ['child'] },
  });
  const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'go' } }] }, 'done']);
  const result = await runLoop({ model, tools: [child], input: 'go', memory: { todo: ['parent'] } });
  expect(result.memory).toEqual({ todo: ['parent'] });
});

test.each([[[1]], [{ at: new Date(0) }], [() => 1]])('rejects %s as memory', async (memory) => {
  const options = { model: scriptedModel(['ok']), input: 'go', memory: memory as never };
  await expect(runLoop(options)).rejects.toMatchObject({ code: 'invalid-options' });
});

describe('a tool that names its keys for each call', () => {
  const WHAT = { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] } as const;

  /** Counts how often each thing was seen. `during` is called while a call is in progress. */
  const seeing = (during: (what: string) => unknown = () => {}, more: object = {}): Tool =>
    tool({
      name: 'see',
      description: 'see',
      input: WHAT,
      remembers: ({ what }) => [`seen ${String(what)}`],
      async execute({ what }, { memory }) {
        const key = `seen ${String(what)}`;
        const count = ((memory![key] as number | undefined) ?? 0) + 1;
        await during(String(what));
        memory![key] = count;
        return Object.keys(memory!).join();
      },
      ...more,
    });

  test('gets these keys only, and stores them', async () => {
    const model = scriptedModel([{ calls: [add('see', 'a')] }, { calls: [add('see', 'a')] }, 'done']);
    const result = await runLoop({ model, tools: [seeing()], input: 'go', memory: { 'seen b': 5 } });
    expect(JSON.stringify(result.messages)).not.toContain('seen b');
    expect(result.memory).toEqual({ 'seen a': 2, 'seen b': 5 });
  });

  test('runs at the same time as calls with other keys, and in call order with those of the same key', async () => {
    const events: string[] = [];
    const bothStarted = Promise.withResolvers<void>();
    const started = (what: string): Promise<void> => {
      events.push(what);
      if (events.includes('a') && events.includes('b')) bothStarted.resolve();
      return bothStarted.promise;
    };
    const calls = [add('see', 'a'), add('see', 'a'), add('see', 'b')];
    const model = scriptedModel([{ calls }, 'done']);
    const result = await runLoop({ model, tools: [seeing(started)], input: 'go' });
    expect(events).toEqual(['a', 'b', 'a']);
    expect(result.memory).toEqual({ 'seen a': 2, 'seen b': 1 });
  });

  test('does not wait behind a call with another key that awaits approval', async () => {
    const seen: string[] = [];
    const tools = [seeing((what) => seen.push(what), { needsApproval: ({ what }: { what: string }) => what === 'a' })];
    const calls = [add('see', 'a'), add('see', 'b'), add('see', 'a')];
    const result = await runLoop({ model: scriptedModel([{ calls }]), tools, input: 'go', journal: memoryJournal() });
    expect(seen).toEqual(['b']);
    expect(result.waiting).toHaveLength(2);
  });

  test.each([
    ['throws', () => assertFails('no keys'), 'no keys'],
    ['returns no list', () => 'a', '"remembers" must return a list of keys'],
    ['returns a promise', () => Promise.reject(new Error('late')), '"remembers" must return a list of keys'],
    ['names the empty key', () => [''], '"remembers" must return a list of keys'],
  ])('refuses a call if its function %s', async (_, remembers, problem) => {
    const ran: string[] = [];
    const model = scriptedModel([{ calls: [add('see', 'a')] }, 'done']);
    const tools = [seeing((what) => ran.push(what), { remembers })];
    const result = await runLoop({ model, tools, input: 'go' });
    expect(ran).toEqual([]);
    expect(JSON.stringify(result.messages)).toContain(JSON.stringify(problem).slice(1, -1));
  });

  test('may name none, and then stores nothing', async () => {
    const model = scriptedModel([{ calls: [add('see', 'a')] }, 'done']);
    const result = await runLoop({ model, tools: [seeing(undefined, { remembers: () => [] })], input: 'go' });
    expect(JSON.stringify(result.messages)).toContain('does not remember');
    expect(result.memory).toBeUndefined();
  });
});

function assertFails(message: string): never {
  throw new Error(message);
}

test.each([
  [{ remembers: [] }, 'remembers []. List the keys'],
  [{ remembers: 'todo' }, 'remembers "todo". List the keys'],
  [{ remembers: ['todo'], execute: undefined }, 'executed by the client'],
])('rejects a tool with %j', (part, problem) => {
  expect(() => tool({ name: 'a', description: '', execute: () => 1, ...part } as never)).toThrow(problem);
});
