import { describe, expect, test, vi } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import type { Journal } from '../journal/port.ts';
import type { ModelRequest } from '../model.ts';
import { replay } from '../journal/replay.ts';
import type { Clock } from '../platform.ts';
import { tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

const callAct: ScriptStep = { calls: [{ name: 'act' }] };

test('time: durationMs is the time of the model and the tools together', async () => {
  const clock = manualClock(5_000);
  const after = <T>(ms: number, value: T): Promise<T> => new Promise((end) => clock.timer(ms, () => end(value)));
  const act = tool({ name: 'act', description: 'act', execute: () => after(30, 'acted') });
  using model = scriptedModel([() => after(100, callAct), 'Done.']);
  const run = runLoop({ model, tools: [act], input: 'Go.', clock });
  await clock.advance(130);
  expect(await run).toMatchObject({ durationMs: 130 });
});

test('time: events have the time of the clock', async () => {
  const clock = manualClock(5_000);
  const journal = memoryJournal();
  using model = scriptedModel([async () => (await clock.advance(100), 'Done.')]);
  await runLoop({ model, input: 'Go.', clock, journal, runId: 'run' });
  expect((await journal.read('run')).map(({ event }) => [event.type, event.at])).toEqual([
    ['run-started', 5_000],
    ['model-replied', 5_100],
  ]);
});

const pick = tool({ name: 'pick', description: 'The client picks' });
const answers = [{ type: 'result', effect: 't1.client.0', content: 'b' }] as const;

test('time: paused time does not count, also for the limit', async () => {
  const clock = manualClock();
  const takes = (ms: number, step: ScriptStep) => async () => (await clock.advance(ms), step);
  const environmentOf = (last: number) => ({
    model: scriptedModel([takes(100, { calls: [{ name: 'pick' }] }), takes(last, 'Done.')]),
    tools: [pick],
    journal: memoryJournal(),
    runId: 'run',
    clock,
  });
  for (const [last, outcome] of [
    [49, { type: 'completed' }],
    [50, { type: 'exhausted', limit: 'duration' }],
  ] as const) {
    const environment = environmentOf(last);
    expect(await runLoop({ ...environment, input: 'Go.', limits: { durationMs: 150 } })).toMatchObject({
      durationMs: 100,
    });
    await clock.advance(86_400_000);
    expect(await runLoop({ ...environment, answers })).toMatchObject({ outcome, durationMs: 100 + last });
  }
});

test('time: limits.durationMs aborts a tool that hangs, and its call gets an error result', async () => {
  const clock = manualClock();
  let toolSignal: AbortSignal | undefined;
  const hang = tool({
    name: 'act',
    description: 'act',
    execute: (_, { signal }) => ((toolSignal = signal), new Promise(() => {})),
  });
  using model = scriptedModel([callAct]);
  const run = runLoop({ model, tools: [hang], input: 'Go.', limits: { durationMs: 1_000 }, clock });
  await clock.advance(999);
  expect(toolSignal!.aborted).toBe(false);
  await clock.advance(1);
  const result = await run;
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' }, durationMs: 1_000 });
  expect(toolSignal!.aborted).toBe(true);
  expect(resultTexts(result)).toEqual(['Not finished: the run reached its limit of time.']);
  expect(clock.pending).toBe(0);
});

test('time: a run that ends before its deadline leaves no timer', async () => {
  const clock = manualClock();
  using model = scriptedModel(['Done.']);
  await runLoop({ model, input: 'Go.', limits: { durationMs: 1_000 }, clock });
  expect(clock.pending).toBe(0);
});

test('time: a clock that goes backwards subtracts nothing, if it has no monotonic time', async () => {
  const times = [1_000, 1_500, 200, 900];
  const { timer } = manualClock();
  const clock = { timer, now: () => times.shift() ?? 900 };
  using model = scriptedModel([callAct, 'Done.']);
  const act = tool({ name: 'act', description: 'Acts', effect: 'pure', execute: () => 'acted' });
  expect(await runLoop({ model, tools: [act], input: 'Go.', clock })).toMatchObject({ durationMs: 500 });
});

test('time: a model request has the deadline of the run, if the run has one', async () => {
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

/** A clock that a tool moves while it blocks the event loop, so that no timer can fire. */
function blockableClock(): { readonly clock: Clock; readonly block: (ms: number) => void } {
  let now = 0;
  return { clock: { now: () => now, timer: () => () => {} }, block: (ms) => void (now += ms) };
}

describe('time: a synchronous tool that returns after the deadline ends the run before anything else starts', () => {
  const limits = { durationMs: 100 };

  test('the next model call', async () => {
    const { clock, block } = blockableClock();
    const act = tool({ name: 'act', description: 'x', execute: () => (block(100), 'acted') });
    using model = scriptedModel([callAct]);
    const result = await runLoop({ model, tools: [act], input: 'Go.', clock, limits });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' }, turns: 2, durationMs: 100 });
    expect(resultTexts(result)).toEqual(['acted']);
  });

  test('the other calls of the turn', async () => {
    const { clock, block } = blockableClock();
    const ran: string[] = [];
    const tools = ['first', 'second', 'third'].map((name) =>
      tool({ name, description: 'x', execute: () => (ran.push(name), block(60), name) }),
    );
    using model = scriptedModel([{ calls: tools.map(({ name }) => ({ name })) }]);
    const result = await runLoop({ model, tools, input: 'Go.', clock, limits });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' } });
    expect(ran).toEqual(['first', 'second']);
    expect(resultTexts(result)).toEqual(['first', 'second', 'Not finished: the run reached its limit of time.']);
  });

  test('with a journal that is durable later, and the end is in the journal with the result', async () => {
    const { clock, block } = blockableClock();
    const memory = memoryJournal();
    const batches: string[][] = [];
    const journal: Journal = {
      ...memory,
      async append(runId, entries, lease) {
        batches.push(entries.map(({ event }) => event.type));
        await memory.append(runId, entries, lease);
      },
    };
    const act = tool({ name: 'act', description: 'x', execute: () => (block(100), 'acted') });
    using model = scriptedModel([callAct]);
    await runLoop({ model, tools: [act], input: 'Go.', clock, limits, journal, runId: 'run' });
    expect(batches.at(-1)).toEqual(['tool-settled', 'deadline-passed']);
    expect(replay(await memory.read('run'))).toMatchObject({ type: 'replayed', state: { phase: { type: 'ended' } } });
  });

  test('but not a run that is complete, and not before the deadline', async () => {
    for (const [ms, outcome] of [
      [99, { type: 'completed' }],
      [100, { type: 'exhausted', limit: 'duration' }],
    ] as const) {
      const { clock, block } = blockableClock();
      const act = tool({ name: 'act', description: 'x', execute: () => (block(ms), 'acted') });
      const model = scriptedModel([callAct, () => (block(500), 'Done.')]);
      expect(await runLoop({ model, tools: [act], input: 'Go.', clock, limits })).toMatchObject({ outcome });
    }
  });
});

test('time: a validator that never settles falls under the timeout of its tool', async () => {
  const clock = manualClock();
  const never = {
    '~standard': { version: 1, vendor: 'test', validate: () => new Promise<never>(() => {}) },
  } as const;
  let executed = 0;
  const act = tool({
    name: 'act',
    description: 'act',
    input: never,
    parameters: { type: 'object' },
    timeoutMs: 500,
    execute: () => void (executed += 1),
  });
  using model = scriptedModel([callAct, 'Done.']);
  const run = runLoop({ model, tools: [act], input: 'Go.', clock });
  await clock.advance(500);
  const result = await run;
  expect(result.outcome).toMatchObject({ type: 'completed' });
  expect(resultTexts(result)).toEqual([expect.stringContaining('The check of its arguments timed out after 500 ms.')]);
  expect(executed).toBe(0);
  expect(clock.pending).toBe(0);
});

test('time: a validator of the answer that never settles falls under toolTimeoutMs', async () => {
  const clock = manualClock();
  const asked: unknown[] = [];
  const never = {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: (value: unknown) => (asked.push(value) === 1 ? new Promise<never>(() => {}) : { value }),
      jsonSchema: { input: () => ({ type: 'object' }) },
    },
  } as const;
  using model = scriptedModel(['{"n":1}', '{"n":2}']);
  const run = runLoop({ model, output: never, input: 'Go.', clock, toolTimeoutMs: 500 });
  // Validators are loaded at their first use.
  while (asked.length === 0) await new Promise(setImmediate);
  await clock.advance(500);
  expect(await run).toMatchObject({ outcome: { type: 'completed' }, output: { n: 2 }, durationMs: 500 });
  expect(JSON.stringify(model.requests[1])).toContain('its check timed out after 500 ms');
  expect(clock.pending).toBe(0);
});

describe('time: durationMs is counted by the monotonic clock, and events have the time of the clock that people set', () => {
  const MINUTE = 60_000;

  /** A clock that can be set, and whose machine can be suspended. */
  function wallClock() {
    const steady = manualClock(1_000_000);
    let offset = 0;
    const clock: Clock = { ...steady, now: () => steady.now() + offset };
    return { clock, advance: steady.advance, set: (ms: number) => void (offset += ms) };
  }

  /** Each of two turns takes 30 seconds, and the clock is set by `ms` in the middle of the first one. */
  async function runWith(ms: number, limit: number) {
    const { clock, advance, set } = wallClock();
    const journal = memoryJournal();
    const act = tool({ name: 'act', description: 'act', execute: () => 'acted' });
    const first = async () => (await advance(15_000), set(ms), await advance(15_000), callAct);
    const model = scriptedModel([first, async () => (await advance(30_000), 'Done.')]);
    const options = { model, tools: [act], input: 'Go.', clock, journal, runId: 'run' };
    const result = await runLoop({ ...options, limits: { durationMs: limit } });
    const entries = await journal.read('run');
    expect(replay(entries)).toMatchObject({ type: 'replayed', state: { activeMs: result.durationMs } });
    return { result, entries };
  }

  test.each([
    ['is set forward by 20 minutes', 20 * MINUTE],
    ['is set back by an hour', -60 * MINUTE],
    ['runs on while the machine is suspended for a night', 8 * 60 * MINUTE],
    ['is not set', 0],
  ])('a clock that %s', async (_, ms) => {
    const { result, entries } = await runWith(ms, 60_001);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, durationMs: 60_000 });
    expect(entries.map(({ event }) => event.at - 1_000_000)).toEqual([0, 30_000 + ms, 30_000 + ms, 60_000 + ms]);
    // Only where the clocks differ.
    expect(entries.map(({ event }) => event.elapsedMs)[1]).toBe(ms === 0 ? undefined : 30_000);
    const late = await runWith(ms, 59_999);
    expect(late.result).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' }, durationMs: 59_999 });
  });

  test('the clock of the system is set forward by 20 minutes', async () => {
    const { now } = Date;
    const jump = async () => {
      vi.spyOn(Date, 'now').mockImplementation(() => now() + 20 * MINUTE);
      return 'Done.';
    };
    try {
      const result = await runLoop({ model: scriptedModel([jump]), input: 'Go.', limits: { durationMs: 10 * MINUTE } });
      expect(result.outcome).toEqual({ type: 'completed' });
      expect(result.durationMs).toBeLessThan(10 * MINUTE);
    } finally {
      vi.restoreAllMocks();
    }
  });

  test('a model is told a deadline that the clock reaches when the time is used up', async () => {
    const { clock, advance, set } = wallClock();
    const deadlines: (number | undefined)[] = [];
    const step = async ({ deadline }: ModelRequest) => {
      deadlines.push(deadline && deadline - clock.now());
      set(-60 * MINUTE);
      await advance(30_000);
      return deadlines.length === 1 ? callAct : 'Done.';
    };
    const act = tool({ name: 'act', description: 'act', execute: () => 'acted' });
    const model = scriptedModel([step, step]);
    await runLoop({ model, tools: [act], input: 'Go.', clock, limits: { durationMs: MINUTE } });
    expect(deadlines).toEqual([MINUTE, MINUTE / 2]);
  });

  test('time before the run was resumed does not count, whatever the clock says', async () => {
    const { clock, advance, set } = wallClock();
    const journal = memoryJournal();
    const options = { tools: [pick], journal, runId: 'run', clock };
    const first = scriptedModel([async () => (await advance(30_000), { calls: [{ name: 'pick' }] })]);
    await runLoop({ ...options, model: first, input: 'Go.', limits: { durationMs: MINUTE } });
    set(-60 * MINUTE);
    const second = scriptedModel([async () => (await advance(29_999), 'Done.')]);
    expect(await runLoop({ ...options, model: second, answers })).toMatchObject({
      outcome: { type: 'completed' },
      durationMs: 59_999,
    });
  });
});
