import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { memoryJournal } from '../../journal/memory.ts';
import { textOf, type ToolMessage } from '../../messages.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool, type ToolDefinition } from '../../tools/tool.ts';
import type { LoopResult } from '../options.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop } from '../run.ts';

const MEMBERS = ['constructor', 'toString', '__proto__', 'hasOwnProperty', 'valueOf', '__defineGetter__'];

function firstResult({ messages }: LoopResult): { text: string; isError: boolean } {
  const [result] = (messages[2] as ToolMessage).content;
  return { text: textOf(result!.content), isError: result!.isError };
}

async function callOnce(name: string, text: string, definition: Partial<ToolDefinition> = {}): Promise<LoopResult> {
  const journal = memoryJournal();
  using model = scriptedModel([{ calls: [{ name, arguments: text }] }, 'done']);
  const made = tool({ name: 'real', description: 'x', execute: () => 'ran', ...definition });
  const result = await runLoop({ model, tools: [made], input: 'go', journal, runId: 'r' });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(replay(JSON.parse(JSON.stringify(await journal.read('r'))))).toMatchObject({ type: 'replayed' });
  return result;
}

describe('names that every object knows', () => {
  test.each(MEMBERS)('called as a tool, %s is not one', async (name) => {
    expect(firstResult(await callOnce(name, '{}'))).toEqual({
      text: `There is no tool "${name}". Available tools: real. Use one of them, or answer without a tool.`,
      isError: true,
    });
  });

  test.each(MEMBERS)('a tool of the name %s is one like any other', async (name) => {
    expect(firstResult(await callOnce(name, '{}', { name }))).toEqual({ text: 'ran', isError: false });
  });

  test.each(MEMBERS)('named in toolChoice or allowedTools, %s is unknown', async (name) => {
    const options = { model: scriptedModel([]), tools: [], input: 'go' };
    await expect(runLoop({ ...options, toolChoice: { tool: name } })).rejects.toMatchObject({
      code: 'invalid-options',
    });
    await expect(runLoop({ ...options, allowedTools: [name] })).rejects.toMatchObject({ code: 'invalid-options' });
  });

  test.each(MEMBERS)('a run of the name %s is one like any other', async (runId) => {
    const journal = memoryJournal();
    using model = scriptedModel(['done']);
    await runLoop({ model, input: 'go', journal, runId });
    expect(await journal.read(runId)).toHaveLength(2);
  });

  test.each(['', ' ', 'real\0', 'REAL', 'réal', 'real ', '🧵', 'x'.repeat(100_000)])(
    'nor is %j a tool',
    async (name) => {
      expect(firstResult(await callOnce(name, '{}'))).toMatchObject({ isError: true });
    },
  );
});

describe('arguments that mean to change more than they should', () => {
  const poison = '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"a":1}';

  test.each<[string, Partial<ToolDefinition>]>([
    ['JSON Schema', { input: { type: 'object', properties: { a: { type: 'number' } } } }],
    ['zod', { input: z.object({ a: z.number() }) as never }],
    ['zod that lets more through', { input: z.looseObject({ a: z.number() }) as never }],
    ['no schema', {}],
  ])('with %s they change nothing', async (_, definition) => {
    let given: Record<string, unknown> | undefined;
    const result = await callOnce('real', poison, {
      ...definition,
      execute: (input: Record<string, unknown>) => {
        given = input;
        return 'ran';
      },
    });
    expect(firstResult(result)).toEqual({ text: 'ran', isError: false });
    expect(given!['a']).toBe(1);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    expect(given!['polluted']).toBeUndefined();
    expect(Object.getPrototypeOf(given)).toBe(Object.prototype);
  });

  test('a schema that allows nothing more refuses them by name', async () => {
    const result = await callOnce('real', poison, {
      input: { type: 'object', properties: { a: { type: 'number' } }, additionalProperties: false },
    });
    expect(firstResult(result).isError).toBe(true);
    expect(firstResult(result).text).toContain('__proto__: is not expected here');
    expect(firstResult(result).text).toContain('constructor: is not expected here');
  });

  test('what is required is not found on every object', async () => {
    const result = await callOnce('real', '{}', {
      input: { type: 'object', properties: { toString: { type: 'string' } }, required: ['toString'] },
    });
    expect(firstResult(result).isError).toBe(true);
  });
});

describe('halves of characters', () => {
  const HALVES = ['\ud83e', '\udff5', 'a\ud800b', '\udc00\ud800', '🧵\ud83e'];

  test.each(HALVES)('in what the user says, the model replies and the tool gives: %j', async (half) => {
    const journal = memoryJournal();
    using model = scriptedModel([{ text: half, calls: [{ name: 'real', arguments: { text: half } }] }, half]);
    let given: unknown;
    const real = tool({
      name: 'real',
      description: half,
      input: { type: 'object', properties: { text: { type: 'string' } } },
      execute: ({ text }) => {
        given = text;
        return half;
      },
    });
    const result = await runLoop({ model, instructions: half, tools: [real], input: half, journal, runId: 'r' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: half });
    expect(given).toBe(half);
    expect(firstResult(result)).toEqual({ text: half, isError: false });
    const entries = await journal.read('r');
    const kept = JSON.parse(JSON.stringify(entries));
    expect(kept).toEqual(entries);
    expect(replay(kept)).toMatchObject({ type: 'replayed' });
  });

  test('bare in the arguments', async () => {
    let given: unknown;
    await callOnce('real', '{"text":"\ud83e"}', { execute: (input) => void (given = input) });
    expect(given).toEqual({ text: '\ud83e' });
  });

  test('none are made where a result is cut', async () => {
    for (let most = 1; most < 20; most++) {
      using model = scriptedModel([{ calls: [{ name: 'real' }] }, 'done']);
      const real = tool({ name: 'real', description: 'x', execute: () => '🧵'.repeat(50) });
      const result = await runLoop({ model, tools: [real], input: 'go', maxResultChars: most });
      expect(firstResult(result).text.isWellFormed()).toBe(true);
    }
  });
});
