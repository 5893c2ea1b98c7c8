import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { runLoop } from '../driver/run.ts';
import type { ErrorType } from '../messages.ts';
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
  test('finds tools by name, and lists them in the order of registration', () => {
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

  test('rejects a second tool of the same name and names both sources', () => {
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

  test('keeps the first tool when a second one is rejected', () => {
    const tools = filled();
    const other = tool({ name: 'add', description: 'Another' });
    expect(() => tools.register(other, 'x')).toThrow('two tools');
    expect(tools.get('add')).toBe(add);
  });

  test.each(['constructor', 'toString', '__proto__', 'hasOwnProperty'])('a tool may be named %s', async (name) => {
    const tools = registry();
    expect(tools.get(name)).toBeUndefined();
    expect(tools.unregister(name)).toBe(false);
    expect(await tools.execute(name, {})).toMatchObject({ isError: true });
    tools.register(tool({ name, description: 'x', execute: () => 'ran' }), 'x');
    expect(tools.list().map((one) => one.name)).toEqual([name]);
    expect(await tools.execute(name, {})).toMatchObject({ content: [{ text: 'ran' }] });
  });
});

describe('a definition from a file overrides the tool', () => {
  const parameters = { type: 'object', properties: { a: { type: 'integer', maximum: 9 } }, required: ['a'] };
  const entry = { name: 'add', description: 'Adds small numbers', parameters, timeoutMs: 5 };

  test.each(['before', 'after'])('when added %s the tool', (when) => {
    const tools = registry();
    if (when === 'before') tools.define(entry, 'tools.yaml');
    tools.register(add, 'builtin');
    if (when === 'after') tools.define(entry, 'tools.yaml');
    expect(tools.get('add')).toEqual({ ...add, ...entry, input: parameters });
  });

  test('arguments are validated against its schema', async () => {
    const tools = filled();
    tools.define(entry, 'tools.yaml');
    expect(await tools.execute('add', { a: 10 })).toMatchObject({ isError: true });
    expect(await tools.execute('add', { a: 9, b: 1 })).toMatchObject({ isError: false, content: [{ text: '10' }] });
  });

  test('keeps the fields of the tool that it does not set; a tool without a schema accepts any input', async () => {
    const tools = filled();
    tools.define({ name: 'add', description: 'Sums' }, 'tools.yaml');
    expect(tools.get('add')).toEqual({ ...add, description: 'Sums' });
    tools.register(tool({ name: 'echo', description: 'x', execute: (input) => input }), 'x');
    expect(await tools.execute('echo', { any: 1 })).toMatchObject({ content: [{ text: '{"any":1}' }] });
  });

  test('stays when the tool is unregistered, and is not a tool by itself', async () => {
    const tools = filled();
    tools.define(entry, 'tools.yaml');
    tools.unregister('add');
    expect(tools.get('add')).toBeUndefined();
    expect(tools.list()).toEqual([ask]);
    expect(await tools.execute('add', { a: 1 })).toEqual({
      type: 'result',
      content: [{ type: 'error', text: 'The tool "add" is defined in tools.yaml, but no code for it is registered.' }],
      isError: true,
      errorType: 'not_found',
    });
    tools.register(add, 'builtin');
    expect(tools.get('add')!.description).toBe('Adds small numbers');
  });
});

test('describe returns the format of OpenAI’s API', () => {
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

test('runLoop accepts its list', async () => {
  using model = scriptedModel([{ calls: [{ name: 'add', arguments: { a: 1 } }] }, 'done']);
  const { messages } = await runLoop({ model, tools: filled().list(), input: 'x' });
  expect(messages[2]).toMatchObject({ content: [{ content: [{ text: '2' }] }] });
});

describe('execute', () => {
  const error = (text: string, errorType?: ErrorType): object => ({
    type: 'result',
    content: [{ type: 'error', text }],
    isError: true,
    ...(errorType && { errorType }),
  });

  test('validates the input and returns the result', async () => {
    expect(await filled().execute('add', { a: 1 })).toEqual({
      type: 'result',
      content: [{ type: 'text', text: '2' }],
      isError: false,
    });
  });

  test('names each problem of an invalid input, and does not run the tool', async () => {
    let ran = false;
    const tools = registry();
    tools.register({ ...add, execute: () => (ran = true) }, 'x');
    expect(await tools.execute('add', { a: 'one', b: 'two' })).toEqual(
      error(
        'The tool "add" was not called. Its arguments are not valid: a: Invalid input: expected number, received string; ' +
          'b: Invalid input: expected number, received string. Required: a. Optional: b.',
        'invalid_params',
      ),
    );
    expect(ran).toBe(false);
  });

  test('returns an error for an unknown tool and for one that the client executes', async () => {
    expect(await filled().execute('sub', {})).toEqual(
      error('There is no tool "sub". Available tools: add, ask.', 'not_found'),
    );
    expect(await registry().execute('sub', {})).toEqual(
      error('There is no tool "sub". Available tools: none.', 'not_found'),
    );
    expect(await filled().execute('ask', {})).toEqual(error('The tool "ask" is executed by the client, not here.'));
  });

  test('passes the options on to the tool', async () => {
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
    ['of the options', { timeoutMs: 10 }, { timeoutMs: 20 }, 10],
    ['of the tool', {}, { timeoutMs: 20 }, 20],
    ['of a minute by default', {}, {}, 60_000],
  ])('applies the timeout %s', async (_, options, definition, ms) => {
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

  test('an abort reaches the tool, and settles even if the tool ignores it', async () => {
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

  test('does not run the tool if the signal is already aborted', async () => {
    let ran = false;
    const tools = registry();
    tools.register(tool({ name: 'x', description: 'x', execute: () => (ran = true) }), 'x');
    expect(await tools.execute('x', {}, { signal: AbortSignal.abort() })).toMatchObject({ isError: true });
    expect(ran).toBe(false);
  });
});
