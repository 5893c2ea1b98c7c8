import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { runLoop } from '../loop/run.ts';
import { scriptedModel } from '../testing/index.ts';
import { checkCall } from './execute.ts';
import { tool, type ToolDefinition } from './tool.ts';

const input = z.object({ path: z.string(), depth: z.number().optional() });

function toolWith(more: Partial<ToolDefinition<typeof input>> = {}): ReturnType<typeof tool> {
  return tool({ name: 'x', description: 'x', input, execute: () => 1, ...more });
}

describe('a call that may run', () => {
  test('comes with its validated input', () => {
    expect(checkCall(toolWith(), '{"path":"a","more":1}', false)).toEqual({ check: {}, input: { path: 'a' } });
  });

  test('keeps what repair made of its arguments', () => {
    expect(checkCall(toolWith(), '{"path":"a",}', false)).toEqual({
      check: { arguments: '{"path":"a"}' },
      input: { path: 'a' },
    });
  });

  test('says what it needs for itself, by its validated input', () => {
    const made = toolWith({ resources: ({ path }) => [`file:${path}`] });
    expect(checkCall(made, '{"path":"a"}', false)).toEqual({ check: { resources: ['file:a'] }, input: { path: 'a' } });
  });

  test('needs nothing for itself if it says nothing', () => {
    const made = toolWith({ resources: (() => undefined) as never });
    expect(checkCall(made, '{"path":"a"}', false)).toEqual({ check: {}, input: { path: 'a' } });
  });

  test('is asked later where the schema takes its time', async () => {
    const slow = input.refine(async ({ path }) => path !== 'b', { path: ['path'], message: 'is taken' });
    const made = tool({ name: 'x', description: 'x', input: slow, execute: () => 1 });
    expect(checkCall(made, '{"path":"a"}', false)).toBeInstanceOf(Promise);
    expect(await checkCall(made, '{"path":"a"}', false)).toEqual({ check: {}, input: { path: 'a' } });
    expect(await checkCall(made, '{"path":"b"}', false)).toEqual({
      check: { problem: 'Its arguments are not valid: path: is taken. Required: path. Optional: depth.' },
    });
  });
});

describe('a call that may not run has a problem and no input', () => {
  test('arguments that are no JSON', () => {
    expect(checkCall(toolWith(), '{"path":', false)).toEqual({
      check: { problem: expect.stringContaining('not valid JSON') },
    });
  });

  test('arguments that were cut off', () => {
    expect(checkCall(toolWith(), '{"path":"a",}', true)).toEqual({
      check: { problem: expect.stringContaining('cut off') },
    });
  });

  test('arguments that the schema refuses: each problem, and what there is', () => {
    expect(checkCall(toolWith(), '{"path":7,"depth":"x"}', false)).toEqual({
      check: {
        problem:
          'Its arguments are not valid: path: Invalid input: expected string, received number; ' +
          'depth: Invalid input: expected number, received string. Required: path. Optional: depth.',
      },
    });
  });

  test.each([
    [
      'throws',
      () => {
        throw new Error('ouch');
      },
    ],
    ['gives no list', () => 'abc'],
    ['gives what are no texts', () => [Symbol('s')]],
    ['gives a promise', async () => ['a']],
    ['gives a promise that rejects', () => Promise.reject(new Error('ouch'))],
  ])('resources that %s', async (_, resources) => {
    const checked = await checkCall(toolWith({ resources: resources as never }), '{"path":"a"}', false);
    expect(checked).toEqual({
      check: { problem: expect.stringContaining('What it needs for itself could not be told') },
    });
  });

  test('a description that is odd does not matter', () => {
    const parameters = { type: 'object', properties: null, required: 'path' };
    expect(checkCall(toolWith({ parameters }), '{}', false)).toEqual({
      check: { problem: expect.stringContaining('path: Invalid input') },
    });
  });
});

// ── asWritten ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const called = (text: string, finish: 'tool-calls' | 'length' = 'tool-calls') =>
  scriptedModel([{ calls: [{ name: 'ask', arguments: text }], finish }, { text: 'done' }]);

const ask = tool({
  name: 'ask',
  description: 'Asks the client',
  parameters: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] },
  asWritten: true,
});

test.each(['{"q":1}', '{"q":', '', 'not JSON at all', '[1]'])(
  'a client that reads its arguments itself gets them as the model wrote them: %j',
  async (text) => {
    const { waiting } = await runLoop({ model: called(text), tools: [ask], input: 'go' });
    expect(waiting).toMatchObject([{ type: 'client', call: { arguments: text } }]);
  },
);

test('a call that was cut off is still not handed on', async () => {
  const { waiting, outcome } = await runLoop({ model: called('{"q":', 'length'), tools: [ask], input: 'go' });
  expect(waiting).toEqual([]);
  expect(outcome).toEqual({ type: 'completed' });
});

test('only of a tool that the client executes', () => {
  expect(() => tool({ ...ask, execute: () => '' })).toThrow('Leave out asWritten');
});
