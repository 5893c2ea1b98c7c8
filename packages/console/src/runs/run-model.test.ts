import {
  agentTool,
  forkRun,
  memoryJournal,
  Parked,
  runLoop,
  tool,
  type JournalEntry,
  type Model,
  type Policy,
  type RunStore,
} from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { comparedText, compareRuns } from './compare-runs.ts';
import { landmarksOf, laterWork, momentAt } from './moment.ts';
import type { Span } from '@treadle/core/trace';
import { runModel, type RunModel } from './run-model.ts';
import { axisOf, spanAt, nearestEntry, pathsOf, rowsOf, turnStarts } from './timeline.ts';

const echo = tool({
  name: 'echo',
  description: 'Returns its text',
  input: { type: 'object', properties: { text: { type: 'string' } } },
  effect: 'pure',
  execute: ({ text }) => String(text),
});
const fail = tool({ name: 'fail', description: '', execute: () => Promise.reject(new Error('broken')) });
const pay = tool({ name: 'pay', description: '', needsApproval: true, execute: () => 'paid' });
const echoing = (...texts: string[]) => ({ calls: texts.map((text) => ({ name: 'echo', arguments: { text } })) });

/** A clock that goes on by 10 ms each time it is read. */
const ticking = () => {
  let now = 1_000;
  return { now: () => (now += 10), timer: () => () => {}, skip: (ms: number) => void (now += ms) };
};

async function modelOf(store: RunStore, runId = 'r'): Promise<RunModel> {
  const model = runModel();
  // In two pieces, as it is loaded.
  const entries = await store.read(runId);
  model.add(entries.slice(0, 2));
  model.add(entries.slice(2));
  return model;
}

const short = ({ effect, kind, lane, problem }: Span): string => [effect, kind, lane, problem ?? 'ok'].join(' ');
const seqOf = ({ entries }: RunModel, type: string, from = 0): number =>
  entries.findIndex(({ event, seq }) => seq >= from && event.type === type);

