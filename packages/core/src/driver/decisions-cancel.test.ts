import { expect, test } from 'vitest';
import { textOf, type Message } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import type { LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const quick = tool({ name: 'quick', description: 'quick', execute: () => 'quick ran' });
const pick = tool({ name: 'pick', description: 'The client picks' });
const asking: Policy = { judge: (calls) => calls.map(({ name }) => ({ type: name === 'quick' ? 'ask' : 'allow' })) };

/** Never ends by itself; remembers whether it was told to. */
function hanging(): { readonly hang: ReturnType<typeof tool>; readonly told: () => boolean | undefined } {
  let signal: AbortSignal | undefined;
  const hang = tool({
    name: 'hang',
    description: 'Hangs',
    execute: (_, context) => {
      signal = context.signal;
      return new Promise(() => {});
    },
  });
  return { hang, told: () => signal?.aborted };
}

const wordsOf = ({ messages }: LoopResult): readonly string[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => textOf(content)) : []));

/** Every call has exactly one result, in call order, in the message right after it. */
function expectValid(messages: readonly Message[]): void {
  for (const [index, message] of messages.entries()) {
    if (message.role !== 'assistant') continue;
    const calls = message.content.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
    const next = messages[index + 1];
    const answered = next?.role === 'tool' ? next.content.map(({ callId }) => callId) : [];
    expect(answered).toEqual(calls);
  }
}

const NOT_FINISHED = 'Not finished: the run was cancelled.';

test('cancel while the model is asked: it is told to stop, and nobody waits for it', async () => {
  const clock = manualClock();
  let told: AbortSignal | undefined;
  using model = scriptedModel([(_, signal) => new Promise<never>(() => (told = signal))]);
  const live = streamLoop({ model, input: 'Go.', clock });
  await clock.advance(50);
  live.cancel();
  const result = await live.result;
  expect(result).toMatchObject({ outcome: { type: 'cancelled', phase: 'model' }, text: '', turns: 1, durationMs: 50 });
  expect(told!.aborted).toBe(true);
  expect(result.messages).toHaveLength(1);
});

test('cancel while a tool runs: it is told to stop, what is open gets an error, what is done stays', async () => {
  const clock = manualClock();
  const { hang, told } = hanging();
  const calls = [{ name: 'quick' }, { name: 'hang' }, { name: 'pick' }, { name: 'hang' }, { name: 'quick' }];
  using model = scriptedModel([{ calls }]);
  const items: Item[] = [];
  const options = { model, tools: [quick, hang, pick], input: 'Go.', maxParallel: 1, clock };
  const live = streamLoop({ ...options, onItem: (item) => items.push(item) });
  await clock.advance(0);
  expect(told()).toBe(false);
  live.cancel();
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(told()).toBe(true);
  expectValid(result.messages);
  expect(wordsOf(result)).toEqual(['quick ran', NOT_FINISHED, NOT_FINISHED, NOT_FINISHED, NOT_FINISHED]);
  expect(items.filter(({ type }) => type === 'call-answered')).toHaveLength(5);
  expect(clock.pending).toBe(0);
});

test('cancel while the policy judges: nothing runs', async () => {
  const clock = manualClock();
  let told: AbortSignal | undefined;
  const policy: Policy = { judge: (_, { signal }) => ((told = signal), new Promise(() => {})) };
  using model = scriptedModel([{ calls: [{ name: 'quick' }, { name: 'nothing' }] }]);
  const live = streamLoop({ model, tools: [quick], input: 'Go.', policy, clock });
  await clock.advance(0);
  live.cancel();
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(told!.aborted).toBe(true);
  expectValid(result.messages);
  expect(wordsOf(result)).toEqual([NOT_FINISHED, expect.stringContaining('no tool "nothing"')]);
});

test.each([
  ['an approval', 'quick', 'approval'],
  ['a client', 'pick', 'client'],
])('cancel while it waits for %s', async (_, name, phase) => {
  using model = scriptedModel([{ calls: [{ name }] }]);
  const surroundings = { model, tools: [quick, pick], policy: asking, journal: memoryJournal(), runId: 'run' };
  const paused = await runLoop({ ...surroundings, input: 'Go.' });
  expect(paused.outcome).toBeUndefined();
  const result = await runLoop({ ...surroundings, answers: [], signal: AbortSignal.abort() });
  expect(result).toMatchObject({ outcome: { type: 'cancelled', phase }, waiting: [] });
  expectValid(result.messages);
  expect(wordsOf(result)).toEqual([NOT_FINISHED]);
  expect(await runLoop({ ...surroundings, answers: [] })).toEqual(result);
});

