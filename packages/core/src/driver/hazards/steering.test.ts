import { describe, expect, test } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import { textOf, userText, type UserMessage } from '../../messages.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import { answer } from '../make-answer.ts';
import type { LoopResult } from '../options.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop, startLoop, streamLoop } from '../run.ts';

const TWO_TURNS = [{ calls: [{ name: 'look' }] }, 'done'];

const look = tool({ name: 'look', description: 'x', execute: async () => 'seen' });

function conversationIn({ messages }: LoopResult): string[] {
  return messages.map(({ role, content }) => (role === 'tool' ? 'tool' : `${role}: ${textOf(content)}`));
}

test('adds input that a listener sends at any item at the next turn', async () => {
  const turns: number[] = [];
  const runAndSend = async (sendAt: number): Promise<number> => {
    let seen = 0;
    let sent: Promise<boolean> | undefined;
    const journal = memoryJournal();
    const model = scriptedModel([{ text: 'let me see', calls: [{ name: 'look' }] }, 'done', 'done again']);
    const live = streamLoop({
      model,
      tools: [look],
      input: 'go',
      journal,
      runId: 'r',
      onItem: () => {
        if (seen++ === sendAt) sent = live.send('one more thing');
      },
    });
    const result = await live.result;
    const added = conversationIn(result).includes('user: one more thing');
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(added).toBe((await sent) ?? false);
    expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
    if (added) turns.push(result.turns);
    return seen;
  };
  const all = await runAndSend(Infinity);
  for (let at = 0; at < all; at++) await runAndSend(at);
  expect(turns.length).toBeGreaterThan(all / 2);
  expect(new Set(turns)).toEqual(new Set([2, 3]));
});

test('ends at maxTurns if a listener sends input in every turn', async () => {
  const model = scriptedModel(Array.from({ length: 5 }, (_, turn) => `reply ${turn}`));
  const live = streamLoop({
    model,
    input: 'go',
    maxTurns: 5,
    onItem: (item) => {
      if (item.type === 'turn-started') void live.send(`after turn ${item.turn}`);
    },
  });
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'exhausted', limit: 'turns' });
  expect(conversationIn(result).at(-1)).toBe('user: after turn 5');
});

test('adds all input that a listener sends for each input-added event to one turn', async () => {
  const sent: Promise<boolean>[] = [];
  const model = scriptedModel(['done', 'done']);
  const live = streamLoop({
    model,
    input: 'go',
    onItem: (item) => {
      if (item.type === 'turn-started' && sent.length === 0) sent.push(live.send('0'));
      if (item.type === 'fact' && item.event.type === 'input-added' && sent.length < 1_000)
        sent.push(live.send(String(sent.length)));
    },
  });
  const result = await live.result;
  expect(await Promise.all(sent)).toEqual(Array(1_000).fill(true));
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 2 });
  expect(result.messages).toHaveLength(1_003);
});

test('accepts input before the run has started, and refuses it after the end', async () => {
  using model = scriptedModel(['done', 'done with both']);
  const live = streamLoop({ model, input: 'go' });
  expect(await live.send('and this')).toBe(true);
  const result = await live.result;
  expect(conversationIn(result)).toEqual([
    'user: go',
    'assistant: done',
    'user: and this',
    'assistant: done with both',
  ]);
  expect(await live.send('too late')).toBe(false);
});

test('refuses input to a cancelled run', async () => {
  const live = streamLoop({ model: scriptedModel([() => new Promise(() => {})]), input: 'go' });
  await new Promise((resolve) => setTimeout(resolve, 1));
  live.cancel();
  expect(await live.send('too late')).toBe(false);
  expect(conversationIn(await live.result)).toEqual(['user: go']);
});

describe('refuses what does not apply before the run is opened, as it does later', () => {
  const options = { input: 'go', runId: 'r', resume: 'auto' } as const;

  test('a run that has ended', async () => {
    const journal = memoryJournal();
    await runLoop({ ...options, model: scriptedModel(['done']), journal });
    const entries = await journal.read('r');
    const live = startLoop({ ...options, model: scriptedModel([]), journal });
    const said = Promise.all([live.send('one more thing'), live.liftNarrowing('ann'), live.changeTools([look])]);
    expect(await said).toEqual([false, false, false]);
    expect((await live.result).text).toBe('done');
    expect(await journal.read('r')).toEqual(entries);
  });

  test('a run that was cancelled just before', async () => {
    const live = startLoop({ ...options, model: scriptedModel([]), journal: memoryJournal() });
    const before = live.send('in time');
    live.cancel();
    const after = live.send('too late');
    expect([await before, await after]).toEqual([true, false]);
    expect((await live.result).outcome).toMatchObject({ type: 'cancelled' });
  });

  test('a run that is not narrowed', async () => {
    const live = startLoop({ ...options, model: scriptedModel(['done']), journal: memoryJournal() });
    expect(await live.liftNarrowing('ann')).toBe(false);
    await live.result;
  });

  test('tools that the run cannot use are refused, and the run continues', async () => {
    const live = startLoop({
      ...options,
      toolChoice: 'required',
      tools: [look],
      model: scriptedModel(TWO_TURNS),
      journal: memoryJournal(),
    });
    await expect(live.changeTools([])).rejects.toMatchObject({ code: 'invalid-options' });
    expect((await live.result).outcome).toEqual({ type: 'completed' });
  });
});

