import { executeAgent, runLoop, tool, type Event } from '@treadle/core';
import { memoryJournal, scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { even, look, reflecting, summing, type Total } from './agents.ts';
import { calling, recorder } from './run.ts';

const input = '1, 2';
const down = { type: 'failure', error: { code: 'overloaded', message: 'down', retryable: true } } as const;
const answer = calling('answer', { total: 4 });

test('an execution that another one has overtaken while its prompts were built returns the same result', async () => {
  const journal = memoryJournal();
  const overtaken = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const slow = summing({
    prompts: {
      async user() {
        reached.resolve();
        await overtaken.promise;
        return 'Sum up, please.';
      },
    },
  });
  const options = { input, journal, runId: 'r' };
  const second = executeAgent(slow, { ...options, model: scriptedModel([]) });
  await reached.promise;
  const first = await executeAgent(summing(), { ...options, model: scriptedModel([answer]) });
  overtaken.resolve();
  expect(await second).toMatchObject({ type: 'success', output: { total: 4 } });
  expect((await second).messages).toEqual(first.messages);
});

describe('a run whose model call failed', () => {
  async function failedRun(agent = summing({ helpers: [look] })): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    const result = await executeAgent(agent, { input, journal, runId: 'r', model: scriptedModel([down]) });
    expect(result).toMatchObject({ type: 'failure', error: { code: 'API_ERROR', context: { code: 'overloaded' } } });
    return journal;
  }

  test('repeats the model call when it is executed again', async () => {
    const journal = await failedRun();
    const agent = summing({ helpers: [look] });
    const result = await executeAgent(agent, { input, journal, runId: 'r', model: scriptedModel([answer]) });
    expect(result).toMatchObject({ type: 'success', output: { total: 4 } });
  });

  test('cannot be resumed by runLoop or by another agent', async () => {
    const journal = await failedRun();
    const model = scriptedModel([answer]);
    await expect(runLoop({ runId: 'r', journal, model, tools: [], output: { type: 'object' } })).rejects.toThrow(
      'Run "r" belongs to the agent "summing". Resume it with executeAgent and that agent.',
    );
    await expect(executeAgent(reflecting(), { input, journal, runId: 'r', model })).rejects.toThrow(
      'There is already a run "r" of the agent "summing". Give another runId.',
    );
    expect(model.requests).toHaveLength(0);
  });

  test('rejects changed tools unless acceptChangedTools is set; then the model gets the new tools', async () => {
    const journal = await failedRun();
    const again = { input, journal, runId: 'r' };
    const agent = summing();
    await expect(executeAgent(agent, { ...again, model: scriptedModel([]) })).rejects.toThrow('"look" is missing');
    const model = scriptedModel([answer]);
    const result = await executeAgent(agent, { ...again, model, acceptChangedTools: true });
    expect(result).toMatchObject({ type: 'success' });
    expect(model.requests[0]!.tools.map(({ name }) => name)).toEqual(['answer']);
  });

  test('of runLoop needs the same tools and a prepareTurn', async () => {
    const journal = memoryJournal();
    const tools = [tool({ name: 'look', description: 'Looks', execute: () => 'seen' })];
    const prepareTurn = (): object => ({});
    await runLoop({ runId: 'p', journal, model: scriptedModel([down]), tools, prepareTurn, input: 'go' });
    const again = { runId: 'p', journal, model: scriptedModel(['Done.']) };
    await expect(runLoop({ ...again, tools })).rejects.toThrow('was started with prepareTurn');
    await expect(runLoop({ ...again, prepareTurn })).rejects.toThrow('"look" is missing');
    expect(await runLoop({ ...again, tools, prepareTurn })).toMatchObject({ outcome: { type: 'completed' } });
  });
});