describe('the timeline of a run', () => {
  test('has a lane for the model and one for each call in parallel, with what went wrong', async () => {
    const store = memoryJournal();
    const calls = [...echoing('a', 'b').calls, { name: 'fail' }];
    const model = scriptedModel([{ calls }, echoing('c'), 'Done.']);
    await runLoop({ model, tools: [echo, fail], input: 'go', journal: store, runId: 'r', clock: ticking() });
    const run = await modelOf(store);
    expect(run.spans.map(short)).toEqual([
      't1.model.0 model 0 ok',
      't1.tool.0 tool 1 ok',
      't1.tool.1 tool 2 ok',
      't1.tool.2 tool 3 error',
      't2.model.0 model 0 ok',
      't2.tool.0 tool 1 ok',
      't3.model.0 model 0 ok',
    ]);
    expect(run.lanes).toBe(4);
    expect(run.spans.every(({ start, end }) => end! > start)).toBe(true);
    expect(turnStarts(run)).toEqual([
      { turn: 1, seq: 0 },
      { turn: 2, seq: 4 },
      { turn: 3, seq: 6 },
    ]);
  });

  test('shows waits on the lane of their call, and compresses the time in which nothing happens', async () => {
    const store = memoryJournal();
    const clock = ticking();
    const options = { model: scriptedModel([{ calls: [{ name: 'pay' }] }, 'Done.']), tools: [pay], clock };
    const { waiting } = await runLoop({ ...options, input: 'go', journal: store, runId: 'r' });
    const [ask] = waiting;
    clock.skip(3_600_000);
    const answer = {
      type: 'approval',
      effect: ask!.effect,
      digest: (ask as { digest: string }).digest,
      approved: true,
    } as const;
    await runLoop({ ...options, journal: store, runId: 'r', answers: [answer] });
    const run = await modelOf(store);
    expect(run.spans.map(short)).toEqual([
      't1.model.0 model 0 ok',
      't1.judge.0 check 0 ok',
      't1.approval.0 wait 1 ok',
      't1.tool.0 tool 1 ok',
      't2.model.0 model 0 ok',
    ]);
    const axis = axisOf(run, 'time');
    expect(axis.gaps).toEqual([{ seq: seqOf(run, 'approval-given'), ms: expect.closeTo(3_600_000, -3) }]);
    expect(axis.length).toBeLessThan(1_000);
    expect(axisOf(run, 'entries').positions).toEqual(run.entries.map(({ seq }) => seq));
    for (const [seq, position] of axis.positions.entries()) expect(nearestEntry(axis, position)).toBe(seq);
    expect(axis.positionOf(run.times[3]!)).toBe(axis.positions[3]);
  });

  test('shows parked calls as waits, and that they continue', async () => {
    const store = memoryJournal();
    let isDone = false;
    const park = tool({
      name: 'park',
      description: '',
      effect: 'idempotent',
      execute: () => (isDone ? 'done' : new Parked('there')),
    });
    const options = { model: scriptedModel([{ calls: [{ name: 'park' }] }, 'Done.']), tools: [park], clock: ticking() };
    await runLoop({ ...options, input: 'go', journal: store, runId: 'r' });
    isDone = true;
    await runLoop({ ...options, journal: store, runId: 'r' });
    const run = await modelOf(store);
    expect(run.spans.map((span) => `${short(span)} ${span.repeats}`)).toEqual([
      't1.model.0 model 0 ok 0',
      't1.tool.0 tool 1 ok 0',
      't1.tool.0 wait 1 ok 0',
      't1.tool.0 tool 1 ok 1',
      't2.model.0 model 0 ok 0',
    ]);
    expect(landmarksOf(run).errors).toEqual([]);
  });

  test('shows the attempts of a model call that failed', async () => {
    const store = memoryJournal();
    const error = { code: 'overloaded', message: 'busy', retryable: true } as const;
    const attempts = [
      { model: 'm', ms: 10, error },
      { model: 'm', ms: 10, error },
      { model: 'm', ms: 20 },
    ];
    const inner = scriptedModel(['Done.']);
    const model: Model = { ...inner, reply: async (...given) => ({ ...(await inner.reply(...given)), attempts }) };
    await runLoop({ model, input: 'go', journal: store, runId: 'r', clock: ticking() });
    const run = await modelOf(store);
    const axis = axisOf(run, 'time');
    const rows = rowsOf(run, axis);
    expect(rows.spans.map(({ attempt, span }) => [attempt?.number, span.problem])).toEqual([
      [undefined, undefined],
      [1, 'error'],
      [2, 'error'],
    ]);
    const [whole, first, second] = rows.spans;
    expect(first!.from).toBe(whole!.from);
    expect(second!.from).toBeGreaterThanOrEqual(first!.to);
    expect(second!.to).toBeLessThan(whole!.to);
    expect(spanAt(rows, { row: 0, position: first!.from, tolerance: 0 })).toBe(first);
  });

  test('is drawn as five paths, without what is not visible, and finds the bar at a point', async () => {
    const run = runModel();
    run.add(longRun(600));
    const axis = axisOf(run, 'entries');
    const rows = rowsOf(run, axis, new Map([['r.t1.tool.0', run]]));
    const view = { from: 0, to: axis.length, width: 300, rowHeight: 20, barHeight: 12 };
    const paths = pathsOf(rows, view);
    expect(Object.keys(paths)).toEqual(['model', 'tool', 'wait', 'check', 'problem']);
    const count = (path: string): number => path.split('M').length - 1;
    expect(count(paths.tool)).toBeLessThan(2 * 299);
    expect(count(pathsOf(rows, { ...view, from: 0, to: 20 }).tool)).toBeLessThan(25);
    expect(rows.count).toBe(2 * run.lanes);
    const found = spanAt(rows, { row: 1, position: 1.5, tolerance: 0 });
    expect(found?.span.effect).toBe('t1.tool.0');
    expect(spanAt(rows, { row: 9, position: 1.5, tolerance: 0 })).toBeUndefined();
  });
});

