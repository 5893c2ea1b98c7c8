import { expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { defineAgent } from '../agents/define.ts';
import { executeAgent, streamAgent } from '../agents/execute.ts';
import { RunError } from '../errors.ts';
import type { Item } from '../journal/items.ts';
import type { Model } from '../model.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { RunOptions } from './options.ts';
import { runLoop, startLoop, streamLoop } from './run.ts';

const error = { code: 'auth', message: 'The key is wrong.', retryable: false } as const;
const denied = { type: 'failure', error } as const;
const failing = (): Model => scriptedModel([denied]);
const pick = tool({ name: 'pick', description: 'The client picks' });

/** The error that a function throws. */
function thrownBy(act: () => unknown): RunError {
  try {
    act();
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(RunError);
    return thrown as RunError;
  }
  throw new Error('nothing was thrown');
}

test('returns the result of a run that has completed', async () => {
  const result = await runLoop({ model: scriptedModel(['Done.']), input: 'Go.' });
  expect(result.orThrow()).toBe(result);
  expect(result.orThrow().text).toBe('Done.');
});

test('returns the typed output', async () => {
  const output = z.object({ city: z.string() });
  const result = await runLoop({ model: scriptedModel(['{"city":"Oslo"}']), input: 'Where?', output });
  expectTypeOf(result.output).toEqualTypeOf<{ city: string } | undefined>();
  expectTypeOf(result.orThrow().output).toEqualTypeOf<{ city: string }>();
  expect(result.orThrow().output.city).toBe('Oslo');
});

test('options that do not fit do not compile', () => {
  const model = scriptedModel([]);
  // @ts-expect-error: "prompt" is no option
  const misnamed: RunOptions = { model, input: 'Go.', prompt: 'Go.' };
  // @ts-expect-error: neither an input nor a run to resume
  const incomplete: RunOptions = { model };
  expect([misnamed, incomplete]).toHaveLength(2);
});

test('throws the code and the message of a failure, with the id of the run', async () => {
  const result = await runLoop({ model: failing(), input: 'Go.', runId: 'r' });
  const { outcome } = result;
  const thrown = thrownBy(() => result.orThrow());
  expect(thrown).toMatchObject({ name: 'RunError', code: 'auth', message: error.message, runId: 'r', cause: outcome });
});

test.for<[string, string, string]>([
  ['a limit', 'exhausted', 'The run reached its limit of turns (maxTurns).'],
  ['a cancellation', 'cancelled', 'The run was cancelled.'],
  ['a pause', 'paused', 'Run "r" is paused. It waits for: client (pick).'],
  ['a detached run', 'detached', 'Run "r" was detached.'],
])('throws for %s', async ([kind, code, message]) => {
  const calls = [{ name: kind === 'a pause' ? 'pick' : 'unknown' }];
  const model = kind === 'a detached run' ? scriptedModel([() => new Promise(() => {})]) : scriptedModel([{ calls }]);
  const live = startLoop({ model, tools: [pick], input: 'Go.', maxTurns: 1, runId: 'r' });
  if (code === 'cancelled') live.cancel();
  if (code === 'detached') await live.detach();
  const result = await live.result;
  expect(thrownBy(() => result.orThrow())).toMatchObject({ code, message: expect.stringContaining(message) });
});

test('a result is plain data: copies and comparisons do not see the method', async () => {
  const result = await runLoop({ model: scriptedModel(['Done.']), input: 'Go.' });
  expect(structuredClone(result)).toEqual(result);
  expect(Object.keys(result)).not.toContain('orThrow');
});

test('the last item of a stream that failed has the error', async () => {
  const live = streamLoop({ model: failing(), input: 'Go.' });
  const items: Item[] = await Array.fromAsync(live);
  const { outcome } = await live.result;
  expect(items.at(-1)).toEqual({ type: 'run-failed', code: 'auth', message: error.message, outcome });
});

test('a stream that completed or paused has no item of failure', async () => {
  for (const model of [scriptedModel(['Done.']), scriptedModel([{ calls: [{ name: 'pick' }] }])]) {
    const items: Item[] = await Array.fromAsync(streamLoop({ model, tools: [pick], input: 'Go.' }));
    expect(items.filter(({ type }) => type === 'run-failed')).toEqual([]);
  }
});

const agent = defineAgent({
  name: 'locator',
  description: 'Finds a city',
  model: scriptedModel([]),
  prompts: { user: 'Where?' },
  tools: { output: { name: 'answer', description: 'The city' } },
  validation: { outputSchema: z.object({ city: z.string() }), maxAttempts: 1 },
});

test('orThrow of an agent returns a success', async () => {
  const model = scriptedModel([{ calls: [{ name: 'answer', arguments: { city: 'Oslo' } }] }]);
  const { output } = (await executeAgent(agent, { input: undefined, model })).orThrow();
  expectTypeOf(output).toEqualTypeOf<{ city: string }>();
  expect(output).toEqual({ city: 'Oslo' });
});

test('orThrow of an agent throws its error, with the id of the run', async () => {
  const live = streamAgent(agent, { input: undefined, model: failing(), journal: memoryJournal(), runId: 'r' });
  const items: Item[] = await Array.fromAsync(live);
  expect(items.at(-1)).toMatchObject({ type: 'run-failed', code: 'auth' });
  const result = await live.result;
  expect(thrownBy(() => result.orThrow())).toMatchObject({
    code: 'API_ERROR',
    message: error.message,
    runId: 'r',
    cause: { code: 'API_ERROR', context: { code: 'auth' } },
  });
});
