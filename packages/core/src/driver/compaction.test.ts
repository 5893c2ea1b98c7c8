import { describe, expect, test } from 'vitest';
import { callEcho, echo } from '../../test/echo.ts';
import type { ModelRequest } from '../model.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

describe('compaction', () => {
  test('keeps the names of the tools that were used in the turns that it replaces', async () => {
    const first = tool({ name: 'first', description: 'First.', execute: () => 'done' });
    const usage = { inputTokens: 90, outputTokens: 10, cost: 0 };
    const model = scriptedModel([{ calls: [{ name: 'first' }] }, callEcho('b'), { ...callEcho('c'), usage }, 'Done.']);
    const { toolsUsed, messages } = await runLoop({
      model,
      summariser: summariserModel(),
      tools: [echo, first],
      input: 'the task',
      compaction: { tokens: 100, keepTurns: 1 },
    });
    expect(JSON.stringify(messages)).not.toContain('"first"');
    expect(toolsUsed).toEqual(['echo', 'first']);
  });

  const summariserModel = (): ReturnType<typeof scriptedModel> => scriptedModel(['They said a and b.']);

  test('replaces whole turns by a summary before the model is called, from a number of tokens on', async () => {
    const summariser = summariserModel();
    const journal = memoryJournal();
    const usage = { inputTokens: 90, outputTokens: 10, cost: 0 };
    using model = scriptedModel([callEcho('a'), callEcho('b'), { ...callEcho('c'), usage }, 'Done.']);
    const result = await runLoop({
      model,
      summariser,
      tools: [echo],
      input: 'the task',
      journal,
      runId: 'r',
      compaction: { tokens: 100, keepTurns: 1 },
    });
    summariser.assertDone();
    expect(result.outcome).toEqual({ type: 'completed' });
    const last = model.requests.at(-1)!.messages;
    expect(last[0]).toMatchObject({ role: 'user', content: [{ text: 'the task' }] });
    expect(JSON.stringify(last[1])).toContain('They said a and b.');
    expect(allCallsAnswered(model.requests)).toBe(true);
    expect(result.usage.inputTokens).toBe(10 + 10 + 90 + 10 + 10);
    const facts = (await journal.read('r')).map(({ event }) => event.type);
    expect(facts.filter((type) => type === 'history-compacted')).toHaveLength(1);
    expect(facts.filter((type) => type === 'tool-settled')).toHaveLength(3);
  });

  test('replaces turns once a turn after the model rejected the history as too long, then fails the run', async () => {
    const tooLong = {
      type: 'failure',
      error: { code: 'context-length', message: 'too long', retryable: false },
    } as const;
    const summariser = summariserModel();
    using model = scriptedModel([callEcho('a'), callEcho('b'), tooLong, 'Done.']);
    const options = { tools: [echo], input: 'the task', compaction: { keepTurns: 1 } };
    expect((await runLoop({ ...options, model, summariser })).outcome).toEqual({ type: 'completed' });
    expect(allCallsAnswered(model.requests)).toBe(true);
    using again = scriptedModel([callEcho('a'), callEcho('b'), tooLong, tooLong]);
    const failed = await runLoop({ ...options, model: again, summariser: summariserModel() });
    expect(failed.outcome).toEqual({ type: 'failed', error: { code: 'context-length', message: 'too long' } });
    using without = scriptedModel([callEcho('a'), callEcho('b'), tooLong]);
    expect((await runLoop({ ...options, compaction: false, model: without })).outcome).toMatchObject({
      type: 'failed',
    });
  });
});

/** Whether the results follow each message with calls, in every request. */
function allCallsAnswered(requests: readonly ModelRequest[]): boolean {
  return requests.every(({ messages }) =>
    messages.every((message, index) => {
      const calls =
        message.role === 'assistant' ? message.content.filter(({ type }) => type === 'tool-call').length : 0;
      const next = messages[index + 1];
      return calls === 0 || (next?.role === 'tool' && next.content.length === calls);
    }),
  );
}

test('ignores a summary that is longer than the messages it replaces', async () => {
  const usage = { inputTokens: 900, outputTokens: 100, cost: 0 };
  const model = scriptedModel([callEcho('a'), callEcho('b'), { ...callEcho('c'), usage }, 'Done.']);
  const summariser = scriptedModel(['so '.repeat(5_000)]);
  const compaction = { tokens: 900, keepTurns: 1 };
  const result = await runLoop({ model, summariser, tools: [echo], input: 'go', compaction });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(JSON.stringify(result.messages)).not.toContain('so so');
});
