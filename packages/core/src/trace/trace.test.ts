import { expect, test } from 'vitest';
import { deny } from '../driver/make-answer.ts';
import type { LoopOptions } from '../driver/options.ts';
import { runLoop } from '../driver/run.ts';
import { entryLines, shownEntries } from '../describe/entry-lines.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { defineAgent } from '../agents/define.ts';
import { executeAgent } from '../agents/execute.ts';
import { traceIdOf } from '../journal/family.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { JournalEntry } from '../journal/port.ts';
import { replay } from '../journal/replay.ts';
import { waiting } from '../machine/effects.ts';
import { manualClock } from '../testing/manual-clock.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import {
  addMetrics,
  bucketOf,
  errorCount,
  HOUR_MS,
  metricsOf,
  NO_METRICS,
  percentile,
  UNKNOWN_TOOL,
  type Metrics,
} from './metrics.ts';
import { liveSteps } from './steps.ts';
import { traceOf, traceReader, type Trace } from './trace.ts';

const clock = manualClock(1_000);
const journal = memoryJournal();

/** Takes as long as its input says. */
const work = tool({
  name: 'work',
  description: '',
  input: { type: 'object', properties: { ms: { type: 'number' }, fails: { type: 'boolean' } } },
  effect: 'pure',
  execute: ({ ms, fails }) =>
    new Promise((resolve, reject) => {
      clock.timer(Number(ms), () => (fails === true ? reject(new Error('broken\nsecond line')) : resolve('done')));
    }),
});

type Options = Omit<LoopOptions, 'journal' | 'clock' | 'input'>;

async function journalOf(runId: string, options: Options): Promise<readonly JournalEntry[]> {
  const isNew = (await journal.read(runId)).length === 0;
  const running = runLoop({ ...(isNew && { input: 'go' }), ...options, runId, journal, clock });
  await clock.advance(1_000);
  await running;
  return journal.read(runId);
}

const working = (...calls: readonly { readonly ms: number; readonly fails?: boolean }[]) => ({
  calls: calls.map((input) => ({ name: 'work', arguments: input })),
});

const total = async (entries: readonly JournalEntry[]): Promise<Metrics> =>
  [...(await metricsOf(entries))!.values()].reduce(addMetrics, NO_METRICS);

const short = ({ failures }: Trace) =>
  failures.map(({ category, code, type, severity, recovery }) => [category, code, type, severity, recovery?.by]);

test('calls of one turn are actions, with what they gained by running at once', async () => {
  const model = scriptedModel([
    working({ ms: 100 }, { ms: 40 }, { ms: 60, fails: true }),
    working({ ms: 10 }),
    'Done.',
  ]);
  const entries = await journalOf('parallel', {
    model,
    tools: [work],
    task: 't',
    session: 's',
    definition: { name: 'worker', description: 'Works' },
    principal: { subject: 'key', tenant: 'acme', scopes: [] },
  });
  const trace = (await traceOf(entries))!;
  expect(trace).toMatchObject({
    runId: 'parallel',
    task: 't',
    session: 's',
    tenant: 'acme',
    subject: 'key',
    agent: 'worker',
    status: 'completed',
    startedAt: 1_000,
    endedAt: 1_110,
    durationMs: 110,
    turns: 3,
    calls: 4,
  });
  expect(trace.steps.map(({ turn, startedAt, endedAt }) => [turn, startedAt, endedAt])).toEqual([
    [1, 1_000, 1_100],
    [2, 1_100, 1_110],
    [3, 1_110, 1_110],
  ]);
  expect(trace.steps[0]!.actions.map(({ id, tool: name, status, ranMs }) => [id, name, status, ranMs])).toEqual([
    ['t1.0', 'work', 'succeeded', 100],
    ['t1.1', 'work', 'succeeded', 40],
    ['t1.2', 'work', 'failed', 60],
  ]);
  expect(trace.steps[0]!.work).toMatchObject([
    { effect: 't1.model.0', kind: 'model', reply: { finish: 'tool-calls' } },
  ]);
  expect(short(trace)).toEqual([['tool', 'F-EXE', 'execution_failed', 'low', 'success']]);

  const { loop, tools } = await total(entries);
  expect(loop).toEqual({
    runs: { completed: 1 },
    turns: 3,
    calls: 4,
    answerMs: 110,
    parallelBatches: 1,
    maxConcurrency: 3,
    wallTimeSavedMs: 100,
  });
  expect(tools['work']).toEqual({
    calls: 4,
    errors: { execution_failed: 1 },
    recovered: 1,
    ms: 210,
    ran: 4,
    buckets: { [bucketOf(100)]: 1, [bucketOf(40)]: 1, [bucketOf(60)]: 1, [bucketOf(10)]: 1 },
    lastError: { at: 1_060, type: 'execution_failed', message: 'The tool "work" failed: broken' },
  });
});

