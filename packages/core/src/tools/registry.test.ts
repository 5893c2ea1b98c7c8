import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { runLoop } from '../loop/run.ts';
import { manualClock } from '../testing/manual-clock.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { registry, type Registry } from './registry.ts';
import { tool, type ToolContext } from './tool.ts';

const add = tool({
  name: 'add',
  description: 'Adds two numbers',
  input: z.object({ a: z.number(), b: z.number().default(1) }),
  execute: ({ a, b }) => a + b,
});
const ask = tool({ name: 'ask', description: 'Asks the user' });

function filled(): Registry {
  const made = registry();
  made.register(add, 'builtin');
  made.register(ask, 'builtin');
  return made;
}

describe('register, unregister, get, list', () => {
  test('tools are found by name, and listed in the order in which they came', () => {
    const tools = filled();
    expect(tools.get('add')).toBe(add);
    expect(tools.get('sub')).toBeUndefined();
    expect(tools.list()).toEqual([add, ask]);
    expect(tools.unregister('add')).toBe(true);
    expect(tools.unregister('add')).toBe(false);
    expect(tools.list()).toEqual([ask]);
    tools.register(add, 'again');
    expect(tools.list()).toEqual([ask, add]);
  });

  test('two of one name: an error that names both sources', () => {
    expect(() => filled().register(add, 'tools/add.ts')).toThrow(
      expect.objectContaining({
        code: 'duplicate-tool',
        message: 'There are two tools named "add": one from builtin, one from tools/add.ts. Rename or leave out one.',
      }),
    );
    const tools = filled();
    tools.define({ name: 'add' }, 'a.yaml');
    expect(() => tools.define({ name: 'add' }, 'b.yaml')).toThrow(
      /two definitions of a tool named "add": one from a\.yaml, one from b\.yaml/,
    );
  });

  test('the first of two stays', () => {
    const tools = filled();
    const other = tool({ name: 'add', description: 'Another' });
    expect(() => tools.register(other, 'x')).toThrow('two tools');
    expect(tools.get('add')).toBe(add);
  });

  test.each(['constructor', 'toString', '__proto__', 'hasOwnProperty'])(
    'a tool named %s is one like any other',
    async (name) => {
      const tools = registry();
      expect(tools.get(name)).toBeUndefined();
      expect(tools.unregister(name)).toBe(false);
      expect(await tools.execute(name, {})).toMatchObject({ isError: true });
      tools.register(tool({ name, description: 'x', execute: () => 'ran' }), 'x');
      expect(tools.list().map((one) => one.name)).toEqual([name]);
      expect(await tools.execute(name, {})).toMatchObject({ content: [{ text: 'ran' }] });
    },
  );
});

describe('what a file says goes before what the tool says', () => {
  const parameters = { type: 'object', properties: { a: { type: 'integer', maximum: 9 } }, required: ['a'] };
  const entry = { name: 'add', description: 'Adds small numbers', parameters, timeoutMs: 5 };

  test.each(['before', 'after'])('whether it was defined %s the tool was registered', (when) => {
    const tools = registry();
    if (when === 'before') tools.define(entry, 'tools.yaml');
    tools.register(add, 'builtin');
    if (when === 'after') tools.define(entry, 'tools.yaml');
    expect(tools.get('add')).toEqual({ ...add, ...entry, input: parameters });
  });

  test('its schema is what arguments are checked against', async () => {
    const tools = filled();
    tools.define(entry, 'tools.yaml');
    expect(await tools.execute('add', { a: 10 })).toMatchObject({ isError: true });
    expect(await tools.execute('add', { a: 9, b: 1 })).toMatchObject({ isError: false, content: [{ text: '10' }] });
  });

  test('what it leaves out the tool says; a tool without a schema takes anything', async () => {
    const tools = filled();
    tools.define({ name: 'add', description: 'Sums' }, 'tools.yaml');
    expect(tools.get('add')).toEqual({ ...add, description: 'Sums' });
    tools.register(tool({ name: 'echo', description: 'x', execute: (given) => given }), 'x');
    expect(await tools.execute('echo', { any: 1 })).toMatchObject({ content: [{ text: '{"any":1}' }] });
  });

  test('it stays when the tool goes, and is no tool of its own', async () => {
    const tools = filled();
    tools.define(entry, 'tools.yaml');
    tools.unregister('add');
    expect(tools.get('add')).toBeUndefined();
    expect(tools.list()).toEqual([ask]);
    expect(await tools.execute('add', { a: 1 })).toEqual({
      type: 'result',
      content: [{ type: 'error', text: 'The tool "add" is defined in tools.yaml, but no code for it is registered.' }],
      isError: true,
    });
    tools.register(add, 'builtin');
    expect(tools.get('add')!.description).toBe('Adds small numbers');
  });
});

