import { expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import type { Message } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import { runLoop, streamLoop } from './run.ts';

const quick = tool({ name: 'quick', description: 'quick', execute: () => 'quick ran' });
const pick = tool({ name: 'pick', description: 'The client picks' });
const askForQuick: Policy = {
  judge: (calls) => calls.map(({ name }) => ({ type: name === 'quick' ? 'ask' : 'allow' })),
};

/** A tool that never returns, and whether its signal was aborted. */
function hanging(): { readonly hang: ReturnType<typeof tool>; readonly aborted: () => boolean | undefined } {
  let signal: AbortSignal | undefined;
  const hang = tool({
    name: 'hang',
    description: 'Hangs',
    execute: (_, context) => {
      signal = context.signal;
      return new Promise(() => {});
    },
  });
  return { hang, aborted: () => signal?.aborted };
}

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

test('cancel while the model is called: aborts the model call, and does not wait for it', async () => {
  const clock = manualClock();
  let modelSignal: AbortSignal | undefined;
  using model = scriptedModel([(_, signal) => new Promise<never>(() => (modelSignal = signal))]);
  const live = streamLoop({ model, input: 'Go.', clock });
  await clock.advance(50);
  live.cancel();
  const result = await live.result;
  expect(result).toMatchObject({ outcome: { type: 'cancelled', phase: 'model' }, text: '', turns: 1, durationMs: 50 });
  expect(modelSignal!.aborted).toBe(true);
  expect(result.messages).toHaveLength(1);
});

test('cancel while a tool runs: aborts the tool, calls without a result get an error, results are kept', async () => {
  const clock = manualClock();
  const { hang, aborted } = hanging();
  const calls = [{ name: 'quick' }, { name: 'hang' }, { name: 'pick' }, { name: 'hang' }, { name: 'quick' }];
  using model = scriptedModel([{ calls }]);
  const items: Item[] = [];
  const options = { model, tools: [quick, hang, pick], input: 'Go.', maxParallel: 1, clock };
  const live = streamLoop({ ...options, onItem: (item) => items.push(item) });
  await clock.advance(0);
  expect(aborted()).toBe(false);
  live.cancel();
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(aborted()).toBe(true);
  expectValid(result.messages);
  expect(resultTexts(result)).toEqual(['quick ran', NOT_FINISHED, NOT_FINISHED, NOT_FINISHED, NOT_FINISHED]);
  expect(items.filter(({ type }) => type === 'call-answered')).toHaveLength(5);
  expect(clock.pending).toBe(0);
});

test('cancel while the policy judges: aborts the policy, and no call runs', async () => {
  const clock = manualClock();
  let policySignal: AbortSignal | undefined;
  const policy: Policy = { judge: (_, { signal }) => ((policySignal = signal), new Promise(() => {})) };
  using model = scriptedModel([{ calls: [{ name: 'quick' }, { name: 'nothing' }] }]);
  const live = streamLoop({ model, tools: [quick], input: 'Go.', policy, clock });
  while (!policySignal) await clock.advance(0);
  live.cancel();
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(policySignal!.aborted).toBe(true);
  expectValid(result.messages);
  expect(resultTexts(result)).toEqual([NOT_FINISHED, expect.stringContaining('no tool "nothing"')]);
});

test.each([
  ['an approval', 'quick', 'approval'],
  ['a client', 'pick', 'client'],
])('cancel while the run waits for %s: the call gets an error result', async (_, name, phase) => {
  using model = scriptedModel([{ calls: [{ name }] }]);
  const environment = { model, tools: [quick, pick], policy: askForQuick, journal: memoryJournal(), runId: 'run' };
  const paused = await runLoop({ ...environment, input: 'Go.' });
  expect(paused.outcome).toBeUndefined();
  const result = await runLoop({ ...environment, answers: [], signal: AbortSignal.abort() });
  expect(result).toMatchObject({ outcome: { type: 'cancelled', phase }, waiting: [] });
  expectValid(result.messages);
  expect(resultTexts(result)).toEqual([NOT_FINISHED]);
  expect(await runLoop({ ...environment, answers: [] })).toEqual(result);
});

test('cancel by a signal: before the start, right after it, and while a tool runs', async () => {
  const before = await runLoop({ model: scriptedModel(['x']), input: 'Go.', signal: AbortSignal.abort() });
  expect(before.outcome).toEqual({ type: 'cancelled', phase: 'model' });

  const atOnce = new AbortController();
  const model = scriptedModel(['x']);
  const run = runLoop({ model, input: 'Go.', signal: atOnce.signal });
  atOnce.abort();
  expect((await run).outcome).toEqual({ type: 'cancelled', phase: 'model' });
  expect(model.requests).toEqual([]);

  const clock = manualClock();
  const { hang, aborted } = hanging();
  const whileRunning = new AbortController();
  const calling = scriptedModel([{ calls: [{ name: 'hang' }] }]);
  const long = runLoop({ model: calling, tools: [hang], input: 'Go.', signal: whileRunning.signal, clock });
  await clock.advance(0);
  whileRunning.abort();
  expect((await long).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(aborted()).toBe(true);
});

test('cancel by a signal that aborts while a resumed run is read from the journal', async () => {
  const journal = memoryJournal();
  const environment = { model: scriptedModel([{ calls: [{ name: 'pick' }] }]), tools: [pick], journal, runId: 'run' };
  await runLoop({ ...environment, input: 'Go.' });
  const controller = new AbortController();
  const run = runLoop({ ...environment, answers: [], signal: controller.signal });
  controller.abort();
  expect((await run).outcome).toEqual({ type: 'cancelled', phase: 'client' });
});

test('cancel by leaving the iteration', async () => {
  const { hang, aborted } = hanging();
  using model = scriptedModel([{ calls: [{ name: 'hang' }] }]);
  const live = streamLoop({ model, tools: [hang], input: 'Go.', clock: manualClock() });
  for await (const item of live) if (item.type === 'call-started') break;
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect(aborted()).toBe(true);
});

test('cancel by a listener while a tool starts: aborts that tool too', async () => {
  let toolSignal: AbortSignal | undefined;
  const eager = tool({
    name: 'eager',
    description: 'Reports at once',
    execute: (_, { report, signal }) => {
      report('started');
      toolSignal = signal;
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
  expect(resultTexts(result)).toEqual([NOT_FINISHED, NOT_FINISHED]);
  expect(toolSignal!.aborted).toBe(true);
  expect(clock.pending).toBe(0);
});

test('cancel while the arguments of a lost call are checked again: the call does not run', async () => {
  const clock = manualClock();
  let gate = Promise.resolve();
  let ran = 0;
  const slow = tool({
    name: 'slow',
    description: 'Checks its arguments slowly',
    effect: 'pure',
    parameters: { type: 'object' },
    input: { '~standard': { version: 1, vendor: 'test', validate: async (value: unknown) => (await gate, { value }) } },
    execute: () => `ran ${++ran}`,
  });
  const journal = memoryJournal();
  using model = scriptedModel([{ calls: [{ name: 'slow' }] }, 'Done.']);
  await runLoop({ model, tools: [slow], input: 'Go.', journal, runId: 'run' });
  expect(ran).toBe(1);

  const crashed = memoryJournal();
  await crashed.append('run', (await journal.read('run')).slice(0, 2));
  const checking = Promise.withResolvers<void>();
  gate = checking.promise;
  const live = streamLoop({
    model: scriptedModel([]),
    tools: [slow],
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

test('cancel after the end: changes nothing, also when repeated', async () => {
  using model = scriptedModel(['Done.']);
  const live = streamLoop({ model, input: 'Go.' });
  const { outcome } = await live.result;
  live.cancel();
  live.cancel();
  expect(outcome).toEqual({ type: 'completed' });
  expect((await live.result).outcome).toEqual({ type: 'completed' });
});