// Seed 000, section 6.1.
test('cases 17 and 18: each reply and each call is observed, and each turn is a step with an action for each call', async () => {
  const model = scriptedModel([working({ ms: 5 }, { ms: 7, fails: true }), working({ ms: 3 }), 'Done.']);
  const observed: string[] = [];
  const reader = traceReader();
  const next = liveSteps();
  const entries = await journalOf('observed', {
    model,
    tools: [work],
    onItem(item) {
      if (item.type === 'call-answered')
        observed.push(`${item.call.name} ${item.result.isError ? 'failed' : 'succeeded'}`);
      if (item.type !== 'fact') return;
      if (item.event.type === 'model-replied') observed.push(`reply ${item.event.finish}`);
      reader.add(next(item.seq, item.event)!);
    },
  });
  expect(observed).toEqual([
    'reply tool-calls',
    'work succeeded',
    'work failed',
    'reply tool-calls',
    'work succeeded',
    'reply stop',
  ]);
  const trace = (await traceOf(entries))!;
  expect(reader.trace()).toEqual(trace);
  expect(
    trace.steps.map(({ turn, work: models, actions }) => [turn, models.length, actions.map(({ id }) => id)]),
  ).toEqual([
    [1, 1, ['t1.0', 't1.1']],
    [2, 1, ['t2.0']],
    [3, 1, []],
  ]);
  expect(trace).toMatchObject({ status: 'completed', failures: [{ effect: 't1.tool.1', category: 'tool' }] });
});

test('what is refused, denied or wrong has a category, a code and what the run recovered by', async () => {
  const model = scriptedModel([
    { calls: [{ name: 'nothing' }, { name: 'work', arguments: '{' }, { name: 'work', arguments: { ms: 5_000 } }] },
    working({ ms: 1 }),
    'Done.',
  ]);
  const entries = await journalOf('failures', { model, tools: [work], toolTimeoutMs: 50 });
  expect(short((await traceOf(entries))!)).toEqual([
    ['tool', 'F-INP', 'not_found', 'medium', undefined],
    ['validation', 'F-INP', 'invalid_params', 'low', 'success'],
    ['tool', 'F-TMO', 'timeout', 'low', 'success'],
  ]);
  const { tools } = await total(entries);
  expect(errorCount(tools['work']!)).toBe(2);
  expect([tools['work']!.ran, tools['work']!.recovered, tools[UNKNOWN_TOOL]!.ran]).toEqual([2, 2, 0]);
  expect(Object.keys(tools)).toEqual([UNKNOWN_TOOL, 'work']);
});