test('an answer before the paused run is opened is recorded when it is', async () => {
  const journal = memoryJournal();
  const pick = tool({ name: 'pick', description: 'x' });
  const options = { journal, runId: 'r', tools: [pick] };
  const { waiting } = await runLoop({ ...options, input: 'go', model: scriptedModel([{ calls: [{ name: 'pick' }] }]) });
  const live = startLoop({ ...options, model: scriptedModel(['done']) });
  await live.answer(answer(waiting[0]!, 'this one'));
  await expect(live.answer(answer(waiting[0]!, 'that one'))).rejects.toMatchObject({ code: 'answer-unfit' });
  expect((await live.result).text).toBe('done');
});

test('refuses input to a run that could not be resumed', async () => {
  const live = streamLoop({ model: scriptedModel([]), journal: memoryJournal(), runId: 'unknown', answers: [] });
  await expect(live.result).rejects.toMatchObject({ code: 'unknown-run' });
  expect(await live.send('hello?')).toBe(false);
});

describe('rejects invalid input, and the run continues', () => {
  const cycle: Record<string, unknown> = { type: 'video' };
  cycle['self'] = cycle;
  test.each<[string, unknown]>([
    ['undefined', undefined],
    ['null', null],
    ['a number', 7],
    ['an assistant message', { role: 'assistant', content: [{ type: 'text', text: 'I said' }] }],
    ['a tool message', { role: 'tool', content: [] }],
    ['a message without content', { role: 'user' }],
    ['a number as content', { role: 'user', content: 7 }],
    ['null as a content block', { role: 'user', content: [null] }],
    ['a text block without text', { role: 'user', content: [{ type: 'text' }] }],
    ['a cycle', { role: 'user', content: [cycle] }],
  ])('%s', async (_, input) => {
    const errors: unknown[] = [];
    using model = scriptedModel(['done']);
    const live = streamLoop({
      model,
      input: 'go',
      onItem: (item) => {
        if (item.type === 'turn-started') live.send(input as UserMessage).catch((error) => errors.push(error));
      },
    });
    const result = await live.result;
    expect(errors).toEqual([expect.objectContaining({ code: 'invalid-input' })]);
    expect(result.messages).toHaveLength(2);
    expect(result.outcome).toEqual({ type: 'completed' });
  });
});

test('rejects an invalid client result, and accepts a valid one later', async () => {
  const journal = memoryJournal();
  const client = tool({ name: 'client', description: 'x' });
  using model = scriptedModel([{ calls: [{ name: 'client' }] }, 'done']);
  const options = { model, tools: [client], journal, runId: 'r' };
  const { waiting } = await runLoop({ ...options, input: 'go' });
  const { effect } = waiting[0]!;
  for (const content of [undefined, null, 7, [null], [{ type: 'text' }], {}]) {
    const answer = { type: 'result', effect, content: content as unknown as string } as const;
    await expect(runLoop({ ...options, answers: [answer] })).rejects.toMatchObject({ code: 'answer-unfit' });
  }
  const result = await runLoop({ ...options, answers: [{ type: 'result', effect, content: 'here' }] });
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('rejects an answer to a run object that has paused', async () => {
  const client = tool({ name: 'client', description: 'x' });
  const live = streamLoop({ model: scriptedModel([{ calls: [{ name: 'client' }] }]), tools: [client], input: 'go' });
  const { waiting } = await live.result;
  const answer = { type: 'result', effect: waiting[0]!.effect, content: 'here' } as const;
  await expect(live.answer(answer)).rejects.toThrow(expect.objectContaining({ code: 'answer-unfit' }));
});

test('does not pause if a listener answers at once', async () => {
  const client = tool({ name: 'client', description: 'x' });
  using model = scriptedModel([{ calls: [{ name: 'client' }] }, 'done']);
  const live = streamLoop({
    model,
    tools: [client],
    input: 'go',
    onItem: (item) => {
      if (item.type !== 'fact' || item.event.type !== 'model-replied' || item.event.checks.length === 0) return;
      void live.answer({ type: 'result', effect: 't1.client.0', content: 'here' });
    },
  });
  const result = await live.result;
  expect(result).toMatchObject({ outcome: { type: 'completed' }, waiting: [] });
  expect(result.messages[2]).toMatchObject({ content: [{ content: [{ text: 'here' }] }] });
  expect(result.messages[0]).toEqual(userText('go'));
});