describe('a moment', () => {
  const policy: Policy = {
    judge: (calls) =>
      calls.map(({ name }) =>
        name === 'fail' ? { type: 'deny', reason: 'never', rule: 'no-fail' } : { type: 'allow', rule: 'all' },
      ),
  };

  async function judgedRun(): Promise<RunModel> {
    const store = memoryJournal();
    const calls = [...echoing('a').calls, { name: 'fail' }];
    const model = scriptedModel([{ calls }, 'Done.']);
    const limits = { calls: 5, tokens: 1_000 };
    await runLoop({
      model,
      tools: [echo, fail],
      policy,
      instructions: 'Be brief.',
      limits,
      maxTurns: 4,
      input: 'go',
      journal: store,
      runId: 'r',
      clock: ticking(),
    });
    return modelOf(store);
  }

  test('has the verdict of a denial that ended its turn', async () => {
    const store = memoryJournal();
    const model = scriptedModel([{ calls: [{ name: 'fail' }] }, 'Done.']);
    await runLoop({ model, tools: [fail], policy, input: 'go', journal: store, runId: 'r' });
    const run = await modelOf(store);
    const seq = seqOf(run, 'calls-judged');
    expect(momentAt(run, seq)).toMatchObject({ turn: 2, judgedTurn: 1, verdicts: [{ verdict: { rule: 'no-fail' } }] });
    expect(momentAt(run, 0)).toMatchObject({ turn: 1, judgedTurn: 1, verdicts: [] });
    expect(momentAt(run, seq + 1)).toMatchObject({ turn: 2, judgedTurn: 2, verdicts: [] });
  });

  test('has the request as it was sent, and the reply only from the entry on that has it', async () => {
    const run = await judgedRun();
    const first = momentAt(run, 0)!;
    expect(first.request).toMatchObject({ seq: 0, effect: 't1.model.0', request: { instructions: 'Be brief.' } });
    expect(first.request!.request.messages).toHaveLength(1);
    expect(first.request!.request.tools.map(({ name }) => name)).toEqual(['echo', 'fail']);
    expect(first.reply).toBeUndefined();
    expect(momentAt(run, 1)!.reply).toMatchObject({ seq: 1, event: { type: 'model-replied' } });
    const last = momentAt(run, run.entries.length - 1)!;
    expect(last.request!.request.messages).toHaveLength(3);
    expect(last).toMatchObject({ status: 'completed', conversation: { length: 4 }, outstanding: [] });
  });

  test('has the verdicts with their rules, the open effects, the limits used and the results so far', async () => {
    const run = await judgedRun();
    const seq = seqOf(run, 'calls-judged');
    const moment = momentAt(run, seq)!;
    expect(moment.verdicts).toMatchObject([
      { call: { name: 'echo' }, verdict: { type: 'allow', rule: 'all' }, seq },
      { call: { name: 'fail' }, verdict: { type: 'deny', reason: 'never', rule: 'no-fail' }, seq },
    ]);
    expect(moment.outstanding).toMatchObject([{ effect: { id: 't1.tool.0' }, since: seq, waits: false }]);
    expect(moment.settled).toMatchObject([{ name: 'fail', isError: true }]);
    expect(moment.limits).toEqual([
      { name: 'turns', used: 1, limit: 4 },
      { name: 'calls', used: 1, limit: 5 },
      { name: 'tokens', used: 15, limit: 1_000 },
    ]);
    expect(landmarksOf(run)).toMatchObject({ errors: [], denials: [seq], mostExpensive: 1 });
  });

  test('counts what child runs used for the turn that started them', async () => {
    const store = memoryJournal();
    const used = (cost: number) => ({ inputTokens: 10, outputTokens: 5, cost });
    const child = scriptedModel([{ text: 'Found.', usage: used(0.005) }]);
    const ask = agentTool({ name: 'ask', description: '', model: child });
    const model = scriptedModel([
      { ...echoing('a'), usage: used(0.003) },
      { calls: [{ name: 'ask', arguments: { task: 'Look' } }], usage: used(0.001) },
      { text: 'Done.', usage: used(0.002) },
    ]);
    await runLoop({ model, tools: [echo, ask], input: 'go', journal: store, runId: 'r' });
    const run = await modelOf(store);
    expect(landmarksOf(run).mostExpensive).toBe(seqOf(run, 'model-replied', 2));
  });

  test('has what a guardrail stopped as a denial', async () => {
    const store = memoryJournal();
    const guardrails = { output: [() => 'It has a secret.'] };
    await runLoop({ model: scriptedModel(['The key is 1.']), guardrails, input: 'go', journal: store, runId: 'r' });
    const run = await modelOf(store);
    expect(landmarksOf(run).denials).toEqual([seqOf(run, 'guardrails-checked')]);
  });

  test('does not exist from the first entry on that does not replay', async () => {
    const store = memoryJournal();
    await runLoop({
      model: scriptedModel([echoing('a'), 'Done.']),
      tools: [echo],
      input: 'go',
      journal: store,
      runId: 'r',
    });
    const entries = await store.read('r');
    const run = runModel();
    run.add(entries.map((entry) => (entry.seq === 2 ? { ...entry, issued: ['t9.model.0'] } : entry)));
    expect(run.problem).toContain('At entry 2');
    expect([momentAt(run, 1)?.seq, momentAt(run, 2), run.shown.length]).toEqual([1, undefined, entries.length]);
  });
});