test('a call that a limit, the order of calls or a cancel has stopped is no failure of a policy or of the infrastructure', async () => {
  const twice = {
    calls: [
      { name: 'work', arguments: { ms: 1 } },
      { name: 'work', arguments: { ms: 2 } },
    ],
  };
  const limited = await journalOf('calls', { model: scriptedModel([twice, 'x']), tools: [work], limits: { calls: 1 } });
  expect(short((await traceOf(limited))!)).toEqual([['limit', 'F-RES', 'denied', 'low', 'success']]);
  const none = await journalOf('none', {
    model: scriptedModel([working({ ms: 1 }), 'x']),
    tools: [work],
    toolChoice: 'none',
  });
  expect(short((await traceOf(none))!)).toEqual([['model', 'F-VAL', 'denied', 'medium', undefined]]);
  const agent = defineAgent({
    name: 'reflecting',
    description: 'Thinks again',
    model: scriptedModel([{ calls: [{ name: 'submit' }] }]),
    prompts: { user: 'go' },
    tools: { output: { name: 'answer', description: 'Answers', reflectionHandler: () => 'fine' } },
    validation: { outputSchema: { type: 'object' }, maxAttempts: 1 },
  });
  await executeAgent(agent, { input: undefined, journal, runId: 'early', clock });
  expect(short((await traceOf(await journal.read('early')))!)).toEqual([
    ['model', 'F-VAL', 'denied', 'medium', undefined],
    ['model', 'F-VAL', 'submit-before-output', 'high', undefined],
  ]);
  const late = await journalOf('expired', {
    model: scriptedModel([working({ ms: 5_000 })]),
    tools: [work],
    limits: { durationMs: 100 },
  });
  expect(short((await traceOf(late))!)).toEqual([
    ['limit', 'F-TMO', 'interrupted', 'medium', undefined],
    ['limit', 'F-TMO', 'duration', 'high', undefined],
  ]);
  const stop = new AbortController();
  const cancelled = await journalOf('cancelled', {
    model: scriptedModel([working({ ms: 5_000 })]),
    tools: [work],
    signal: stop.signal,
    onItem: ({ type }) => void (type === 'call-started' && stop.abort()),
  });
  const trace = (await traceOf(cancelled))!;
  expect([trace.status, trace.failures]).toEqual(['cancelled', []]);
});

test.each([
  ['denies', 10],
  ['is not there', 10_000],
])('a call that a person %s is one that a review has stopped', async (who, ms) => {
  const options = {
    model: scriptedModel([working({ ms: 1 }), 'Done.']),
    tools: [work],
    policy: { judge: () => [{ type: 'ask', ttlMs: 5_000 }] as const },
  };
  const asked = await journalOf(who, options);
  expect(asked.at(-1)!.status).toBe('paused');
  await clock.advance(ms);
  const answers = who === 'denies' ? [deny(waiting(replay(asked).state)[0]!)] : [];
  const entries = await journalOf(who, { ...options, model: scriptedModel(['Done.']), answers } as Options);
  expect(short((await traceOf(entries))!)).toEqual([['policy', 'F-REV', 'denied', 'medium', undefined]]);
});

test('a limit, a model and a guardrail that ended the run are failures of high severity', async () => {
  const limited = await journalOf('limited', {
    model: scriptedModel([working({ ms: 1 })]),
    tools: [work],
    maxTurns: 1,
  });
  expect(short((await traceOf(limited))!)).toEqual([['limit', 'F-RES', 'turns', 'high', undefined]]);
  const failure = { type: 'failure', error: { code: 'auth', message: 'no', retryable: false } } as const;
  const failed = await journalOf('failed', { model: { id: 'm', reply: () => Promise.resolve(failure) } });
  expect(short((await traceOf(failed))!)).toEqual([['model', 'F-SEC', 'auth', 'high', undefined]]);
  const guarded = await journalOf('guarded', { model: scriptedModel(['x']), guardrails: { output: [() => 'no'] } });
  expect(short((await traceOf(guarded))!)).toEqual([['policy', 'F-SEC', 'guardrail', 'high', undefined]]);
});

test('a run that its model failed, and that is resumed, has recovered, and nothing was lost', async () => {
  const error = { code: 'network', message: 'gone', retryable: true } as const;
  const attempts = [
    { model: 'm', ms: 1, error },
    { model: 'm', ms: 1, error },
  ];
  const failing = { id: 'm', reply: () => Promise.resolve({ type: 'failure', error, attempts } as const) };
  await journalOf('resumed', { model: failing });
  const entries = await journalOf('resumed', { model: scriptedModel(['Done.']) });
  expect(short((await traceOf(entries))!)).toEqual([
    ['model', 'F-DEP', 'network', 'low', 'resume'],
    ['model', 'F-DEP', 'network', 'low', 'resume'],
  ]);
  const lines = (await shownEntries(entries)).flatMap((shown) => entryLines(shown).map(({ head }) => head));
  expect(lines.filter((head) => head.startsWith('t1.model.0'))).toEqual(['t1.model.0 again']);
});

