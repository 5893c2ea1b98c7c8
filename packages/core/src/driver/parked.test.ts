import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import type { TreadleError } from '../errors.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { Parked, type ParkedUntil } from '../tools/result.ts';
import { tool, type Tool, type ToolContext, type Verification } from '../tools/tool.ts';
import type { Answer, ContinueOptions, LoopResult } from './options.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { runLoop, startLoop } from './run.ts';

const DAY = 86_400_000;

/** Starts a run that calls `job` and pauses, and returns how to resume it. */
async function parkedRun(job: Tool, script: readonly ScriptStep[] = [{ calls: [{ name: 'job' }] }, 'Done.']) {
  const clock = manualClock(1_000);
  const journal = memoryJournal();
  const environment = { model: scriptedModel(script), tools: [job], journal, runId: 'run', clock };
  const first = await runLoop({ ...environment, input: 'Go.' });
  const resume = (answers: readonly Answer[] = [], more: Partial<ContinueOptions> = {}): Promise<LoopResult> =>
    runLoop({ ...environment, answers, ...more });
  const events = async () => (await journal.read('run')).map(({ event }) => event);
  return { ...environment, first, resume, events };
}

interface Device {
  readonly job: Tool;
  ready: boolean;
  /** What the tool was told about the parked call, each time it was called. */
  readonly seen: ToolContext['parked'][];
}

/** A tool that parks its calls until it is `ready`. */
function parking(until?: ParkedUntil): Device {
  const device: Device = {
    ready: false,
    seen: [],
    job: tool({
      name: 'job',
      description: '',
      effect: 'idempotent',
      execute: (_, { parked }) => {
        device.seen.push(parked);
        return device.ready ? 'printed' : new Parked('printer/7', [], until);
      },
    }),
  };
  return device;
}

const EXPIRED = 'The call of "job" had no result in time, and it is not known whether it took effect.';

describe('the deadline of a parked call', () => {
  test.for([
    ['expiresAt', { expiresAt: 1_000 + DAY }],
    ['ttlMs', { ttlMs: DAY }],
  ] as const)('%s: the call fails with a timeout when it has passed', async ([, until]) => {
    const { first, resume, clock, events } = await parkedRun(parking(until).job);
    expect(first.waiting).toMatchObject([{ type: 'parked', effect: 't1.tool.0', expiresAt: 1_000 + DAY }]);
    await clock.advance(DAY - 1);
    expect((await resume()).waiting).toMatchObject([{ type: 'parked', expiresAt: 1_000 + DAY }]);
    await clock.advance(1);
    const result = await resume();
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(resultTexts(result)[0]).toContain(EXPIRED);
    expect(result.messages.at(-2)).toMatchObject({ content: [{ isError: true, errorType: 'timeout' }] });
    expect((await events()).filter(({ type }) => type === 'tool-parked')).toHaveLength(3);
  });

  test('a tool that has the result by then settles the call, also after the deadline', async () => {
    const device = parking({ ttlMs: DAY });
    const { resume, clock } = await parkedRun(device.job);
    await clock.advance(2 * DAY);
    device.ready = true;
    expect(resultTexts(await resume())).toEqual(['printed']);
  });

  test('expiresAt of a later park replaces it, and the tool is told what the call is parked with', async () => {
    const until: { expiresAt: number } = { expiresAt: 1_000 + DAY };
    const device = parking(until);
    const { resume, clock } = await parkedRun(device.job);
    until.expiresAt = 1_000 + 3 * DAY;
    await clock.advance(DAY);
    expect((await resume()).waiting).toMatchObject([{ type: 'parked', expiresAt: 1_000 + 3 * DAY }]);
    expect(device.seen).toMatchObject([undefined, { on: 'printer/7', expiresAt: 1_000 + DAY }]);
  });

  test('ttlMs counts from the first park that has it, and does not change a deadline', async () => {
    const until: { ttlMs?: number } = {};
    const { first, resume, clock } = await parkedRun(parking(until).job);
    expect(first.waiting[0]).not.toHaveProperty('expiresAt');
    until.ttlMs = 2 * DAY;
    await clock.advance(DAY);
    expect((await resume()).waiting).toMatchObject([{ expiresAt: 1_000 + 3 * DAY }]);
    until.ttlMs = 5 * DAY;
    await clock.advance(DAY);
    expect((await resume()).waiting).toMatchObject([{ expiresAt: 1_000 + 3 * DAY }]);
  });

  test('a once call without verify fails without being called again', async () => {
    let ran = 0;
    const job = tool({ name: 'job', description: '', execute: () => (ran++, new Parked('x', [], { ttlMs: 5 })) });
    const { resume, clock, events } = await parkedRun(job);
    await clock.advance(5);
    expect(resultTexts(await resume())[0]).toContain(EXPIRED);
    expect([ran, (await events()).map(({ type }) => type)]).toEqual([
      1,
      ['run-started', 'model-replied', 'tool-parked', 'deadline-passed', 'model-replied'],
    ]);
  });

  test('a clock that was set back does not pass it', async () => {
    const job = tool({ name: 'job', description: '', execute: () => new Parked('x', [], { ttlMs: 100 }) });
    const { first, resume } = await parkedRun(job);
    expect((await resume([], { clock: manualClock(0) })).waiting).toEqual(first.waiting);
    expect((await resume([], { clock: manualClock(1_100) })).outcome).toEqual({ type: 'completed' });
  });

  test('a time that is not a number is an error result', async () => {
    const job = tool({ name: 'job', description: '', execute: () => new Parked('x', [], { ttlMs: NaN }) });
    const { first } = await parkedRun(job);
    expect(resultTexts(first)[0]).toContain('A call cannot be parked with ttlMs NaN. Give a number.');
  });
});

