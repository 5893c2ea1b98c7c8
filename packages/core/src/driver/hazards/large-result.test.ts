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

/** A text of 100 MB that really is in memory as one piece. */
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

function heldMegabytes(): number {
  collectGarbage();
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1024 / 1024;
}

describe('a result of 100 MB', () => {
  test.each<[string, NonNullable<ToolDefinition['execute']>]>([
    ['a text', () => large()],
    ['a text, later', async () => large()],
    ['an object', () => ({ text: large() })],
    ['a block', () => ({ content: [{ type: 'text', text: large() }] })],
    ['an error', () => Promise.reject(new Error(large()))],
    [
      'pieces',
      async function* () {
        for (let index = 0; index < 100; index++) yield 'p'.repeat(1024 * 1024);
      },
    ],
  ])('%s: head and tail stay, the rest is let go', async (_, execute) => {
    const before = heldMegabytes();
    const [result, kept] = await run(execute);
    const text = textIn(result);
    expect(text.length).toBeLessThan(15_100);
    expect(text).toMatch(/characters left out …\]\n/);
    expect(result.outcome).toEqual({ type: 'completed' });
    // Everything that a run leaves behind is still here, and none of it holds on to the 100 MB.
    expect(heldMegabytes() - before).toBeLessThan(20);
    expect(JSON.stringify(kept).length).toBeLessThan(100_000);
  });

  test('the measuring would notice: a piece of a text holds on to all of it', () => {
    const before = heldMegabytes();
    const piece = large().slice(0, 1_000);
    expect(heldMegabytes() - before).toBeGreaterThan(90);
    expect(piece).toHaveLength(1_000);
  });

  test('what stays is the beginning and the end', async () => {
    const [result] = await run(() => large(), 100);
    expect(textIn(result)).toBe(
      `head${'m'.repeat(71)}\n[… 104,857,500 of 104,857,600 characters left out …]\n${'m'.repeat(21)}tail`,
    );
  });
});

test('the result of a client is held to the same size', async () => {
  const { append, read } = memoryJournal();
  const journal = { append, read };
  const big = tool({ name: 'big', description: 'x' });
  using model = scriptedModel([{ calls: [{ name: 'big' }] }, 'done']);
  const options = { model, tools: [big], journal, runId: 'r' };
  const { waiting } = await runLoop({ ...options, input: 'go', maxResultChars: 100 });
  const content = 'x'.repeat(1_000_000);
  const result = await runLoop({
    ...options,
    answers: [{ type: 'client-result', effect: waiting[0]!.effect, content }],
  });
  expect(textIn(result).length).toBeLessThan(200);
});

test('a picture is not cut', async () => {
  const image = {
    type: 'image',
    mediaType: 'image/png',
    source: { type: 'data', data: 'A'.repeat(1_000_000) },
  } as const;
  const [{ messages }] = await run(() => ({ content: [image] }));
  expect((messages[2] as ToolMessage).content[0]!.content).toEqual([image]);
});