test('percentiles are at most a fifth too high', () => {
  const times = Array.from({ length: 1_000 }, (_, index) => index * 7 + 2);
  const buckets: Record<string, number> = {};
  for (const ms of times) buckets[bucketOf(ms)] = (buckets[bucketOf(ms)] ?? 0) + 1;
  for (const share of [0.01, 0.5, 0.9, 0.99, 1]) {
    const exact = times[Math.ceil(times.length * share) - 1]!;
    const found = percentile({ buckets, ran: times.length }, share)!;
    expect(found).toBeGreaterThanOrEqual(exact - 1);
    expect(found).toBeLessThanOrEqual(exact * 1.2 + 1);
  }
  expect(percentile({ buckets: {}, ran: 0 }, 0.5)).toBeUndefined();
  expect([0, 1, 2, 4, 8].map(bucketOf)).toEqual([0, 0, 4, 8, 12]);
});

test('what happened counts for the hour in which it did', async () => {
  const late = manualClock(HOUR_MS - 50);
  const slow = tool({
    name: 'slow',
    description: '',
    execute: () => new Promise((resolve) => void late.timer(100, () => resolve('done'))),
  });
  const model = scriptedModel([{ calls: [{ name: 'slow' }] }, 'Done.']);
  const running = runLoop({ input: 'go', model, tools: [slow], runId: 'late', journal, clock: late });
  await late.advance(1_000);
  await running;
  const hours = (await metricsOf(await journal.read('late')))!;
  expect([...hours.keys()]).toEqual([HOUR_MS]);
});

test('a fork counts only what it did itself', async () => {
  const quick = tool({ name: 'quick', description: '', effect: 'pure', execute: () => 'done' });
  const calling = (count: number) => ({ calls: Array.from({ length: count }, () => ({ name: 'quick' })) });
  const model = scriptedModel([calling(2), calling(1), 'Done.']);
  const original = await journalOf('original', { model, tools: [quick] });
  const { seq } = original.find(({ event }) => event.type === 'tool-settled')!;
  await clock.advance(1_000);
  await forkRun({ journal, runId: 'original', at: seq, newRunId: 'forked', clock });
  expect((await total(await journal.read('forked'))).tools).toEqual({});
  const answering = scriptedModel([calling(3), 'Done.']);
  await runLoop({ model: answering, tools: [quick], runId: 'forked', journal, clock });
  const { loop, tools } = await total(await journal.read('forked'));
  expect(tools['quick']!.calls).toBe(3);
  // The fork has asked the model twice.
  expect([loop.turns, loop.calls, loop.runs]).toEqual([2, 3, { completed: 1 }]);
});

test('an error is recovered by the run in which it happened, and not once more by its forks', async () => {
  const model = scriptedModel([working({ ms: 1, fails: true }), working({ ms: 1 }), 'Done.']);
  const original = await journalOf('fails', { model, tools: [work] });
  const { seq } = original.find(({ event }) => event.type === 'tool-settled')!;
  await clock.advance(1_000);
  await forkRun({ journal, runId: 'fails', at: seq, newRunId: 'fork', clock });
  await journalOf('fork', { model: scriptedModel([working({ ms: 40 }), 'Done.']), tools: [work] });
  await clock.advance(1_000);
  await forkRun({ journal, runId: 'fork', at: seq, newRunId: 'fork of fork', clock });
  await journalOf('fork of fork', {
    model: scriptedModel([working({ ms: 1, fails: true }), working({ ms: 70 }), 'Done.']),
    tools: [work],
  });
  const all = await Promise.all(['fails', 'fork', 'fork of fork'].map(async (id) => total(await journal.read(id))));
  expect(all.map(({ tools }) => [tools['work']!.calls, errorCount(tools['work']!), tools['work']!.recovered])).toEqual([
    [2, 1, 1],
    [1, 0, 0],
    [2, 1, 1],
  ]);
  // The time until the answer of a fork is that of its own turns.
  expect(all.map(({ loop }) => [loop.answerMs, loop.turns, loop.calls])).toEqual([
    [2, 3, 2],
    [40, 2, 1],
    [71, 3, 2],
  ]);
});

