import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test, vi } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import { textOf, type ToolMessage } from '../../messages.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool, type ToolDefinition } from '../../tools/tool.ts';
import type { LoopResult } from '../options.ts';
import { runLoop } from '../run.ts';

vi.setConfig({ testTimeout: 60_000 });

setFlagsFromString('--expose_gc');
const collectGarbage = runInNewContext('gc') as () => void;

const HUNDRED_MB = 100 * 1024 * 1024;

/** A text of 100 MB. Reading a character makes V8 store it as one flat string. */
function large(): string {
  const text = `head${'m'.repeat(HUNDRED_MB - 8)}tail`;
  expect(text.charCodeAt(HUNDRED_MB - 1)).toBe('l'.charCodeAt(0));
  return text;
}

async function run(execute: ToolDefinition['execute'], maxResultChars = 15_000): Promise<[LoopResult, unknown]> {
  const { append, read } = memoryJournal();
  const journal = { append, read };
  using model = scriptedModel([{ calls: [{ name: 'big' }] }, 'done']);
  const big = tool({ name: 'big', description: 'x', ...(execute && { execute }) });
  const result = await runLoop({ model, tools: [big], input: 'go', journal, runId: 'r', maxResultChars });
  return [result, [await journal.read('r'), model.requests]];
}

function textIn({ messages }: LoopResult): string {
  return textOf((messages[2] as ToolMessage).content[0]!.content);
}

function retainedMegabytes(): number {
  collectGarbage();
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1024 / 1024;
}

describe('a result of 100 MB', () => {
  test.each<[string, NonNullable<ToolDefinition['execute']>]>([
    ['a text', () => large()],
    ['a text, asynchronously', async () => large()],
    ['an object', () => ({ text: large() })],
    ['a content block', () => ({ content: [{ type: 'text', text: large() }] })],
    ['an error', () => Promise.reject(new Error(large()))],
    [
      'an async iterable',
      async function* () {
        for (let index = 0; index < 100; index++) yield 'p'.repeat(1024 * 1024);
      },
    ],
  ])('%s: keeps head and tail, and frees the rest', async (_, execute) => {
    const before = retainedMegabytes();
    const [result, retained] = await run(execute);
    const text = textIn(result);
    expect(text.length).toBeLessThan(15_100);
    expect(text).toMatch(/characters left out …\]\n/);
    expect(result.outcome).toEqual({ type: 'completed' });
    // The result, the journal and the requests are still reachable, and do not retain the 100 MB.
    expect(retainedMegabytes() - before).toBeLessThan(20);
    expect(JSON.stringify(retained).length).toBeLessThan(100_000);
  });

  test('the measurement detects a slice, which retains the whole text', () => {
    const before = retainedMegabytes();
    const piece = large().slice(0, 1_000);
    expect(retainedMegabytes() - before).toBeGreaterThan(90);
    expect(piece).toHaveLength(1_000);
  });

  test('the result has the beginning and the end', async () => {
    const [result] = await run(() => large(), 100);
    expect(textIn(result)).toBe(
      `head${'m'.repeat(71)}\n[… 104,857,500 of 104,857,600 characters left out …]\n${'m'.repeat(21)}tail`,
    );
  });
});

test('cuts the result of a client tool', async () => {
  const { append, read } = memoryJournal();
  const journal = { append, read };
  const big = tool({ name: 'big', description: 'x' });
  using model = scriptedModel([{ calls: [{ name: 'big' }] }, 'done']);
  const options = { model, tools: [big], journal, runId: 'r' };
  const { waiting } = await runLoop({ ...options, input: 'go', maxResultChars: 100 });
  const content = 'x'.repeat(1_000_000);
  const result = await runLoop({
    ...options,
    answers: [{ type: 'result', effect: waiting[0]!.effect, content }],
  });
  expect(textIn(result).length).toBeLessThan(200);
});

test('does not cut an image', async () => {
  const image = {
    type: 'image',
    mediaType: 'image/png',
    source: { type: 'data', data: 'A'.repeat(1_000_000) },
  } as const;
  const [{ messages }] = await run(() => ({ content: [image] }));
  expect((messages[2] as ToolMessage).content[0]!.content).toEqual([image]);
});