test('cancel by a signal, at any time', async () => {
  const before = await runLoop({ model: scriptedModel(['x']), input: 'Go.', signal: AbortSignal.abort() });
  expect(before.outcome).toEqual({ type: 'cancelled', phase: 'model' });

  const atOnce = new AbortController();
  const model = scriptedModel(['x']);
  const run = runLoop({ model, input: 'Go.', signal: atOnce.signal });
  atOnce.abort();
  expect((await run).outcome).toEqual({ type: 'cancelled', phase: 'model' });
  expect(model.requests).toEqual([]);

  const clock = manualClock();
  const { hang, told } = hanging();
  const meanwhile = new AbortController();
  const calling = scriptedModel([{ calls: [{ name: 'hang' }] }]);
  const long = runLoop({ model: calling, tools: [hang], input: 'Go.', signal: meanwhile.signal, clock });
  await clock.advance(0);
  meanwhile.abort();
  expect((await long).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(told()).toBe(true);
});

test('cancel by a signal that aborts while a continued run is still being read', async () => {
  const journal = memoryJournal();
  const surroundings = { model: scriptedModel([{ calls: [{ name: 'pick' }] }]), tools: [pick], journal, runId: 'run' };
  await runLoop({ ...surroundings, input: 'Go.' });
  const controller = new AbortController();
  const run = runLoop({ ...surroundings, answers: [], signal: controller.signal });
  controller.abort();
  expect((await run).outcome).toEqual({ type: 'cancelled', phase: 'client' });
});

test('cancel by leaving the iteration', async () => {
  const { hang, told } = hanging();
  using model = scriptedModel([{ calls: [{ name: 'hang' }] }]);
  const live = streamLoop({ model, tools: [hang], input: 'Go.', clock: manualClock() });
  for await (const item of live) if (item.type === 'call-started') break;
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(told()).toBe(true);
});

test('cancel by a listener while a tool is only just beginning: that tool is told too', async () => {
  let told: AbortSignal | undefined;
  const eager = tool({
    name: 'eager',
    description: 'Reports at once',
    execute: (_, { report, signal }) => {
      report('begun');
      told = signal;
      return new Promise(() => {});
    },
  });
  const clock = manualClock();
  using model = scriptedModel([{ calls: [{ name: 'eager' }, { name: 'quick' }] }]);
  const live = streamLoop({
    model,
    tools: [eager, quick],
    input: 'Go.',
    clock,
    onItem: (item) => item.type === 'tool-report' && live.cancel(),
  });
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(wordsOf(result)).toEqual([NOT_FINISHED, NOT_FINISHED]);
  expect(told!.aborted).toBe(true);
  expect(clock.pending).toBe(0);
});

test('cancel while the arguments of a lost call are checked again: it does not run after that', async () => {
  const clock = manualClock();
  let gate = Promise.resolve();
  let ran = 0;
  const slowly = tool({
    name: 'slowly',
    description: 'Checks its arguments slowly',
    effect: 'pure',
    parameters: { type: 'object' },
    input: { '~standard': { version: 1, vendor: 'test', validate: async (value: unknown) => (await gate, { value }) } },
    execute: () => `ran ${++ran}`,
  });
  const journal = memoryJournal();
  using model = scriptedModel([{ calls: [{ name: 'slowly' }] }, 'Done.']);
  await runLoop({ model, tools: [slowly], input: 'Go.', journal, runId: 'run' });
  expect(ran).toBe(1);

  const crashed = memoryJournal();
  await crashed.append('run', (await journal.read('run')).slice(0, 2));
  const checking = Promise.withResolvers<void>();
  gate = checking.promise;
  const live = streamLoop({
    model: scriptedModel([]),
    tools: [slowly],
    journal: crashed,
    runId: 'run',
    answers: [],
    clock,
  });
  await clock.advance(0);
  live.cancel();
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  checking.resolve();
  await clock.advance(0);
  expect(ran).toBe(1);
});

test('cancel twice, or after the end, changes nothing', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.' });
  const { outcome } = await live.result;
  live.cancel();
  live.cancel();
  expect(outcome).toEqual({ type: 'completed' });
  expect((await live.result).outcome).toEqual({ type: 'completed' });
});
