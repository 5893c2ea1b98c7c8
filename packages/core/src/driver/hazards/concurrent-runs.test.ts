import { expect, test } from 'vitest';
import { resultTexts } from '../../../test/results.ts';
import { memoryJournal } from '../../journal/memory.ts';
import { textOf } from '../../messages.ts';
import type { Model, ModelReply } from '../../model.ts';
import { tool } from '../../tools/tool.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop } from '../run.ts';

const USAGE = { inputTokens: 1, outputTokens: 1 };

/** Waits differently for each number, so that runs overtake each other. */
function pause(n: number): Promise<void> {
  return n % 3 === 0 ? Promise.resolve() : new Promise((resolve) => setImmediate(resolve));
}

const model: Model = {
  id: 'm',
  async reply({ messages, key }, emit) {
    const name = textOf(messages[0]!.content);
    await pause(Number(name));
    emit({ type: 'text-delta', text: name });
    const turn = (messages.length + 1) / 2;
    expect(key).toBe(`run${name}/t${turn}.model.0`);
    const base = { type: 'reply', usage: USAGE, model: 'm' } as const;
    if (turn === 4) return { ...base, content: [{ type: 'text', text: `answer ${name}` }], finish: 'stop' };
    const content = ['a', 'b'].map((id) => ({
      type: 'tool-call',
      id,
      name: 'echo',
      arguments: `{"n":"${name}.${turn}.${id}"}`,
    }));
    return { ...base, content, finish: 'tool-calls' } as ModelReply;
  },
};

const echo = tool({
  name: 'echo',
  description: 'x',
  input: { type: 'object', properties: { n: { type: 'string' } } },
  execute: async ({ n }, { context, key }) => {
    await pause(String(n).length);
    return `${String(n)} ${String(context)} ${key}`;
  },
});

test('keeps 1,000 concurrent runs with the same journal, model and tool apart', async () => {
  const journal = memoryJournal();
  const names = Array.from({ length: 1_000 }, (_, index) => String(index));
  const deltas = new Map<string, Set<string>>();
  const results = await Promise.all(
    names.map((name) =>
      runLoop({
        model,
        tools: [echo],
        input: name,
        context: `context${name}`,
        journal,
        runId: `run${name}`,
        onItem: (item) => {
          if (item.type === 'text-delta') deltas.set(name, (deltas.get(name) ?? new Set()).add(item.text));
        },
      }),
    ),
  );
  for (const [index, result] of results.entries()) {
    const name = String(index);
    expect(result).toMatchObject({
      runId: `run${name}`,
      outcome: { type: 'completed' },
      text: `answer ${name}`,
      turns: 4,
      calls: 6,
    });
    const expected = [1, 2, 3].flatMap((turn) =>
      ['a', 'b'].map((id, call) => `${name}.${turn}.${id} context${name} run${name}/t${turn}.tool.${call}`),
    );
    expect(resultTexts(result)).toEqual(expected);
    expect(deltas.get(name)).toEqual(new Set([name]));
  }
  for (const name of ['0', '1', '499', '999']) {
    const entries = await journal.read(`run${name}`);
    expect(entries).toHaveLength(11);
    expect(replay(entries)).toMatchObject({ type: 'replayed', state: { runId: `run${name}` } });
  }
});

test('rejects starting a run twice under the same id', async () => {
  const journal = memoryJournal();
  const start = (): Promise<unknown> =>
    runLoop({ model, tools: [echo], input: '0', context: 'x', journal, runId: 'run0' });
  const outcomes = await Promise.allSettled([start(), start(), start()]);
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected', 'rejected']);
  await expect(start()).rejects.toMatchObject({ code: expect.stringMatching(/^run-/) });
  expect(replay(await journal.read('run0'))).toMatchObject({ type: 'replayed' });
});
