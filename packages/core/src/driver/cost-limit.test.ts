import { expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Model } from '../model.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import { forkRun } from '../journal/fork.ts';
import { runLoop, streamLoop } from './run.ts';

const priced = (): Model => scriptedModel([]);
const unpriced = (id: string): Model => ({ id, reply: () => Promise.reject(new Error('unexpected model call')) });
const limits = { cost: 1 };
const refusal = (names: string): unknown => ({
  code: 'invalid-options',
  message:
    `limits.cost is set, but the run may call ${names} without a known price, so the limit cannot be enforced. ` +
    'Set a "price" for the model, or limit tokens instead.',
});
const child = (model: Model, own = {}): ReturnType<typeof agentTool> =>
  agentTool({ name: 'helper', description: 'Helps', model, ...own });

test.each([
  ['the model', { model: unpriced('m') }, '"m"'],
  ['another model', { model: priced(), models: [unpriced('n')] }, '"n"'],
  ['the summariser', { model: priced(), summariser: unpriced('s') }, '"s"'],
  ['a child run', { model: priced(), tools: [child(unpriced('c'))] }, '"c"'],
  [
    'a child run of a child run',
    { model: priced(), tools: [child(priced(), { tools: [child(unpriced('c'))] })] },
    '"c"',
  ],
  ['several models', { model: unpriced('m'), models: [unpriced('n'), unpriced('m')] }, '"m", "n"'],
  [
    'a fallback of a model',
    { model: { ...unpriced('r'), asks: [priced(), { ...unpriced('s'), asks: [unpriced('n'), priced()] }] } },
    '"n"',
  ],
  ['a model with priced: false', { model: { ...unpriced('m'), priced: false } }, '"m"'],
])('rejects a cost limit without a price for %s', async (_, options, names) => {
  const journal = memoryJournal();
  await expect(runLoop({ ...options, input: 'Go.', limits, journal, runId: 'r' })).rejects.toMatchObject(
    refusal(names) as object,
  );
  expect(() => streamLoop({ ...options, input: 'Go.', limits })).toThrow(
    expect.objectContaining(refusal(names) as object),
  );
  expect(await journal.read('r')).toEqual([]);
});

test('accepts a model without a price if there is no cost limit', async () => {
  const { priced: _, ...model } = scriptedModel(['Done.']);
  const result = await runLoop({ model, input: 'Go.', limits: { tokens: 100 } });
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('agentTool rejects its own cost limit for a model without a price', () => {
  expect(() => child(unpriced('c'), { limits })).toThrow(expect.objectContaining(refusal('"c"') as object));
});

const ask = tool({ name: 'ask', description: 'Asks the client' });
const callAsk = (): Model => scriptedModel([{ calls: [{ name: 'ask' }] }]);
const environment = { runId: 'r', tools: [ask] };

test('rejects resuming a run with a cost limit with a model without a price', async () => {
  const journal = memoryJournal();
  await runLoop({ ...environment, journal, model: callAsk(), input: 'Go.', limits });
  const before = await journal.read('r');
  await expect(runLoop({ ...environment, journal, model: unpriced('m') })).rejects.toMatchObject(
    refusal('"m"') as object,
  );
  expect(await journal.read('r')).toEqual(before);

  const answers = [{ type: 'result', effect: 't1.client.0', content: 'Yes' }] as const;
  const result = await runLoop({ ...environment, journal, model: scriptedModel(['Done.']), answers });
  expect(result.outcome).toEqual({ type: 'completed' });
  // The run has ended, so no model is called.
  await expect(runLoop({ ...environment, journal, model: unpriced('m') })).resolves.toMatchObject(result);
});

test('cancels a run with a cost limit with a model without a price', async () => {
  const journal = memoryJournal();
  await runLoop({ ...environment, journal, model: callAsk(), input: 'Go.', limits });
  const result = await runLoop({ ...environment, journal, model: unpriced('m'), signal: AbortSignal.abort() });
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'client' });
});

test('rejects resuming a run that failed with a model error with a model without a price', async () => {
  const journal = memoryJournal();
  const error = { code: 'overloaded', message: 'Too much.', retryable: true } as const;
  await runLoop({ runId: 'r', journal, model: scriptedModel([{ type: 'failure', error }]), input: 'Go.', limits });
  await expect(runLoop({ runId: 'r', journal, model: unpriced('m') })).rejects.toMatchObject({
    code: 'invalid-options',
  });
});

test('rejects resuming a fork of a run with a cost limit with a model without a price', async () => {
  const journal = memoryJournal();
  await runLoop({ ...environment, journal, model: callAsk(), input: 'Go.', limits });
  const runId = await forkRun({ journal, runId: 'r', at: 0 });
  await expect(runLoop({ ...environment, runId, journal, model: unpriced('m') })).rejects.toMatchObject({
    code: 'invalid-options',
  });
});

test('fails the run if a model with a price reports no cost', async () => {
  const usage = { inputTokens: 1, outputTokens: 1 };
  const count = tool({ name: 'count', description: 'Counts', execute: () => 1 });
  const model = scriptedModel([{ calls: [{ name: 'count' }], usage }]);
  const { outcome } = await runLoop({ model, tools: [count], input: 'Go.', limits });
  expect(outcome).toMatchObject({ type: 'failed', error: { code: 'cost-unknown' } });
});
