import { expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Model } from '../model.ts';
import { manualClock } from '../testing/manual-clock.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import { forkRun } from '../journal/fork.ts';
import { runLoop, streamLoop } from './run.ts';

const priced = (): Model => scriptedModel([]);
const unpriced = (id: string): Model => ({ id, reply: () => Promise.reject(new Error('nobody may ask it')) });
const limits = { cost: 1 };
const refusal = (who: string): unknown => ({
  code: 'invalid-options',
  message:
    `limits.cost is set, but the run may call ${who} without a known price, so the limit cannot be enforced. ` +
    'Set a "price" for the model, or limit tokens instead.',
});
const child = (model: Model, own = {}): ReturnType<typeof agentTool> =>
  agentTool({ name: 'helper', description: 'Helps', model, ...own });

test.each([
  ['the model', { model: unpriced('m') }, '"m"'],
  ['another model', { model: priced(), models: [unpriced('n')] }, '"n"'],
  ['the summariser', { model: priced(), summariser: unpriced('s') }, '"s"'],
  ['a run inside', { model: priced(), tools: [child(unpriced('c'))] }, '"c"'],
  [
    'a run inside a run inside',
    { model: priced(), tools: [child(priced(), { tools: [child(unpriced('c'))] })] },
    '"c"',
  ],
  ['several', { model: unpriced('m'), models: [unpriced('n'), unpriced('m')] }, '"m", "n"'],
  [
    'one that a model falls back on',
    { model: { ...unpriced('r'), asks: [priced(), { ...unpriced('s'), asks: [unpriced('n'), priced()] }] } },
    '"n"',
  ],
  ['a model that says so', { model: { ...unpriced('m'), priced: false } }, '"m"'],
])('a cost limit with an unknown price is refused at the start: %s', async (_, options, who) => {
  const journal = memoryJournal();
  await expect(runLoop({ ...options, input: 'Go.', limits, journal, runId: 'r' })).rejects.toMatchObject(
    refusal(who) as object,
  );
  expect(() => streamLoop({ ...options, input: 'Go.', limits })).toThrow(
    expect.objectContaining(refusal(who) as object),
  );
  expect(await journal.read('r')).toEqual([]);
});

test('without a cost limit nobody needs a price', async () => {
  const { priced: _, ...model } = scriptedModel(['Done.']);
  const result = await runLoop({ model, input: 'Go.', limits: { tokens: 100 } });
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('an agent with a cost limit of its own is refused where it is made', () => {
  expect(() => child(unpriced('c'), { limits })).toThrow(expect.objectContaining(refusal('"c"') as object));
});

const ask = tool({ name: 'ask', description: 'Asks the client' });
const asking = (): Model => scriptedModel([{ calls: [{ name: 'ask' }] }]);
const around = { runId: 'r', tools: [ask] };

test('a run with a cost limit goes on only with a model that has a price', async () => {
  const journal = memoryJournal();
  await runLoop({ ...around, journal, model: asking(), input: 'Go.', limits });
  const before = await journal.read('r');
  await expect(runLoop({ ...around, journal, model: unpriced('m') })).rejects.toMatchObject(refusal('"m"') as object);
  expect(await journal.read('r')).toEqual(before);

  const answers = [{ type: 'client-result', effect: 't1.client.0', content: 'Yes' }] as const;
  const result = await runLoop({ ...around, journal, model: scriptedModel(['Done.']), answers });
  expect(result.outcome).toEqual({ type: 'completed' });
  // It has ended, so nobody is asked.
  await expect(runLoop({ ...around, journal, model: unpriced('m') })).resolves.toMatchObject(result);
});

test('a run with a cost limit can be cancelled without a model that has a price', async () => {
  const journal = memoryJournal();
  await runLoop({ ...around, journal, model: asking(), input: 'Go.', limits });
  const result = await runLoop({ ...around, journal, model: unpriced('nobody'), signal: AbortSignal.abort() });
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'client' });
});

test('a run that failed because the model did needs a price to be tried again', async () => {
  const journal = memoryJournal();
  const error = { code: 'overloaded', message: 'Too much.', retryable: true } as const;
  await runLoop({ runId: 'r', journal, model: scriptedModel([{ type: 'failure', error }]), input: 'Go.', limits });
  await expect(runLoop({ runId: 'r', journal, model: unpriced('m') })).rejects.toMatchObject({
    code: 'invalid-options',
  });
});

test('a fork of a run with a cost limit needs a price too', async () => {
  const journal = memoryJournal();
  await runLoop({ ...around, journal, model: asking(), input: 'Go.', limits });
  const runId = await forkRun({ journal, runId: 'r', at: 0 });
  await expect(runLoop({ ...around, runId, journal, model: unpriced('m') })).rejects.toMatchObject({
    code: 'invalid-options',
  });
});

test('a model that claims a price and tells no cost fails the run later', async () => {
  const usage = { inputTokens: 1, outputTokens: 1 };
  const count = tool({ name: 'count', description: 'Counts', execute: () => 1 });
  const model = scriptedModel([{ calls: [{ name: 'count' }], usage }]);
  const { outcome } = await runLoop({ model, tools: [count], input: 'Go.', limits });
  expect(outcome).toMatchObject({ type: 'failed', error: { code: 'cost-unknown' } });
});

test('a model is told when the time of the run is up, and only if it ever is', async () => {
  const clock = manualClock(1_000);
  const wait = tool({ name: 'wait', description: 'Waits', execute: () => clock.advance(200).then(() => 'waited') });
  const script = [{ calls: [{ name: 'wait' }] }, 'Done.'];
  const model = scriptedModel(script);
  await runLoop({ model, tools: [wait], input: 'Go.', limits: { durationMs: 5_000 }, clock });
  expect(model.requests.map(({ deadline }) => deadline)).toEqual([6_000, 6_000]);

  const unlimited = scriptedModel(['Done.']);
  await runLoop({ model: unlimited, input: 'Go.', clock });
  expect(unlimited.requests[0]).not.toHaveProperty('deadline');
});
