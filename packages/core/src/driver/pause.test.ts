import { describe, expect, test, vi } from 'vitest';
import { memoryJournal } from '../journal/memory.ts';
import type { Item } from '../journal/items.ts';
import type { Message } from '../messages.ts';
import { scriptedModel } from '../testing/index.ts';
import { Parked } from '../tools/result.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { answer, approve, deny } from './make-answer.ts';
import type { LoopOptions, LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });
const locate = tool({ name: 'locate', description: 'Locates' });
const ask = tool({
  name: 'ask',
  description: 'Asks',
  execute: async (_, context) => `It is ${String(await context.ask({ prompt: 'Which?' }))}.`,
});
const park = tool({ name: 'park', description: 'Parks', execute: () => new Parked('door/1') });

/** A run that pauses for a call of the tool. */
function pausing(one: Tool): LoopOptions & { readonly runId: string } {
  const model = scriptedModel([{ calls: [{ name: one.name }] }, 'Done.']);
  return { model, tools: [one], runId: 'run', input: 'Go.' };
}

const withJournal = (one: Tool) => ({ ...pausing(one), journal: memoryJournal() });

async function itemsOf(live: AsyncIterable<Item>): Promise<readonly Item[]> {
  const items: Item[] = [];
  for await (const item of live) items.push(item);
  return items;
}

function resultsIn(messages: readonly Message[]): readonly unknown[] {
  return messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => content) : []));
}

describe('the stream', () => {
  test('ends with what the run waits for', async () => {
    const options = withJournal(pay);
    const live = streamLoop(options);
    const items = await itemsOf(live);
    const { waiting, wakeAt } = await live.result;
    expect(waiting).toMatchObject([{ type: 'approval', call: { name: 'pay' } }]);
    expect(items.at(-1)).toEqual({ type: 'waiting', waiting, wakeAt });
    const { input: _, ...same } = options;
    const resumed = await itemsOf(streamLoop({ ...same, answers: waiting.map((wait) => approve(wait)) }));
    expect(resumed.filter(({ type }) => type === 'waiting')).toEqual([]);
  });

  test('has no such item if the run is answered before it pauses', async () => {
    const seen: Item[] = [];
    const live = streamLoop({
      ...pausing(pay),
      onItem: (item) => void seen.push(item),
      beforePause: async ([wait]) => live.answer(approve(wait!)),
    });
    expect((await live.result).text).toBe('Done.');
    expect(seen.some(({ type }) => type === 'waiting')).toBe(false);
  });
});

test('a pause without a journal is a warning, once', async () => {
  const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
  const lost = tool({ name: 'lost', description: '' });
  await runLoop(withJournal(lost));
  expect(warn).not.toHaveBeenCalled();
  await runLoop(pausing(lost));
  await runLoop({ ...pausing(lost), runId: 'other' });
  const text =
    /^A run has paused and waits for: client \(lost\)\. It has no journal, .* Pass "journal", .* "beforePause"\.$/;
  expect(warn.mock.calls).toEqual([[expect.stringMatching(text), 'TreadleWarning']]);
  warn.mockRestore();
});

describe('answers are made from what a run waits for', () => {
  async function resumed(
    one: Tool,
    answerTo: (wait: LoopResult['waiting'][number]) => ReturnType<typeof approve>,
  ): Promise<LoopResult> {
    const { input, ...options } = withJournal(one);
    const { waiting } = await runLoop({ ...options, input });
    return runLoop({ ...options, answers: waiting.map(answerTo) });
  }

  test.each<[string, Tool, (wait: LoopResult['waiting'][number]) => ReturnType<typeof approve>, string]>([
    ['approve', pay, (wait) => approve(wait, { by: 'ann' }), 'paid'],
    ['deny', pay, (wait) => deny(wait, 'Too much.'), 'Too much.'],
    ['answer to a question', ask, (wait) => answer(wait, 'blue', { by: 'ann' }), 'It is blue.'],
    ['answer as a client', locate, (wait) => answer(wait, { city: 'Oslo' }), '{\\"city\\":\\"Oslo\\"}'],
    ['answer for a parked call', park, (wait) => answer(wait, 'open'), 'open'],
  ])('%s', async (_, one, answerTo, text) => {
    const { outcome, messages } = await resumed(one, answerTo);
    expect(outcome).toEqual({ type: 'completed' });
    expect(JSON.stringify(resultsIn(messages))).toContain(text);
  });

  test('a result may be an error', async () => {
    const { messages } = await resumed(locate, (wait) => answer(wait, { content: 'No signal.', isError: true }));
    expect(messages.at(-2)).toMatchObject({ content: [{ isError: true, content: [{ text: 'No signal.' }] }] });
  });

  test('one that lacks something says what, and the run stays paused', async () => {
    const { input, ...options } = withJournal(pay);
    const { waiting } = await runLoop({ ...options, input });
    const { effect, ...rest } = approve(waiting[0]!) as { readonly effect: string; readonly digest?: string };
    const { digest: _, ...incomplete } = rest;
    await expect(runLoop({ ...options, answers: [{ effect, ...incomplete } as never] })).rejects.toMatchObject({
      code: 'answer-unfit',
      message: expect.stringContaining(`The answer for "${effect}" lacks "digest". Make it with approve(wait)`),
    });
    expect((await runLoop(options)).waiting).toEqual(waiting);
  });

  test('of the right kind only', async () => {
    const { waiting: asked } = await runLoop(withJournal(pay));
    expect(() => answer(asked[0]!, 'yes')).toThrow(
      'The call of "pay" waits for: approval. Use approve(wait) or deny(wait, reason).',
    );
    const { waiting: called } = await runLoop(withJournal(locate));
    for (const decide of [approve, deny]) {
      expect(() => decide(called[0]!)).toThrow('The call of "locate" waits for: client. Use answer(wait, value).');
    }
  });
});