test('descriptions have the shape of OpenAI’s API', () => {
  expect(filled().describe()).toEqual([
    {
      type: 'function',
      function: {
        name: 'add',
        description: 'Adds two numbers',
        parameters: {
          type: 'object',
          properties: { a: { type: 'number' }, b: { type: 'number', default: 1 } },
          required: ['a'],
        },
      },
    },
    {
      type: 'function',
      function: { name: 'ask', description: 'Asks the user', parameters: { type: 'object', properties: {} } },
    },
  ]);
});

test('its list is ready for a run', async () => {
  using model = scriptedModel([{ calls: [{ name: 'add', arguments: { a: 1 } }] }, 'done']);
  const { messages } = await runLoop({ model, tools: filled().list(), input: 'x' });
  expect(messages[2]).toMatchObject({ content: [{ content: [{ text: '2' }] }] });
});

describe('execute', () => {
  const error = (text: string): object => ({ type: 'result', content: [{ type: 'error', text }], isError: true });

  test('validates, and gives what the tool gives', async () => {
    expect(await filled().execute('add', { a: 1 })).toEqual({
      type: 'result',
      content: [{ type: 'text', text: '2' }],
      isError: false,
    });
  });

  test('names each problem, and does not run', async () => {
    let ran = false;
    const tools = registry();
    tools.register({ ...add, execute: () => (ran = true) }, 'x');
    expect(await tools.execute('add', { a: 'one', b: 'two' })).toEqual(
      error(
        'The tool "add" was not called. Its arguments are not valid: a: Invalid input: expected number, received string; ' +
          'b: Invalid input: expected number, received string.',
      ),
    );
    expect(ran).toBe(false);
  });

  test('an unknown tool, and one that the client executes', async () => {
    expect(await filled().execute('sub', {})).toEqual(error('There is no tool "sub". Available tools: add, ask.'));
    expect(await registry().execute('sub', {})).toEqual(error('There is no tool "sub". Available tools: none.'));
    expect(await filled().execute('ask', {})).toEqual(error('The tool "ask" is executed by the client, not here.'));
  });

  test('hands on what the tool may need', async () => {
    let got: ToolContext | undefined;
    const tools = registry();
    tools.register(
      tool({ name: 'x', description: 'x', execute: (_, context) => void (got = context).report('half') }),
      'x',
    );
    const principal = { subject: 's', tenant: 't', scopes: [] };
    const reports: unknown[] = [];
    await tools.execute(
      'x',
      {},
      { key: 'k', context: 7, principal, report: (progress) => void reports.push(progress) },
    );
    expect(got).toMatchObject({ key: 'k', context: 7, principal });
    expect(reports).toEqual(['half']);
  });

  test.each([
    ['the caller’s', { timeoutMs: 10 }, { timeoutMs: 20 }, 10],
    ['the tool’s', {}, { timeoutMs: 20 }, 20],
    ['a minute', {}, {}, 60_000],
  ])('time out: %s', async (_, options, definition, ms) => {
    const clock = manualClock();
    const tools = registry();
    tools.register(tool({ name: 'x', description: 'x', execute: () => new Promise(() => {}), ...definition }), 'x');
    let result: unknown;
    void tools.execute('x', {}, { ...options, clock }).then((settled) => (result = settled));
    await clock.advance(ms - 1);
    expect(result).toBeUndefined();
    await clock.advance(1);
    expect(result).toMatchObject({ isError: true, content: [{ text: expect.stringContaining(`after ${ms} ms`) }] });
  });

  test('an abort reaches the tool, and is answered even if the tool does not heed it', async () => {
    const clock = manualClock();
    const controller = new AbortController();
    let signal: AbortSignal | undefined;
    const tools = registry();
    tools.register(
      tool({
        name: 'x',
        description: 'x',
        execute: (_, context) => ((signal = context.signal), new Promise(() => {})),
      }),
      'x',
    );
    const result = tools.execute('x', {}, { signal: controller.signal, clock });
    await clock.advance(0);
    controller.abort();
    expect(signal!.aborted).toBe(true);
    expect(await result).toMatchObject({ type: 'result', isError: true });
    expect(clock.pending).toBe(0);
  });

  test('what is aborted already does not run', async () => {
    let ran = false;
    const tools = registry();
    tools.register(tool({ name: 'x', description: 'x', execute: () => (ran = true) }), 'x');
    expect(await tools.execute('x', {}, { signal: AbortSignal.abort() })).toMatchObject({ isError: true });
    expect(ran).toBe(false);
  });
});