describe('the deadline of a call that the client executes', () => {
  const job = tool({ name: 'job', description: '', ttlMs: DAY });

  test('the call fails with a timeout when it has passed', async () => {
    const { first, resume, clock } = await parkedRun(job);
    expect(first.waiting).toMatchObject([{ type: 'client', effect: 't1.client.0', expiresAt: 1_000 + DAY }]);
    await clock.advance(DAY);
    const late: Answer = { type: 'result', effect: 't1.client.0', content: 'late' };
    await expect(resume([late])).rejects.toMatchObject({
      code: 'answer-unfit',
      message: 'The deadline of "t1.client.0" has passed (86401000). Resume the run without an answer.',
    });
    const result = await resume();
    expect(resultTexts(result)[0]).toContain(EXPIRED);
    expect(result.messages.at(-2)).toMatchObject({ content: [{ isError: true, errorType: 'timeout' }] });
  });

  test('a result in time settles the call', async () => {
    const { resume, clock } = await parkedRun(job);
    await clock.advance(DAY - 1);
    const result = await resume([{ type: 'result', effect: 't1.client.0', content: 'picked' }]);
    expect(resultTexts(result)).toEqual(['picked']);
  });

  test('only such a tool has one', () => {
    const made = (definition: object) => () => tool({ name: 'job', description: '', ...definition });
    expect(made({ ttlMs: 0 })).toThrow('Tool "job" has ttlMs 0. Give a number above 0.');
    expect(made({ ttlMs: 5, execute: () => '' })).toThrow('Tool "job" has ttlMs, but is not executed by the client.');
  });
});

