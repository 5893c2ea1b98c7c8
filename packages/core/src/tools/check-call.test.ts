import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { runLoop } from '../driver/run.ts';
import { scriptedModel } from '../testing/index.ts';
import { checkCall, type Checked } from './execute.ts';
import { tool, type ToolDefinition } from './tool.ts';

const input = z.object({ path: z.string(), depth: z.number().optional() });

function toolWith(more: Partial<ToolDefinition<typeof input>> = {}): ReturnType<typeof tool> {
  return tool({ name: 'x', description: 'x', input, execute: () => 1, ...more });
}

describe('a valid call', () => {
  test('returns the validated input', () => {
    expect(checkCall(toolWith(), '{"path":"a","more":1}', false)).toEqual({ check: {}, input: { path: 'a' } });
  });

  test('returns the repaired arguments', () => {
    expect(checkCall(toolWith(), '{"path":"a",}', false)).toEqual({
      check: { arguments: '{"path":"a"}' },
      input: { path: 'a' },
    });
  });

  test('returns its resources, computed from the validated input', () => {
    const made = toolWith({ resources: ({ path }) => [`file:${path}`] });
    expect(checkCall(made, '{"path":"a"}', false)).toEqual({ check: { resources: ['file:a'] }, input: { path: 'a' } });
  });

  test('has no resources if "resources" returns undefined', () => {
    const made = toolWith({ resources: (() => undefined) as never });
    expect(checkCall(made, '{"path":"a"}', false)).toEqual({ check: {}, input: { path: 'a' } });
  });

  test('returns a promise if the schema validates asynchronously', async () => {
    const slow = input.refine(async ({ path }) => path !== 'b', { path: ['path'], message: 'is taken' });
    const made = tool({ name: 'x', description: 'x', input: slow, execute: () => 1 });
    expect(checkCall(made, '{"path":"a"}', false)).toBeInstanceOf(Promise);
    expect(await checkCall(made, '{"path":"a"}', false)).toEqual({ check: {}, input: { path: 'a' } });
    expect(await checkCall(made, '{"path":"b"}', false)).toEqual({
      check: { problem: 'Its arguments are not valid: path: is taken. Required: path. Optional: depth.' },
    });
  });
});

describe('an invalid call has a problem and no input', () => {
  test('arguments that are not valid JSON', () => {
    expect(checkCall(toolWith(), '{"path":', false)).toEqual({
      check: { problem: expect.stringContaining('not valid JSON') },
    });
  });

  test('arguments that were cut off', () => {
    expect(checkCall(toolWith(), '{"path":"a",}', true)).toEqual({
      check: { problem: expect.stringContaining('cut off') },
    });
  });

  test('arguments that the schema rejects: names each problem and the parameters', () => {
    expect(checkCall(toolWith(), '{"path":7,"depth":"x"}', false)).toEqual({
      check: {
        problem:
          'Its arguments are not valid: path: Invalid input: expected string, received number; ' +
          'depth: Invalid input: expected number, received string. Required: path. Optional: depth.',
      },
    });
  });

  test('names at most ten problems, and shortens each', () => {
    const input = { type: 'object', properties: { list: { items: { type: 'string' } } }, additionalProperties: false };
    const problemIn = (text: string): string => {
      const checked = checkCall(tool({ name: 'x', description: 'x', input }), text, false);
      return (checked as Checked).check.problem!;
    };
    expect(problemIn(JSON.stringify({ list: Array(1_000).fill(1) }))).toMatch(
      /^Its .*; list\.9: [^;]*; and 990 more\. Opt/,
    );
    expect(problemIn(JSON.stringify({ ['x'.repeat(100_000)]: 1 })).length).toBeLessThan(400);
  });

  test.each([
    [
      'throws',
      () => {
        throw new Error('ouch');
      },
    ],
    ['returns a string', () => 'abc'],
    ['returns a list of symbols', () => [Symbol('s')]],
    ['returns a promise', async () => ['a']],
    ['returns a promise that rejects', () => Promise.reject(new Error('ouch'))],
  ])('a "resources" function that %s', async (_, resources) => {
    const checked = await checkCall(toolWith({ resources: resources as never }), '{"path":"a"}', false);
    expect(checked).toEqual({
      check: { problem: expect.stringContaining('Its "resources" function failed: ') },
    });
  });

  test('tolerates malformed parameters in the message', () => {
    const parameters = { type: 'object', properties: null, required: 'path' };
    expect(checkCall(toolWith({ parameters }), '{}', false)).toEqual({
      check: { problem: expect.stringContaining('path: Invalid input') },
    });
  });
});

// ── asWritten ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const modelCalling = (text: string, finish: 'tool-calls' | 'length' = 'tool-calls') =>
  scriptedModel([{ calls: [{ name: 'ask', arguments: text }], finish }, { text: 'done' }]);

const ask = tool({
  name: 'ask',
  description: 'Asks the client',
  parameters: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] },
  asWritten: true,
});

test.each(['{"q":1}', '{"q":', '', 'not JSON at all', '[1]'])(
  'asWritten: the client gets the raw arguments %j',
  async (text) => {
    const { waiting } = await runLoop({ model: modelCalling(text), tools: [ask], input: 'go' });
    expect(waiting).toMatchObject([{ type: 'client', call: { arguments: text } }]);
  },
);

test('asWritten: a call that was cut off is rejected', async () => {
  const { waiting, outcome } = await runLoop({ model: modelCalling('{"q":', 'length'), tools: [ask], input: 'go' });
  expect(waiting).toEqual([]);
  expect(outcome).toEqual({ type: 'completed' });
});

test('asWritten: rejected for a tool with execute', () => {
  expect(() => tool({ ...ask, execute: () => '' })).toThrow('Leave out asWritten');
});