test('callbacks of a resumed run report its attempt and iteration', async () => {
  const journal = memoryJournal();
  const agent = summing({ helpers: [look], validation: { customValidators: [even], maxAttempts: 3 } });
  const options = { input, journal, runId: 'r', policy: { judge: judgeLook } };
  const first = scriptedModel([calling('answer', { total: 3 }), calling('look', { at: 'a' })]);
  const paused = await executeAgent(agent, { ...options, model: first });
  if (paused.type !== 'failure' || paused.error.code !== 'EXECUTION_PAUSED') expect.fail('not paused');
  const [wait] = paused.error.context.waiting;
  if (wait?.type !== 'approval') expect.fail('not waiting for an approval');
  const { callbacks, log } = recorder<Total>();
  const refused = { type: 'approval', effect: wait.effect, digest: wait.digest, approved: false } as const;
  await executeAgent(agent, { ...options, model: scriptedModel([answer]), answers: [refused], callbacks });
  expect(log.map(([name, at]) => `${name} ${at}`)).toEqual([
    'onToolCall 2/3 1/15',
    'onToolResult 2/3 1/15',
    'onAttemptComplete 2/3 2/15',
    'onSuccess 2/3 2/15',
  ]);
});

function judgeLook(calls: readonly { readonly name: string }[]): { readonly type: 'ask' | 'allow' }[] {
  return calls.map(({ name }) => ({ type: name === 'look' ? 'ask' : 'allow' }));
}

test('a resumed run keeps the limits that it was started with', async () => {
  const journal = memoryJournal();
  const options = { input, journal, runId: 'r' };
  const seen = calling('look', { at: 'a' });
  const started = summing({ helpers: [look], validation: { maxIterationsPerAttempt: 3, maxAttempts: 2 } });
  await executeAgent(started, { ...options, model: scriptedModel([seen, down]) });
  const changed = summing({ helpers: [look], validation: { maxIterationsPerAttempt: 9, maxAttempts: 1 } });
  const { callbacks, log } = recorder<Total>();
  const result = await executeAgent(changed, { ...options, model: scriptedModel([seen, seen]), callbacks });
  expect(result).toMatchObject({
    error: { code: 'MAX_ITERATIONS', context: { attempt: 1, iterationCount: 3, maxIterations: 3 } },
  });
  expect(log.at(-1)![1]).toBe('1/2 3/3');
  const ended = await executeAgent(changed, { ...options, model: scriptedModel([]) });
  expect(ended).toMatchObject({ error: { context: { maxIterations: 3 } } });
});

test('the error prompt gets the maxAttempts that the run was started with', async () => {
  const journal = memoryJournal();
  const options = { input, journal, runId: 'r' };
  const error = (_: unknown, { attempt, maxAttempts }: { attempt: number; maxAttempts: number }): string =>
    `${attempt} of ${maxAttempts}`;
  const prompts = { user: 'Add up', error };
  const started = summing({ prompts, validation: { customValidators: [even], maxAttempts: 2 } });
  await executeAgent(started, { ...options, model: scriptedModel([down]) });
  const changed = summing({ prompts, validation: { customValidators: [even], maxAttempts: 1 } });
  const model = scriptedModel([calling('answer', { total: 3 }), answer]);
  expect(await executeAgent(changed, { ...options, model })).toMatchObject({ type: 'success' });
  const checked = (await journal.read('r')).map(({ event }) => event).find(isCheck);
  expect(checked!.result).toMatchObject({ type: 'invalid', prompt: '1 of 2' });
});

function isCheck(event: Event): event is Extract<Event, { type: 'output-checked' }> {
  return event.type === 'output-checked';
}

test('compares inputs independent of the order of keys, and rejects a plain input after one that is not', async () => {
  const journal = memoryJournal();
  const agent = summing() as never;
  const run = (value: unknown): Promise<unknown> =>
    executeAgent(agent, { input: value, journal, runId: 'r', model: scriptedModel([answer]) } as never);
  await run({ a: 1, b: { c: 2, d: 3 } });
  expect(await run({ b: { d: 3, c: 2 }, a: 1 })).toMatchObject({ type: 'success' });
  await expect(run({ a: 1, b: { c: 2, d: 4 } })).rejects.toThrow('that was started with another input');
  await expect(run(new Map([[1, 2]]))).rejects.toThrow('that was started with another input');
});