describe('a parked once call with verify', () => {
  function verified(verify: () => Verification, until?: ParkedUntil) {
    const counted = { ran: 0, asked: 0 };
    const job = tool({
      name: 'job',
      description: '',
      execute: () => (counted.ran++, new Parked('door/1', [], until)),
      verify: () => (counted.asked++, verify()),
    });
    return { job, counted };
  }

  test('settles when the run is resumed and verify says done', async () => {
    const { job, counted } = verified(() => ({ type: 'done', result: 'opened' }));
    const { resume, events } = await parkedRun(job);
    const result = await resume();
    expect(resultTexts(result)).toEqual(['opened']);
    expect(counted).toEqual({ ran: 1, asked: 1 });
    expect((await events())[3]).toEqual({ type: 'effect-lost', at: 1_000, effect: 't1.tool.0', cause: 'parked' });
  });

  test.for(['not-done', 'unknown'] as const)(
    'stays parked, and does not run again, if verify says %s',
    async (type) => {
      const { job, counted } = verified(() => ({ type }));
      const { first, resume } = await parkedRun(job);
      expect((await resume()).waiting).toEqual(first.waiting);
      expect((await resume()).waiting).toEqual(first.waiting);
      expect(counted).toEqual({ ran: 1, asked: 2 });
    },
  );

  test('stays parked if verify throws', async () => {
    const { job, counted } = verified(() => {
      throw new Error('offline');
    });
    const { first, resume } = await parkedRun(job);
    expect((await resume()).waiting).toEqual(first.waiting);
    expect(counted).toEqual({ ran: 1, asked: 1 });
  });

  test('is asked again in five minutes if verify fails at the time at which it wanted to be asked', async () => {
    const { job, counted } = verified(
      () => {
        throw new Error('offline');
      },
      { wakeAt: 1_000 + DAY },
    );
    const { resume, clock } = await parkedRun(job);
    expect((await resume()).wakeAt).toBe(1_000 + DAY);
    await clock.advance(DAY);
    expect((await resume()).wakeAt).toBe(1_000 + DAY + 300_000);
    expect(counted).toEqual({ ran: 1, asked: 2 });
  });

  test('stays parked on what verify parks it on, with the deadline that it had', async () => {
    const { job } = verified(() => new Parked('door/1 is offline'), { ttlMs: DAY });
    const { resume, clock } = await parkedRun(job);
    expect((await resume()).waiting).toMatchObject([
      { type: 'parked', effect: 't1.tool.0', on: 'door/1 is offline', expiresAt: 1_000 + DAY },
    ]);
    await clock.advance(DAY);
    expect(resultTexts(await resume())[0]).toContain(EXPIRED);
  });

  test('is verified once more before it fails at its deadline', async () => {
    let done = false;
    const { job, counted } = verified(() => (done ? { type: 'done', result: 'opened' } : { type: 'not-done' }), {
      ttlMs: DAY,
    });
    const { resume, clock } = await parkedRun(job);
    await clock.advance(2 * DAY);
    done = true;
    expect(resultTexts(await resume())).toEqual(['opened']);
    expect(counted).toEqual({ ran: 1, asked: 1 });
  });

  test('a call that timed out parks if verify parks it', async () => {
    const job = tool({
      name: 'job',
      description: '',
      timeoutMs: 10,
      execute: () => new Promise(() => {}),
      verify: () => new Parked('door/1'),
    });
    const clock = manualClock(0);
    const run = runLoop({ model: scriptedModel([{ calls: [{ name: 'job' }] }]), tools: [job], clock, input: 'Go.' });
    await clock.advance(10);
    expect((await run).waiting).toMatchObject([{ type: 'parked', on: 'door/1' }]);
  });
});

describe('a result from outside', () => {
  const job = tool({ name: 'job', description: '', execute: () => new Parked('x', [], { ttlMs: DAY }) });
  const answer: Answer = { type: 'result', effect: 't1.tool.0', content: 'from outside' };

  test('settles a parked call and continues the run', async () => {
    const { resume, events } = await parkedRun(job);
    const result = await resume([answer]);
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(resultTexts(result)).toEqual(['from outside']);
    expect((await events())[3]).toEqual({
      type: 'client-result-given',
      at: 1_000,
      effect: 't1.tool.0',
      content: [{ type: 'text', text: 'from outside' }],
      isError: false,
    });
  });

  test('settles it before its tool is asked again', async () => {
    const device = parking();
    const { resume } = await parkedRun(device.job);
    expect(resultTexts(await resume([answer]))).toEqual(['from outside']);
    expect(device.seen).toHaveLength(1);
  });

  test('can be an error', async () => {
    const { resume } = await parkedRun(job);
    const { messages } = await resume([{ ...answer, isError: true }]);
    expect(messages.at(-2)).toMatchObject({ content: [{ isError: true, errorType: 'execution_failed' }] });
  });

  test.for([
    ['repeated', [answer, answer], '"t1.tool.0" is answered twice. Pass one answer for each effect.'],
    ['for another effect', [{ ...answer, effect: 't1.tool.1' }], 'Run "run" does not wait for "t1.tool.1".'],
    ['of another kind', [{ type: 'answer', effect: 't1.tool.0', value: 'x' }], 'which a "answer" does not answer.'],
    ['without complete blocks', [{ ...answer, content: [{ type: 'text' }] }], 'neither a text nor an array'],
  ] as const)('is rejected if it is %s', async ([, answers, message]) => {
    const { resume, first } = await parkedRun(job);
    const error = await resume(answers as unknown as readonly Answer[]).catch((thrown: TreadleError) => thrown);
    expect(error).toMatchObject({ code: 'answer-unfit', message: expect.stringContaining(message) });
    expect((await resume()).waiting).toEqual(first.waiting);
  });

  test('is rejected if it is late, and for a call that is settled', async () => {
    const { resume, clock } = await parkedRun(job);
    await clock.advance(DAY);
    await expect(resume([answer])).rejects.toMatchObject({ code: 'answer-unfit' });
    expect((await resume()).outcome).toEqual({ type: 'completed' });
    await expect(resume([answer])).rejects.toMatchObject({
      code: 'answer-unfit',
      message: 'Run "run" does not wait for "t1.tool.0". It waits for nothing.',
    });
  });

  test('settles a parked call while the run is driven', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const slow = tool({ name: 'slow', description: '', execute: () => promise });
    const model = scriptedModel([{ calls: [{ name: 'job' }, { name: 'slow' }] }, 'Done.']);
    const parked = Promise.withResolvers<void>();
    const onItem = (item: { type: string; event?: { type: string } }): void => {
      if (item.event?.type === 'tool-parked') parked.resolve();
    };
    const run = startLoop({ model, tools: [job, slow], input: 'Go.', onItem });
    await parked.promise;
    await run.answer(answer);
    resolve('slow');
    expect(resultTexts(await run.result)).toEqual(['from outside', 'slow']);
  });

  test('reaches a call that is parked in a child run, and not the call of the child run itself', async () => {
    const child = agentTool({
      name: 'child',
      description: '',
      model: scriptedModel([{ calls: [{ name: 'job' }] }, 'Child done.']),
      tools: [job],
    });
    const { first, resume } = await parkedRun(child, [
      { calls: [{ name: 'child', arguments: { task: 'x' } }] },
      'Done.',
    ]);
    expect(first.waiting).toMatchObject([{ type: 'parked', effect: 't1.tool.0/t1.tool.0', expiresAt: 1_000 + DAY }]);
    await expect(resume([answer])).rejects.toMatchObject({ code: 'answer-unfit' });
    const result = await resume([{ ...answer, effect: 't1.tool.0/t1.tool.0' }]);
    expect(resultTexts(result)).toEqual(['Child done.']);
  });

  test('is passed to verifyAnswer', async () => {
    const { resume } = await parkedRun(job);
    const refuse = () => ({ type: 'refused', reason: 'no signature.' }) as const;
    await expect(resume([answer], { verifyAnswer: refuse })).rejects.toMatchObject({ code: 'answer-refused' });
  });
});

