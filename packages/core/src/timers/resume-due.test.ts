import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { forkRun } from '../journal/fork.ts';
import type { RunStore, RunSummary } from '../journal/port.ts';
import { replay } from '../journal/replay.ts';
import { runLoop } from '../driver/run.ts';
import { manualClock, memoryJournal, scriptedModel, type ManualClock } from '../testing/index.ts';
import { Parked } from '../tools/result.ts';
import { tool } from '../tools/tool.ts';
import { resumeDue, sleepTool, wakeRuns, type DueRun } from './index.ts';

const DAY = 86_400_000;

/** Starts a run that sleeps. */
async function sleeping(journal: RunStore, clock: ManualClock, runId: string, seconds: number) {
  const model = scriptedModel([{ calls: [{ name: 'sleep', arguments: { seconds } }] }]);
  return runLoop({ model, tools: [sleepTool({ clock })], journal, clock, runId, input: 'Wait.' });
}

/** The code that resumes a run that slept. */
const awake = (clock: ManualClock) => () => ({ model: scriptedModel(['Awake.']), tools: [sleepTool({ clock })] });

describe('wakeAt', () => {
  test('is the time that a run sleeps until, in its result, its entries and its summary', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(1_000)];
    expect(await sleeping(journal, clock, 'a', 60)).toMatchObject({ wakeAt: 61_000, waiting: [{ wakeAt: 61_000 }] });
    expect((await journal.read('a')).at(-1)).toMatchObject({ status: 'paused', wakeAt: 61_000 });
    expect(await journal.list()).toMatchObject([{ runId: 'a', wakeAt: 61_000 }]);
  });

  test('is the earliest deadline of what a run waits for', async () => {
    const clock = manualClock(1_000);
    const job = tool({ name: 'job', description: '', execute: () => new Parked('x', [], { ttlMs: 500 }) });
    const pick = tool({ name: 'pick', description: '', ttlMs: 700 });
    const erase = tool({ name: 'erase', description: '', needsApproval: true, execute: () => 'erased' });
    const calling = (...names: string[]) =>
      runLoop({
        model: scriptedModel([{ calls: names.map((name) => ({ name })) }]),
        tools: [job, pick, erase],
        clock,
        input: 'Go.',
      });
    expect(await calling('erase', 'pick', 'job')).toMatchObject({ wakeAt: 1_500 });
    expect(await calling('erase', 'pick')).toMatchObject({ wakeAt: 1_700 });
    expect(await calling('erase')).toMatchObject({ wakeAt: 1_000 + DAY });
  });

  test('is absent if a run only waits for answers, and for a tool that is not asked again', async () => {
    const job = tool({ name: 'job', description: '', execute: () => new Parked('x', [], { wakeAt: 5 }) });
    const model = scriptedModel([{ calls: [{ name: 'job' }, { name: 'pick' }] }]);
    const pick = tool({ name: 'pick', description: '' });
    const result = await runLoop({ model, tools: [job, pick], input: 'Go.' });
    expect([result.waiting.length, result.wakeAt]).toEqual([2, undefined]);
  });

  test('is absent if such a tool is parked in a child run', async () => {
    const job = tool({ name: 'job', description: '', execute: () => new Parked('x', [], { wakeAt: 5 }) });
    const model = scriptedModel([{ calls: [{ name: 'job' }] }]);
    const child = agentTool({ name: 'child', description: '', model, tools: [job] });
    const calling = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'x' } }] }]);
    const result = await runLoop({ model: calling, tools: [child], input: 'Go.' });
    expect([result.waiting.length, result.wakeAt]).toEqual([1, undefined]);
  });

  test('of an entry is checked by a replay', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(1_000)];
    await sleeping(journal, clock, 'a', 60);
    const entries = await journal.read('a');
    expect(replay(entries).type).toBe('replayed');
    const { wakeAt: _, ...older } = entries.at(-1)!;
    expect(replay([...entries.slice(0, -1), older]).type).toBe('replayed');
    expect(replay([...entries.slice(0, -1), { ...older, wakeAt: 7 }])).toMatchObject({
      type: 'diverged',
      difference: 'the run was to be woken at 7; now it is at 61000',
    });
  });

  test('of a child run is that of its parent, which resumes it', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(1_000)];
    const child = (...script: Parameters<typeof scriptedModel>[0]) =>
      agentTool({ name: 'child', description: '', model: scriptedModel(script), tools: [sleepTool({ clock })] });
    const sleep = { calls: [{ name: 'sleep', arguments: { seconds: 60 } }] };
    await runLoop({
      model: scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'x' } }] }]),
      tools: [child(sleep)],
      journal,
      clock,
      runId: 'a',
      input: 'Go.',
    });
    const due = await journal.list({ due: { to: Infinity } });
    expect(due.map(({ runId, wakeAt }) => [runId, wakeAt])).toEqual([['a', 61_000]]);
    await clock.advance(60_000);
    const options = () => ({ model: scriptedModel(['Done.']), tools: [child('Child awake.')] });
    const [woken] = await resumeDue(journal, options, { clock });
    expect(woken).toMatchObject({ type: 'resumed', runId: 'a', result: { text: 'Done.' } });
  });

  test('a fork of a run that sleeps wakes on its own', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(1_000)];
    await sleeping(journal, clock, 'a', 60);
    await forkRun({ journal, runId: 'a', at: 2, newRunId: 'b' });
    await clock.advance(60_000);
    const woken = await resumeDue(journal, awake(clock), { clock });
    expect(woken.map(({ type, runId }) => `${type} ${runId}`).toSorted()).toEqual(['resumed a', 'resumed b']);
  });
});