test('a recovery counts for the hour of the error, so that no rate of an hour is above 1', async () => {
  const late = manualClock(HOUR_MS - 50);
  const slow = tool({
    name: 'slow',
    description: '',
    effect: 'pure',
    execute: ({ fails }) =>
      new Promise((resolve, reject) => {
        late.timer(40, () => (fails === true ? reject(new Error('no')) : resolve('done')));
      }),
  });
  const model = scriptedModel([
    { calls: [{ name: 'slow', arguments: { fails: true } }] },
    { calls: [{ name: 'slow' }] },
    'Done.',
  ]);
  const running = runLoop({ input: 'go', model, tools: [slow], runId: 'recovers late', journal, clock: late });
  await late.advance(1_000);
  await running;
  const hours = (await metricsOf(await journal.read('recovers late')))!;
  expect([...hours].map(([hour, { tools }]) => [hour, tools['slow']!.calls, tools['slow']!.recovered])).toEqual([
    [0, 1, 1],
    [HOUR_MS, 1, 0],
  ]);
});

test('calls of child runs count once, for the child run', async () => {
  const quick = tool({ name: 'quick', description: '', effect: 'pure', execute: () => 'done' });
  const calls = { calls: [{ name: 'quick' }, { name: 'quick' }] };
  const helper = agentTool({
    name: 'helper',
    description: '',
    model: scriptedModel([calls, 'Helped.']),
    tools: [quick],
  });
  const model = scriptedModel([{ calls: [{ name: 'helper', arguments: { task: 'x' } }] }, 'Done.']);
  await journalOf('parent', { model, tools: [helper] });
  const own = await Promise.all(['parent', 'parent.t1.tool.0'].map(async (id) => total(await journal.read(id))));
  const { loop, tools } = own.reduce(addMetrics);
  expect([loop.turns, loop.calls, loop.runs]).toEqual([4, 3, { completed: 2 }]);
  expect([tools['helper']!.calls, tools['quick']!.calls]).toEqual([1, 2]);
});

test('a call that was lost took no known time, and the time in which nobody drove the run is no time of the call', async () => {
  const before = manualClock(1_000);
  const hanging = tool({ name: 'fetch', description: '', effect: 'pure', execute: () => new Promise(() => {}) });
  const model = scriptedModel([{ calls: [{ name: 'fetch' }] }, 'Done.']);
  const killed = memoryJournal();
  void runLoop({ input: 'go', model, tools: [hanging], runId: 'lost', journal: killed, clock: before });
  await before.advance(100);
  const after = manualClock(1_000 + 8 * HOUR_MS);
  const kept = memoryJournal();
  await kept.append('lost', await killed.read('lost'));
  const fetching = tool({
    name: 'fetch',
    description: '',
    effect: 'pure',
    execute: () => new Promise((resolve) => void after.timer(30, () => resolve('done'))),
  });
  const resumed = runLoop({
    model: scriptedModel(['Done.']),
    tools: [fetching],
    runId: 'lost',
    journal: kept,
    clock: after,
  });
  await after.advance(1_000);
  await resumed;
  const entries = await kept.read('lost');
  const { tools, loop } = await total(entries);
  expect(tools['fetch']).toMatchObject({ calls: 1, ms: 30, ran: 1, errors: {} });
  expect([loop.maxConcurrency, loop.parallelBatches, loop.wallTimeSavedMs]).toEqual([1, 0, 0]);
  const [action] = (await traceOf(entries))!.steps[0]!.actions;
  expect(action).toMatchObject({ status: 'succeeded', ranMs: 30, attempts: 2 });
});

test('tools can have the names of what every object has', async () => {
  const named = tool({ name: 'constructor', description: '', effect: 'pure', execute: () => 'done' });
  const model = scriptedModel([{ calls: [{ name: 'constructor' }, { name: 'constructor' }] }, 'Done.']);
  const { tools } = await total(await journalOf('names', { model, tools: [named] }));
  expect(tools['constructor']!.calls).toBe(2);
});

test('a run continues the trace that it was given, and child runs that of the run above', () => {
  const given = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  expect(traceIdOf({ runId: 'r', trace: given })).toBe('0af7651916cd43dd8448eb211c80319c');
  const root = traceIdOf({ runId: 'r' });
  expect(root).toMatch(/^[0-9a-f]{32}$/);
  const child = { runId: 'r.t1.tool.0.t2.tool.1', parent: { runId: 'r.t1.tool.0', effect: 't2.tool.1' } };
  expect(traceIdOf(child)).toBe(root);
  expect(traceIdOf({ runId: 'fork', parent: { runId: 'r', seq: 3 } })).toBe(root);
  expect(traceIdOf({ runId: 'other' })).not.toBe(root);
});
