import { expect, test } from 'vitest';
import { resultTexts } from '../../../test/results.ts';
import { manualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool, type ToolContext } from '../../tools/tool.ts';
import type { LoopResult } from '../options.ts';
import { runLoop, streamLoop } from '../run.ts';

function stuck(contexts: ToolContext[], more: { readonly timeoutMs?: number } = {}): ReturnType<typeof tool> {
  return tool({
    name: 'stuck',
    description: 'x',
    execute: (_, context) => {
      contexts.push(context);
      return new Promise(() => {});
    },
    ...more,
  });
}

test.each([
  ['after a minute by default', {}, {}, 60_000],
  ['after the timeout of the run', { toolTimeoutMs: 500 }, {}, 500],
  ['after the timeout of the tool', { toolTimeoutMs: 500 }, { timeoutMs: 70_000 }, 70_000],
])('a tool that never returns times out %s', async (_, options, own, ms) => {
  const clock = manualClock();
  const contexts: ToolContext[] = [];
  using model = scriptedModel([{ calls: [{ name: 'stuck' }] }, 'continued']);
  let result: LoopResult | undefined;
  void runLoop({ model, tools: [stuck(contexts, own)], input: 'go', clock, ...options }).then(
    (ended) => (result = ended),
  );
  await clock.advance(ms - 1);
  expect(result).toBeUndefined();
  expect(contexts[0]!.signal.aborted).toBe(false);
  await clock.advance(1);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'continued', durationMs: ms });
  expect(resultTexts(result!)).toEqual([
    `The tool "stuck" timed out after ${ms} ms, and it is not known whether it took effect. Find out before you call it again.`,
  ]);
  expect(contexts[0]!.signal.aborted).toBe(true);
  expect(clock.pending).toBe(0);
});

test('a tool that never returns does not block other calls', async () => {
  const clock = manualClock();
  const ran: number[] = [];
  const quick = tool({ name: 'quick', description: 'x', execute: () => void ran.push(clock.now()) });
  using model = scriptedModel([
    { calls: [{ name: 'stuck' }, { name: 'quick' }, { name: 'stuck' }, { name: 'quick' }] },
    'continued',
  ]);
  const running = runLoop({ model, tools: [stuck([]), quick], input: 'go', clock, toolTimeoutMs: 100, maxParallel: 2 });
  await clock.advance(100);
  expect(ran).toEqual([0, 100]);
  await clock.advance(100);
  expect(resultTexts(await running)).toEqual([
    expect.stringContaining('timed out'),
    '(no output)',
    expect.stringContaining('timed out'),
    '(no output)',
  ]);
});

test('ignores a result or an error after the timeout', async () => {
  const clock = manualClock();
  const { promise, resolve, reject } = Promise.withResolvers();
  const late = tool({ name: 'late', description: 'x', execute: () => promise });
  const never = tool({
    name: 'never',
    description: 'x',
    execute: async () => {
      await promise;
      throw new Error('late');
    },
  });
  using model = scriptedModel([{ calls: [{ name: 'late' }, { name: 'never' }] }, 'continued']);
  const running = runLoop({ model, tools: [late, never], input: 'go', clock, toolTimeoutMs: 100 });
  await clock.advance(100);
  const result = await running;
  resolve('too late');
  reject(new Error('too late'));
  await clock.advance(100);
  expect(resultTexts(result)).toEqual([expect.stringContaining('timed out'), expect.stringContaining('timed out')]);
});

test('a payment that took effect before its timeout is reported as paid', async () => {
  const clock = manualClock();
  const paid = new Map<string, string>();
  const pay = tool({
    name: 'pay',
    description: 'x',
    execute: (_, { key }) => (paid.set(key, 'paid 10'), new Promise(() => {})),
    verify: async (_, { key }) => ({ type: 'done', result: paid.get(key) }),
  });
  using model = scriptedModel([{ calls: [{ name: 'pay' }] }, 'continued']);
  const running = runLoop({ model, tools: [pay], input: 'go', clock, toolTimeoutMs: 100 });
  await clock.advance(100);
  expect(resultTexts(await running)).toEqual(['paid 10']);
  expect(paid.size).toBe(1);
  expect(clock.pending).toBe(0);
});

test('the deadline of the run stops the verification after a timeout', async () => {
  const clock = manualClock();
  const signals: AbortSignal[] = [];
  const pay = tool({
    name: 'pay',
    description: 'x',
    execute: () => new Promise(() => {}),
    verify: (_, { signal }) => (signals.push(signal), new Promise(() => {})),
  });
  using model = scriptedModel([{ calls: [{ name: 'pay' }] }]);
  const limits = { durationMs: 150 };
  const running = runLoop({ model, tools: [pay], input: 'go', clock, toolTimeoutMs: 100, limits });
  await clock.advance(150);
  expect((await running).outcome).toEqual({ type: 'exhausted', limit: 'duration' });
  expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
  expect(clock.pending).toBe(0);
});

test('counts timeouts as errors, so the run ends at errorLimit', async () => {
  const clock = manualClock();
  using model = scriptedModel(['a', 'b', 'c'].map((at) => ({ calls: [{ name: 'stuck', arguments: { at } }] })));
  const running = runLoop({ model, tools: [stuck([])], input: 'go', clock, toolTimeoutMs: 100 });
  await clock.advance(300);
  expect((await running).outcome).toEqual({ type: 'exhausted', limit: 'errors' });
});

test('cancel does not wait for a tool that never returns, and leaves no timer', async () => {
  const clock = manualClock();
  const contexts: ToolContext[] = [];
  using model = scriptedModel([{ calls: [{ name: 'stuck' }] }]);
  const live = streamLoop({ model, tools: [stuck(contexts)], input: 'go', clock, limits: { durationMs: 1_000_000 } });
  await clock.advance(10);
  live.cancel();
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(contexts[0]!.signal.aborted).toBe(true);
  expect(clock.pending).toBe(0);
});

test('the deadline of the run does not wait for a tool that never returns', async () => {
  const clock = manualClock();
  const contexts: ToolContext[] = [];
  using model = scriptedModel([{ calls: [{ name: 'stuck' }] }]);
  const running = runLoop({ model, tools: [stuck(contexts)], input: 'go', clock, limits: { durationMs: 1_000 } });
  await clock.advance(1_000);
  expect((await running).outcome).toEqual({ type: 'exhausted', limit: 'duration' });
  expect(contexts[0]!.signal.aborted).toBe(true);
  expect(clock.pending).toBe(0);
});

test('cancel and the deadline abort a model that never replies', async () => {
  const clock = manualClock();
  const signals: AbortSignal[] = [];
  const model = {
    id: 'stuck',
    reply: (_request: unknown, _emit: unknown, signal: AbortSignal) => {
      signals.push(signal);
      return new Promise<never>(() => {});
    },
  };
  const live = streamLoop({ model, input: 'go', clock });
  const timed = runLoop({ model, input: 'go', clock, limits: { durationMs: 1_000 } });
  await clock.advance(10);
  live.cancel();
  await clock.advance(990);
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'model' });
  expect((await timed).outcome).toEqual({ type: 'exhausted', limit: 'duration' });
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
  expect(clock.pending).toBe(0);
});