describe('resumeDue', () => {
  test('resumes the runs that are due, and no others', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    for (const seconds of [10, 20, 30]) await sleeping(journal, clock, `after ${seconds}`, seconds);
    expect(await resumeDue(journal, awake(clock), { clock })).toEqual([]);
    await clock.advance(20_000);
    const woken = await resumeDue(journal, awake(clock), { clock });
    expect(woken.map(({ runId }) => runId)).toEqual(['after 10', 'after 20']);
    expect(woken).toMatchObject([{ type: 'resumed', result: { text: 'Awake.' } }, { type: 'resumed' }]);
    expect(await resumeDue(journal, awake(clock), { clock })).toEqual([]);
  });

  test('lets one of several processes resume a run', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    await sleeping(journal, clock, 'a', 10);
    await clock.advance(10_000);
    const both = await Promise.all([1, 2].map(() => resumeDue(journal, awake(clock), { clock })));
    expect(
      both
        .flat()
        .map(({ type }) => type)
        .toSorted(),
    ).toEqual(['driven', 'resumed']);
  });

  test('leaves a run that another process has resumed since it was listed', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    await sleeping(journal, clock, 'a', 9);
    await sleeping(journal, clock, 'b', 10);
    await clock.advance(10_000);
    // Another process resumes both of them between the look and the resume.
    const late = (run: RunSummary) => async (store: RunStore) => {
      await resumeDue(journal, awake(clock), { clock });
      return runLoop({ ...awake(clock)(), journal: store, clock, runId: run.runId });
    };
    const woken = await resumeDue(journal, (run) => (run.runId === 'a' ? late(run) : awake(clock)()), {
      clock,
      maxParallel: 1,
    });
    expect(woken).toEqual(['a', 'b'].map((runId) => ({ type: 'driven', runId })));
    expect((await journal.list()).map(({ status }) => status)).toEqual(['completed', 'completed']);
  });

  test('is not stopped by a run that fails or has no code, and passes a run to a function', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    for (const runId of ['fails', 'unknown', 'throws', 'mine', 'other']) await sleeping(journal, clock, runId, 10);
    await clock.advance(10_000);
    const resume = ({ runId }: RunSummary) => {
      if (runId === 'unknown') return undefined;
      if (runId === 'throws') throw new Error('no code');
      const code = awake(clock)();
      if (runId === 'fails') return { ...code, tools: [] };
      return runId === 'mine' ? () => runLoop({ ...code, journal, clock, runId }) : code;
    };
    const woken = await resumeDue(journal, resume, { clock });
    expect(Object.fromEntries(woken.map((run) => [run.runId, run.type]))).toEqual({
      fails: 'failed',
      unknown: 'left',
      throws: 'failed',
      mine: 'resumed',
      other: 'resumed',
    });
    expect(woken.find(({ runId }) => runId === 'fails')).toMatchObject({ error: { code: 'tools-changed' } });
    expect(await journal.list({ due: { to: clock.now() } })).toHaveLength(3);
  });

  test.each([[undefined], [{ journal: memoryJournal() }], [memoryJournal()]])('rejects %j alone', async (store) => {
    await expect(resumeDue(store as never, undefined as never)).rejects.toMatchObject({
      code: 'invalid-options',
      message: expect.stringContaining('Call resumeDue(store, (run) =>'),
    });
  });

  test.each([0, -1, Number.NaN, 1.5])('rejects maxParallel %d, with which it could not end', async (maxParallel) => {
    const error = {
      code: 'invalid-options',
      message: `maxParallel is ${maxParallel}. Use a whole number of at least 1.`,
    };
    const [journal, clock] = [memoryJournal(), manualClock()];
    await expect(resumeDue(journal, awake(clock), { clock, maxParallel })).rejects.toMatchObject(error);
    expect(() => wakeRuns(journal, awake(clock), { clock, maxParallel })).toThrow(expect.objectContaining(error));
  });

  test('resumes at most maxParallel runs at once, also if more of them are due than a page has', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    for (let run = 0; run < 230; run++) await sleeping(journal, clock, `run ${run}`, run < 210 ? 10 : 11);
    await clock.advance(60_000);
    let [running, most] = [0, 0];
    const woken = await resumeDue(
      journal,
      ({ runId }) =>
        async () => {
          most = Math.max(most, ++running);
          const result = await runLoop({ ...awake(clock)(), journal, clock, runId });
          running--;
          return result;
        },
      { clock, maxParallel: 3 },
    );
    expect([woken.length, most]).toEqual([230, 3]);
  });

  test('a clock that was set back resumes nothing, and the run is due later', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(100_000)];
    await sleeping(journal, clock, 'a', 10);
    expect(await resumeDue(journal, awake(manualClock(0)), { clock: manualClock(0) })).toEqual([]);
    // The look sees the time, and the run does not, because the clock jumps back in between.
    const early = manualClock(100_000);
    const [woken] = await resumeDue(journal, () => ({ ...awake(early)(), clock: early }), { clock: manualClock(DAY) });
    expect(woken).toMatchObject({ type: 'resumed', result: { wakeAt: 110_000 } });
    expect(await resumeDue(journal, awake(manualClock(DAY)), { clock: manualClock(DAY) })).toMatchObject([
      { type: 'resumed', result: { text: 'Awake.' } },
    ]);
  });
});

