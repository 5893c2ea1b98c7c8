/* oxlint-disable unicorn/no-thenable -- these tests use thenables */
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
const recordUnhandled = (reason: unknown): void => void unhandled.push(reason);
beforeAll(() => void process.on('unhandledRejection', recordUnhandled));
afterAll(() => void process.off('unhandledRejection', recordUnhandled));

const look = tool({ name: 'look', description: 'x', execute: async (_, { report }) => (report('half'), 'seen') });
const throwError = (): never => {
  throw new Error('failed');
};
const rejects = async (): Promise<never> => throwError();

const ways: [string, () => never | Promise<never>][] = [
  ['throws', throwError],
  ['rejects', rejects],
  [
    'throws undefined',
    () => {
      throw undefined;
    },
  ],
];

async function rejectionsReported(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 5));
}

describe.each(ways)('a listener that %s', (_, fails) => {
  test.each(['runLoop', 'streamLoop'])('does not affect the run, in %s', async (how) => {
    unhandled.length = 0;
    let received = 0;
    using model = scriptedModel([{ text: 'two words', calls: [{ name: 'look' }, { name: 'unknown' }] }, 'done']);
    const options: LoopOptions = {
      model,
      tools: [look],
      input: 'go',
      onItem: () => {
        received++;
        return fails();
      },
    };
    const result = how === 'runLoop' ? await runLoop(options) : await streamLoop(options).result;
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'done' });
    expect(received).toBeGreaterThan(10);
    await rejectionsReported();
    expect(unhandled).toEqual([]);
  });
});

async function callOnce(
  definition: Partial<ToolDefinition>,
  options: Partial<LoopOptions> = {},
): Promise<[LoopResult, number]> {
  unhandled.length = 0;
  let ran = 0;
  using model = scriptedModel([{ calls: [{ name: 'work' }] }, 'continued']);
  const work = tool({ name: 'work', description: 'x', execute: () => void ran++, ...definition });
  const result = await runLoop({ model, tools: [work], input: 'go', ...options });
  await rejectionsReported();
  expect(unhandled).toEqual([]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'continued' });
  return [result, ran];
}

function schemaWith(validate: () => never | Promise<never>): StandardSchema {
  return { '~standard': { version: 1, vendor: 'test', validate } };
}

function firstResult({ messages }: LoopResult): unknown {
  return (messages[2] as ToolMessage).content[0];
}

describe.each(ways)('if code that the loop calls %s', (_, fails) => {
  test('in a policy: every call is denied', async () => {
    const [result, ran] = await callOnce({}, { policy: { judge: fails } as Policy });
    expect(ran).toBe(0);
    expect(firstResult(result)).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('was denied: the policy failed') }],
    });
  });

  test('in an input schema: the call is refused', async () => {
    const [result, ran] = await callOnce({ input: schemaWith(fails) as never, parameters: { type: 'object' } });
    expect(ran).toBe(0);
    expect(firstResult(result)).toMatchObject({ isError: true });
  });

  test('in an output schema: the call gets an error result', async () => {
    const [result, ran] = await callOnce({ output: schemaWith(fails) });
    expect(ran).toBe(1);
    expect(firstResult(result)).toMatchObject({ isError: true });
  });

  test('in resources: the call is refused', async () => {
    const [result, ran] = await callOnce({ resources: fails as never });
    expect(ran).toBe(0);
    expect(firstResult(result)).toMatchObject({ isError: true });
  });
});

describe('a policy that returns an invalid value', () => {
  test.each<[string, unknown]>([
    ['undefined', undefined],
    ['null', null],
    ['a promise of undefined', Promise.resolve(undefined)],
    ['an object', { type: 'allow' }],
    ['a string', 'allow'],
    ['too few verdicts', []],
    ['null as a verdict', [null]],
    ['verdicts of an unknown type', [{ type: 'maybe' }]],
    ['booleans', [true]],
  ])('%s: no call runs', async (_, verdicts) => {
    const [result, ran] = await callOnce({}, { policy: { judge: () => verdicts } as Policy });
    expect(ran).toBe(0);
    expect(firstResult(result)).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('was denied') }],
    });
  });

  test.each([Infinity, Number.NaN, '5', null])('ttlMs %j: the approval expires after a day', async (ttlMs) => {
    const clock = manualClock(1_000);
    const journal = memoryJournal();
    using model = scriptedModel([{ calls: [{ name: 'look' }] }]);
    const policy = { judge: () => [{ type: 'ask', ttlMs }] } as unknown as Policy;
    const { waiting: waits } = await runLoop({ model, tools: [look], input: 'go', policy, clock, journal, runId: 'r' });
    expect(waits).toMatchObject([{ type: 'approval', expiresAt: 1_000 + 86_400_000 }]);
    const { state } = replay(JSON.parse(JSON.stringify(await journal.read('r'))));
    expect(waiting(state)).toEqual(waits);
  });

  test('a thenable of verdicts is accepted', async () => {
    const thenable = { then: (resolve: (verdicts: unknown) => void) => resolve([{ type: 'allow' }]) };
    const [, ran] = await callOnce({}, { policy: { judge: () => thenable } as unknown as Policy });
    expect(ran).toBe(1);
  });
});

test('does not wait for a listener that returns a pending promise', async () => {
  using model = scriptedModel([{ calls: [{ name: 'look' }] }, 'done']);
  const { outcome } = await runLoop({
    model,
    tools: [look],
    input: 'go',
    onItem: (() => new Promise(() => {})) as unknown as (item: Item) => void,
  });
  expect(outcome).toEqual({ type: 'completed' });
});