describe('a comparison', () => {
  test('marks the first divergence, pairs entries about the same effect, and says what would run again', async () => {
    const store = memoryJournal();
    const script = [echoing('a'), echoing('b'), 'Done.'];
    await runLoop({ model: scriptedModel(script), tools: [echo], input: 'go', journal: store, runId: 'a' });
    await forkRun({ journal: store, runId: 'a', at: 2, changes: { instructions: 'Other.' }, newRunId: 'b' });
    await runLoop({ model: scriptedModel([echoing('x'), 'Other.']), tools: [echo], journal: store, runId: 'b' });
    const [a, b] = [await store.read('a'), await store.read('b')];
    const { same, first, pairs } = compareRuns(a, b);
    expect([same, first]).toEqual([3, { a: undefined, b: 3, difference: undefined }]);
    expect(pairs.map((pair) => `${pair.a?.event.type} ${pair.b?.event.type}`).slice(0, 2)).toEqual([
      'undefined run-forked',
      'undefined effect-lost',
    ]);
    const replied = pairs.find((pair) => pair.a?.event.type === 'model-replied')!;
    expect(replied.b?.event.type).toBe('model-replied');
    expect([comparedText(replied.a!.event), comparedText(replied.b!.event)]).toEqual([
      'echo {\n  "text": "b"\n}',
      'echo {\n  "text": "x"\n}',
    ]);
    expect(compareRuns(a, a)).toEqual({ same: a.length, first: undefined, pairs: [] });
    const run = await modelOf(store, 'a');
    expect(laterWork(run, 2, [])).toEqual({ modelCalls: 2, calls: [{ tool: 'echo', effect: 'pure', count: 1 }] });
    expect(laterWork(run, 2, [3])).toMatchObject({ modelCalls: 1 });
    // The fork has not lost the call that it does not take over.
    const fork = await modelOf(store, 'b');
    expect(landmarksOf(fork).errors).toEqual([]);
    expect(fork.spans.map(short)).toEqual([
      't1.model.0 model 0 ok',
      't1.tool.0 tool 1 ok',
      't2.model.0 model 0 ok',
      't2.tool.0 tool 1 ok',
      't3.model.0 model 0 ok',
    ]);
    expect(fork.spans.every(({ repeats }) => repeats === 0)).toBe(true);
  });
});

/** A journal with this many entries: turns of one call each. */
function longRun(count: number): readonly JournalEntry[] {
  return cached.slice(0, count);
}
const store = memoryJournal();
await runLoop({
  model: scriptedModel([...Array.from({ length: 300 }, (_, index) => echoing(String(index))), 'Done.']),
  tools: [echo],
  input: 'go',
  journal: store,
  runId: 'r',
  maxTurns: 2_000,
});
const cached = await store.read('r');
