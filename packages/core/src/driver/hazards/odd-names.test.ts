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
  const real = tool({ name: 'real', description: 'x', execute: () => 'ran', ...definition });
  const result = await runLoop({ model, tools: [real], input: 'go', journal, runId: 'r' });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(replay(JSON.parse(JSON.stringify(await journal.read('r'))))).toMatchObject({ type: 'replayed' });
  return result;
}

describe('names of members of Object.prototype', () => {
  test.each(MEMBERS)('a call of %s is a call of an unknown tool', async (name) => {
    expect(firstResult(await callOnce(name, '{}'))).toEqual({
      text: `There is no tool "${name}". Available tools: real. Use one of them, or answer without a tool.`,
      isError: true,
    });
  });

  test.each(MEMBERS)('a tool may be named %s', async (name) => {
    expect(firstResult(await callOnce(name, '{}', { name }))).toEqual({ text: 'ran', isError: false });
  });

  test.each(MEMBERS)('rejects %s in toolChoice and allowedTools if there is no such tool', async (name) => {
    const options = { model: scriptedModel([]), tools: [], input: 'go' };
    await expect(runLoop({ ...options, toolChoice: { tool: name } })).rejects.toMatchObject({
      code: 'invalid-options',
    });
    await expect(runLoop({ ...options, allowedTools: [name] })).rejects.toMatchObject({ code: 'invalid-options' });
  });

  test.each(MEMBERS)('a run may have the id %s', async (runId) => {
    const journal = memoryJournal();
    using model = scriptedModel(['done']);
    await runLoop({ model, input: 'go', journal, runId });
    expect(await journal.read(runId)).toHaveLength(2);
  });

  test.each(['', ' ', 'real\0', 'REAL', 'réal', 'real ', '🧵', 'x'.repeat(100_000)])(
    'a call of %j is a call of an unknown tool',
    async (name) => {
      expect(firstResult(await callOnce(name, '{}'))).toMatchObject({ isError: true });
    },
  );
});

describe('arguments with __proto__ and constructor', () => {
  const poison = '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"a":1}';

  test.each<[string, Partial<ToolDefinition>]>([
    ['JSON Schema', { input: { type: 'object', properties: { a: { type: 'number' } } } }],
    ['zod', { input: z.object({ a: z.number() }) as never }],
    ['zod with additional properties', { input: z.looseObject({ a: z.number() }) as never }],
    ['no schema', {}],
  ])('change no prototype with %s', async (_, definition) => {
    let received: Record<string, unknown> | undefined;
    const result = await callOnce('real', poison, {
      ...definition,
      execute: (input: Record<string, unknown>) => {
        received = input;
        return 'ran';
      },
    });
    expect(firstResult(result)).toEqual({ text: 'ran', isError: false });
    expect(received!['a']).toBe(1);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    expect(received!['polluted']).toBeUndefined();
    expect(Object.getPrototypeOf(received)).toBe(Object.prototype);
  });

  test('are refused by name if the schema allows no additional properties', async () => {
    const result = await callOnce('real', poison, {
      input: { type: 'object', properties: { a: { type: 'number' } }, additionalProperties: false },
    });
    expect(firstResult(result).isError).toBe(true);
    expect(firstResult(result).text).toContain('__proto__: is not expected here');
    expect(firstResult(result).text).toContain('constructor: is not expected here');
  });

  test('do not satisfy a required property by a member of Object.prototype', async () => {
    const result = await callOnce('real', '{}', {
      input: { type: 'object', properties: { toString: { type: 'string' } }, required: ['toString'] },
    });
    expect(firstResult(result).isError).toBe(true);
  });
});

describe('lone surrogates', () => {
  const SURROGATES = ['\ud83e', '\udff5', 'a\ud800b', '\udc00\ud800', '🧵\ud83e'];

  test.each(SURROGATES)('%j is kept in the input, the replies and the results', async (lone) => {
    const journal = memoryJournal();
    using model = scriptedModel([{ text: lone, calls: [{ name: 'real', arguments: { text: lone } }] }, lone]);
    let received: unknown;
    const real = tool({
      name: 'real',
      description: lone,
      input: { type: 'object', properties: { text: { type: 'string' } } },
      execute: ({ text }) => {
        received = text;
        return lone;
      },
    });
    const result = await runLoop({ model, instructions: lone, tools: [real], input: lone, journal, runId: 'r' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: lone });
    expect(received).toBe(lone);
    expect(firstResult(result)).toEqual({ text: lone, isError: false });
    const entries = await journal.read('r');
    const stored = JSON.parse(JSON.stringify(entries));
    expect(stored).toEqual(entries);
    expect(replay(stored)).toMatchObject({ type: 'replayed' });
  });

  test('are kept in the arguments', async () => {
    let received: unknown;
    await callOnce('real', '{"text":"\ud83e"}', { execute: (input) => void (received = input) });
    expect(received).toEqual({ text: '\ud83e' });
  });

  test.each([
    ['without a journal', {}],
    ['with a journal', { journal: memoryJournal() }],
  ])('are rejected in a run id, %s, before anything is executed', async (_, options) => {
    const model = scriptedModel([]);
    await expect(runLoop({ ...options, model, input: 'go', runId: 'a\ud800' })).rejects.toMatchObject({
      code: 'invalid-input',
      message: 'The run id "a\\ud800" has an unpaired surrogate. Choose another one.',
    });
    expect(model.requests).toEqual([]);
  });

  test('are not created when a result is cut', async () => {
    for (let maxResultChars = 1; maxResultChars < 20; maxResultChars++) {
      using model = scriptedModel([{ calls: [{ name: 'real' }] }, 'done']);
      const real = tool({ name: 'real', description: 'x', execute: () => '🧵'.repeat(50) });
      const result = await runLoop({ model, tools: [real], input: 'go', maxResultChars });
      expect(firstResult(result).text.isWellFormed()).toBe(true);
    }
  });
});

test('replaces tool names that providers reject in the history', async () => {
  const names = ['', 'read file!', 'x'.repeat(80), 'ünï'];
  const model = scriptedModel([{ calls: names.map((name) => ({ name })) }, 'Done.']);
  const result = await runLoop({ model, input: 'go' });
  const called = result.messages.flatMap(({ role, content }) =>
    role === 'assistant' ? content.flatMap((part) => (part.type === 'tool-call' ? part.name : [])) : [],
  );
  expect(called).toEqual(['unnamed', 'read_file_', 'x'.repeat(64), '_n_']);
});