describe('wakeRuns', () => {
  test('wakes each run at its time, with one timer', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    const woken: string[] = [];
    const onWoken = ({ type, runId }: DueRun) => void woken.push(`${clock.now()} ${type} ${runId}`);
    await sleeping(journal, clock, 'short', 3);
    await sleeping(journal, clock, 'first', 25);
    await sleeping(journal, clock, 'second', 25);
    const waker = wakeRuns(journal, awake(clock), { clock, onWoken });
    await clock.advance(2_999);
    expect([woken, clock.pending]).toEqual([[], 1]);
    await clock.advance(1);
    expect(woken).toEqual(['3000 resumed short']);
    await clock.advance(22_000);
    expect(woken.slice(1).toSorted()).toEqual(['25000 resumed first', '25000 resumed second']);
    await waker.stop();
    expect(clock.pending).toBe(0);
  });

  test('looks at most once a second, also if a run stays due', async () => {
    const [store, clock] = [memoryJournal(), manualClock(0)];
    await sleeping(store, clock, 'a', 1);
    const looks: number[] = [];
    const journal: RunStore = {
      ...store,
      list: (filter) => (filter?.due?.from === -Infinity && looks.push(clock.now()), store.list(filter)),
    };
    const waker = wakeRuns(journal, () => undefined, { clock, pollMs: 1 });
    for (let i = 0; i < 10; i++) {
      waker.look();
      await clock.advance(500);
    }
    await waker.stop();
    expect(looks.length).toBeLessThanOrEqual(6);
    expect(looks.every((at, index) => index === 0 || at - looks[index - 1]! >= 1_000)).toBe(true);
  });

  test('finds what other processes store by its poll, and what this one stores at once', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    const woken: string[] = [];
    const onWoken = ({ runId }: DueRun) => void woken.push(`${clock.now()} ${runId}`);
    const waker = wakeRuns(journal, awake(clock), { clock, onWoken });
    await clock.advance(1_500);
    await sleeping(journal, clock, 'mine', 2);
    waker.look();
    await sleeping(journal, clock, 'other', 3);
    await clock.advance(20_000);
    await waker.stop();
    expect(woken).toEqual(['3500 mine', '4500 other']);
  });

  test('a run that takes long does not delay the others', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    for (const [runId, seconds] of [
      ['long', 2],
      ['short', 4],
    ] as const)
      await sleeping(journal, clock, runId, seconds);
    const long = Promise.withResolvers<never>();
    const woken: string[] = [];
    const waker = wakeRuns(journal, ({ runId }) => (runId === 'long' ? () => long.promise : awake(clock)()), {
      clock,
      onWoken: ({ type, runId }) => void woken.push(`${type} ${runId}`),
    });
    await clock.advance(5_000);
    expect(woken).toEqual(['resumed short']);
    long.reject(new Error('stopped'));
    await waker.stop();
    expect(woken).toEqual(['resumed short', 'failed long']);
  });

  test('runs that cannot be resumed do not delay others, and are tried again with the next poll', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    for (let run = 0; run < 25; run++) await sleeping(journal, clock, `old ${run}`, 1);
    for (const seconds of [2, 4]) await sleeping(journal, clock, `new ${seconds}`, seconds);
    const woken: string[] = [];
    const waker = wakeRuns(
      journal,
      ({ runId }) => ({ ...awake(clock)(), ...(runId.startsWith('old') && { tools: [] }) }),
      {
        clock,
        maxParallel: 3,
        onWoken({ type, runId }) {
          woken.push(`${clock.now()} ${type} ${runId.slice(0, 3)}`);
          throw new Error('ignored');
        },
      },
    );
    await clock.advance(19_999);
    await waker.stop();
    const count = (what: string) => woken.filter((one) => one === what).length;
    expect(woken.filter((one) => one.endsWith('new'))).toEqual(['2000 resumed new', '4000 resumed new']);
    expect([count('1000 failed old'), woken.length]).toEqual([25, 52]);
  });

  test('reports a store that cannot be read, and looks again', async () => {
    const [store, clock] = [memoryJournal(), manualClock(0)];
    await sleeping(store, clock, 'a', 1);
    let isDown = true;
    const journal: RunStore = {
      ...store,
      list: (filter) => (isDown ? Promise.reject(new Error('down')) : store.list(filter)),
    };
    const said: unknown[] = [];
    const waker = wakeRuns(journal, awake(clock), {
      clock,
      onWoken: ({ type }) => void said.push(type),
      onError: (error) => void said.push((error as Error).message),
    });
    await clock.advance(1_000);
    isDown = false;
    await clock.advance(10_000);
    await waker.stop();
    expect(said).toEqual(['down', 'resumed']);
  });
});