describe('a parked call that asks a question', () => {
  async function asking() {
    const seen: unknown[] = [];
    const job = tool({
      name: 'job',
      description: '',
      effect: 'idempotent',
      execute: async (_, { parked, ask }) => {
        seen.push(parked?.on);
        return parked ? `said ${await ask('Well?')}` : new Parked('first', [], { ttlMs: DAY });
      },
    });
    const run = await parkedRun(job);
    return { ...run, seen, asked: await run.resume() };
  }

  test('is told what it is parked with when it is called with the answer', async () => {
    const { asked, resume, seen } = await asking();
    const { effect } = asked.waiting[0]!;
    expect(resultTexts(await resume([{ type: 'answer', effect, value: 'yes' }]))).toEqual(['said yes']);
    expect(seen).toEqual([undefined, 'first', 'first']);
  });

  test('waits for the answer only until its own deadline', async () => {
    const { asked, resume, clock } = await asking();
    expect(asked).toMatchObject({ wakeAt: 1_000 + DAY, waiting: [{ type: 'question', expiresAt: 1_000 + DAY }] });
    await clock.advance(DAY);
    expect(resultTexts(await resume())[0]).toContain('Nobody answered the question "Well?" in time.');
  });
});

describe('the tool of a parked call whose run is cancelled', () => {
  function verified(answer: () => Verification | Promise<Verification>) {
    const seen: [isAborted: boolean, on: string | undefined, key: string][] = [];
    const job = tool({
      name: 'job',
      description: '',
      execute: () => new Parked('printer/7'),
      verify(_, { signal, parked, key }) {
        seen.push([signal.aborted, parked?.on, key]);
        return answer();
      },
    });
    return { job, seen };
  }
  const told = [true, 'printer/7', 'run/t1.tool.0'];

  test('is told, also by a process that only cancels it', async () => {
    const { job, seen } = verified(() => Promise.reject(new Error('Out of paper.')));
    const { resume, events } = await parkedRun(job);
    expect(seen).toEqual([]);
    const { outcome } = await resume([], { signal: AbortSignal.abort() });
    expect(outcome).toMatchObject({ type: 'cancelled' });
    expect(seen).toEqual([told]);
    expect((await events()).at(-1)).toMatchObject({ type: 'cancel-requested' });
    // A run that has ended is not cancelled again.
    await resume();
    expect(seen).toHaveLength(1);
  });

  test('does not hold up the end for more than ten seconds', async () => {
    const { job, seen } = verified(() => new Promise(() => {}));
    const { resume, clock } = await parkedRun(job);
    const cancelled = resume([], { signal: AbortSignal.abort() });
    while (seen.length === 0) await new Promise(setImmediate);
    await clock.advance(10_000);
    expect((await cancelled).outcome).toMatchObject({ type: 'cancelled' });
    expect(clock.pending).toBe(0);
  });
});
