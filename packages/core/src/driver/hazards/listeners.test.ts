/* oxlint-disable unicorn/no-thenable -- what only resembles a promise is the subject here */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import type { ToolMessage } from '../../messages.ts';
import type { Policy } from '../../policy/port.ts';
import { manualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import type { StandardSchema } from '../../tools/schema.ts';
import { tool, type ToolDefinition } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import type { LoopOptions, LoopResult } from '../options.ts';
import { waiting } from '../../machine/effects.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop, streamLoop } from '../run.ts';

const unhandled: unknown[] = [];
const note = (reason: unknown): void => void unhandled.push(reason);
beforeAll(() => void process.on('unhandledRejection', note));
afterAll(() => void process.off('unhandledRejection', note));

const look = tool({ name: 'look', description: 'x', execute: async (_, { report }) => (report('half'), 'seen') });
const ouch = (): never => {
  throw new Error('ouch');
};
const rejects = async (): Promise<never> => ouch();

const ways: [string, () => never | Promise<never>][] = [
  ['throws', ouch],
  ['rejects', rejects],
  [
    'throws nothing',
    () => {
      throw undefined;
    },
  ],
];

async function settled(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 5));
}

describe.each(ways)('a listener that %s', (_, fails) => {
  test.each(['runLoop', 'streamLoop'])('is on its own, in %s', async (how) => {
    unhandled.length = 0;
    let heard = 0;
    using model = scriptedModel([{ text: 'two words', calls: [{ name: 'look' }, { name: 'nobody' }] }, 'done']);
    const options: LoopOptions = {
      model,
      tools: [look],
      input: 'go',
      onItem: () => {
        heard++;
        return fails();
      },
    };
    const result = how === 'runLoop' ? await runLoop(options) : await streamLoop(options).result;
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'done' });
    expect(heard).toBeGreaterThan(10);
    await settled();
    expect(unhandled).toEqual([]);
  });
});

async function callOnce(
  definition: Partial<ToolDefinition>,
  options: Partial<LoopOptions> = {},
): Promise<[LoopResult, number]> {
  unhandled.length = 0;
  let ran = 0;
  using model = scriptedModel([{ calls: [{ name: 'work' }] }, 'went on']);
  const work = tool({ name: 'work', description: 'x', execute: () => void ran++, ...definition });
  const result = await runLoop({ model, tools: [work], input: 'go', ...options });
  await settled();
  expect(unhandled).toEqual([]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'went on' });
  return [result, ran];
}

function checkedBy(validate: () => never | Promise<never>): StandardSchema {
  return { '~standard': { version: 1, vendor: 'test', validate } };
}

function told({ messages }: LoopResult): unknown {
  return (messages[2] as ToolMessage).content[0];
}

describe.each(ways)('what somebody gave the loop to call, and %s', (_, fails) => {
  test('a policy: every call is denied', async () => {
    const [result, ran] = await callOnce({}, { policy: { judge: fails } as Policy });
    expect(ran).toBe(0);
    expect(told(result)).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('was denied: the policy failed') }],
    });
  });

  test('a schema: the call is refused', async () => {
    const [result, ran] = await callOnce({ input: checkedBy(fails) as never, parameters: { type: 'object' } });
    expect(ran).toBe(0);
    expect(told(result)).toMatchObject({ isError: true });
  });

  test('an output schema: the result is refused', async () => {
    const [result, ran] = await callOnce({ output: checkedBy(fails) });
    expect(ran).toBe(1);
    expect(told(result)).toMatchObject({ isError: true });
  });

  test('resources: the call is refused', async () => {
    const [result, ran] = await callOnce({ resources: fails as never });
    expect(ran).toBe(0);
    expect(told(result)).toMatchObject({ isError: true });
  });
});

describe('a policy that says something else than it should', () => {
  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['nothing, later', Promise.resolve(undefined)],
    ['no list', { type: 'allow' }],
    ['a text', 'allow'],
    ['too few verdicts', []],
    ['verdicts that are none', [null]],
    ['verdicts of an unknown kind', [{ type: 'maybe' }]],
    ['truths', [true]],
  ])('%s: nothing runs', async (_, verdicts) => {
    const [result, ran] = await callOnce({}, { policy: { judge: () => verdicts } as Policy });
    expect(ran).toBe(0);
    expect(told(result)).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('was denied') }] });
  });

  test.each([Infinity, Number.NaN, '5', null])('time for an answer that is no time: %j', async (ttlMs) => {
    const clock = manualClock(1_000);
    const journal = memoryJournal();
    using model = scriptedModel([{ calls: [{ name: 'look' }] }]);
    const policy = { judge: () => [{ type: 'ask', ttlMs }] } as unknown as Policy;
    const { waiting: asked } = await runLoop({ model, tools: [look], input: 'go', policy, clock, journal, runId: 'r' });
    expect(asked).toMatchObject([{ type: 'approval', expiresAt: 1_000 + 86_400_000 }]);
    const { state } = replay(JSON.parse(JSON.stringify(await journal.read('r'))));
    expect(waiting(state)).toEqual(asked);
  });

  test('a thenable is waited for', async () => {
    const thenable = { then: (resolve: (verdicts: unknown) => void) => resolve([{ type: 'allow' }]) };
    const [, ran] = await callOnce({}, { policy: { judge: () => thenable } as unknown as Policy });
    expect(ran).toBe(1);
  });
});

test('a listener may be slow to answer: nobody waits for it', async () => {
  using model = scriptedModel([{ calls: [{ name: 'look' }] }, 'done']);
  const { outcome } = await runLoop({
    model,
    tools: [look],
    input: 'go',
    onItem: (() => new Promise(() => {})) as unknown as (item: Item) => void,
  });
  expect(outcome).toEqual({ type: 'completed' });
});