describe('sleepTool', () => {
  test('sleeps until its time over any number of resumes, and then continues', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    await sleeping(journal, clock, 'a', 7 * 86_400);
    for (let day = 1; day < 7; day++) {
      await clock.advance(DAY);
      const again = await runLoop({ ...awake(clock)(), model: scriptedModel([]), journal, clock, runId: 'a' });
      expect(again.wakeAt).toBe(7 * DAY);
    }
    await clock.advance(DAY);
    const result = await runLoop({ ...awake(clock)(), journal, clock, runId: 'a' });
    expect([result.text, resultTexts(result)]).toEqual(['Awake.', ['The time has passed.']]);
  });

  test.for([
    [{ seconds: 0 }, 'The time has passed.'],
    [{ seconds: 11 }, 'The tool "nap" failed: The longest time is 10 seconds. Sleep less.'],
    [{ seconds: -1 }, 'The tool "nap" was not called. Its arguments are not valid'],
    [{}, 'The tool "nap" was not called. Its arguments are not valid'],
  ] as const)('%s: %s', async ([args, text]) => {
    const model = scriptedModel([{ calls: [{ name: 'nap', arguments: args }] }, 'Done.']);
    const result = await runLoop({ model, tools: [sleepTool({ name: 'nap', maxMs: 10_000 })], input: 'Go.' });
    expect(resultTexts(result)[0]).toContain(text);
  });
});

describe('retryLater', () => {
  const failure = (retryable: boolean, retryAfterMs?: number) => () => ({
    type: 'failure' as const,
    error: {
      code: 'rate-limit' as const,
      message: 'Wait.',
      retryable,
      ...(retryAfterMs !== undefined && { retryAfterMs }),
    },
  });

  test('a run whose model asks to wait is due after that time, and its model is called again', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(1_000)];
    const run = { journal, clock, runId: 'a' };
    const first = await runLoop({
      ...run,
      model: scriptedModel([failure(true, 600_000)]),
      input: 'Go.',
      retryLater: true,
    });
    expect(first).toMatchObject({ outcome: { type: 'failed', error: { code: 'rate-limit' } }, wakeAt: 601_000 });
    expect(await journal.list()).toMatchObject([{ status: 'failed', wakeAt: 601_000 }]);
    expect(await resumeDue(journal, () => ({ model: scriptedModel([]) }), { clock })).toEqual([]);
    await clock.advance(600_000);
    const again = () => ({ model: scriptedModel([failure(true, 60_000)]) });
    expect(await resumeDue(journal, again, { clock })).toMatchObject([{ result: { wakeAt: 661_000 } }]);
    await clock.advance(60_000);
    const [woken] = await resumeDue(journal, () => ({ model: scriptedModel(['Done.']) }), { clock });
    expect(woken).toMatchObject({ type: 'resumed', result: { text: 'Done.', outcome: { type: 'completed' } } });
    expect(await journal.list({ due: { to: Infinity } })).toEqual([]);
  });

  test('a run is not due any more after so many retries in a row, and starts again if it is resumed by hand', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    const run = { journal, clock, runId: 'a' };
    const model = () => scriptedModel([failure(true, 100)]);
    await runLoop({ ...run, model: model(), input: 'Go.', retryLater: 2 });
    const dues: (number | undefined)[] = [];
    for (let retry = 0; retry < 2; retry++) {
      await clock.advance(100);
      const [woken] = await resumeDue(journal, () => ({ model: model() }), { clock });
      dues.push(woken?.type === 'resumed' ? woken.result.wakeAt : Number.NaN);
    }
    expect(dues).toEqual([200, undefined]);
    expect(await journal.list({ due: { to: Infinity } })).toEqual([]);
    expect(await runLoop({ ...run, model: model() })).toMatchObject({ wakeAt: 300 });
  });

  test('a reply starts the count of retries again', async () => {
    const [journal, clock] = [memoryJournal(), manualClock(0)];
    const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'nothing' });
    const run = { journal, clock, runId: 'a', tools: [look] };
    await runLoop({ ...run, model: scriptedModel([failure(true, 100)]), input: 'Go.', retryLater: 1 });
    const calling = { calls: [{ name: 'look' }] };
    expect(await runLoop({ ...run, model: scriptedModel([calling, failure(true, 100)]) })).toMatchObject({
      wakeAt: 100,
    });
    expect((await runLoop({ ...run, model: scriptedModel([failure(true, 100)]) })).wakeAt).toBeUndefined();
  });

  test.each([-1, 0.5])('rejects %d retries', async (retryLater) => {
    const started = async () => runLoop({ model: scriptedModel([]), input: 'Go.', retryLater });
    await expect(started()).rejects.toMatchObject({ code: 'invalid-options' });
  });

  test.for([
    ['without the option', {}, failure(true, 5)],
    ['if the model does not say how long to wait', { retryLater: true }, failure(true)],
    ['if it makes no sense to try again', { retryLater: true }, failure(false, 5)],
  ] as const)('a run is not due %s', async ([, option, failed]) => {
    const result = await runLoop({ model: scriptedModel([failed]), input: 'Go.', ...option });
    expect([result.outcome?.type, result.wakeAt]).toEqual(['failed', undefined]);
  });
});
