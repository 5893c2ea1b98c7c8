import { expect, test } from 'vitest';
import type { Journal, JournalEntry } from '../journal/port.ts';
import { textOf } from '../messages.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { LoopOptions, LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

/** Runs to its end, and gives a copy of the journal as a crash after `kept` entries would have left it. */
async function crashedAfter(kept: number, options: Omit<LoopOptions, 'input'>): Promise<Journal> {
  const journal = memoryJournal();
  await runLoop({ input: 'Go.', ...options, journal, runId: 'run' });
  return copyOf((await journal.read('run')).slice(0, kept));
}

async function copyOf(entries: readonly JournalEntry[]): Promise<Journal> {
  const copy = memoryJournal();
  await copy.append('run', entries);
  return copy;
}

/** The tool `act`, and the keys under which it ran. */
function acting(definition: Partial<ToolDefinition>): { readonly act: Tool; readonly keys: string[] } {
  const keys: string[] = [];
  const act = tool({
    name: 'act',
    description: 'Acts',
    ...definition,
    execute: (_, { key }) => `acted ${keys.push(key)}`,
  });
  return { act, keys };
}

const calling: ScriptStep = { calls: [{ name: 'act' }] };
const wordsOf = ({ messages }: LoopResult): readonly string[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => textOf(content)) : []));
const typesOf = async (journal: Journal): Promise<readonly string[]> =>
  (await journal.read('run')).map(({ event }) => event.type);

const INTERRUPTED =
  'The call of "act" was interrupted, and it is not known whether it took effect. Find out before you call it again.';

// run-started, model-replied, then the crash: the call was issued and nobody knows how far it came
const DURING_THE_CALL = 2;

test.each(['pure', 'idempotent'] as const)('crash: a %s tool runs again under the same key', async (effect) => {
  const { act, keys } = acting({ effect });
  const journal = await crashedAfter(DURING_THE_CALL, { model: scriptedModel([calling, 'x']), tools: [act] });
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(keys).toEqual(['run/t1.tool.0', 'run/t1.tool.0']);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2, calls: 1 });
  expect(wordsOf(result)).toEqual(['acted 2']);
  expect(await typesOf(journal)).toEqual([
    'run-started',
    'model-replied',
    'effect-lost',
    'tool-settled',
    'model-replied',
  ]);
});

test('crash: a once tool, which is the default, is not run again', async () => {
  const { act, keys } = acting({});
  const journal = await crashedAfter(DURING_THE_CALL, { model: scriptedModel([calling, 'x']), tools: [act] });
  using model = scriptedModel(['Let me see.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(keys).toEqual(['run/t1.tool.0']);
  expect(wordsOf(result)).toEqual([INTERRUPTED]);
  expect(result.outcome).toEqual({ type: 'completed' });
});

type Verify = NonNullable<ToolDefinition['verify']>;
const throwing = (): never => {
  throw new Error('no network');
};

test.each<[string, Verify, string, number]>([
  ['done', () => ({ type: 'done', result: { receipt: 7 } }), '{"receipt":7}', 1],
  ['done, later', async () => ({ type: 'done', result: 'ok' }), 'ok', 1],
  ['not done', () => ({ type: 'not-done' }), 'acted 2', 2],
  ['unknown', () => ({ type: 'unknown' }), INTERRUPTED, 1],
  ['nothing sensible', () => undefined as never, INTERRUPTED, 1],
  ['by throwing', throwing, INTERRUPTED, 1],
  ['by rejecting', async () => throwing(), INTERRUPTED, 1],
])('crash: a once tool that can verify is asked first; it says %s', async (_, verify, words, runs) => {
  const asked: string[] = [];
  const { act, keys } = acting({ verify: (input, context) => (asked.push(context.key), verify(input, context)) });
  const journal = await crashedAfter(DURING_THE_CALL, { model: scriptedModel([calling, 'x']), tools: [act] });
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(asked).toEqual(['run/t1.tool.0']);
  expect(keys).toEqual(Array.from({ length: runs }, () => 'run/t1.tool.0'));
  expect(wordsOf(result)).toEqual([words]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 1 });
});

test('crash: a verification that takes too long settles nothing, so nobody knows', async () => {
  const clock = manualClock();
  const { act, keys } = acting({ verify: () => new Promise(() => {}), timeoutMs: 100 });
  const journal = await crashedAfter(DURING_THE_CALL, { model: scriptedModel([calling, 'x']), tools: [act], clock });
  using model = scriptedModel(['Done.']);
  const run = runLoop({ model, tools: [act], journal, runId: 'run', answers: [], clock });
  await clock.advance(100);
  expect(wordsOf(await run)).toEqual([INTERRUPTED]);
  expect(keys).toHaveLength(1);
});

test('crash: a tool that this process does not have cannot be verified by it', async () => {
  const { act, keys } = acting({ verify: () => ({ type: 'not-done' }) });
  const journal = await crashedAfter(DURING_THE_CALL, { model: scriptedModel([calling, 'x']), tools: [act] });
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, journal, runId: 'run', answers: [], acceptChangedTools: true });
  expect(wordsOf(result)).toEqual([INTERRUPTED]);
  expect(keys).toHaveLength(1);
});

test('crash while it is verified: it is verified again, never run', async () => {
  const clock = manualClock();
  let answer: ReturnType<Verify> = new Promise(() => {});
  const { act, keys } = acting({ verify: () => answer });
  const first = await crashedAfter(DURING_THE_CALL, { model: scriptedModel([calling, 'x']), tools: [act], clock });
  void streamLoop({ model: scriptedModel([]), tools: [act], journal: first, runId: 'run', answers: [], clock });
  await clock.advance(0);
  const second = await copyOf(await first.read('run'));
  expect(await typesOf(second)).toEqual(['run-started', 'model-replied', 'effect-lost']);
  answer = { type: 'done', result: 'found' };
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal: second, runId: 'run', answers: [] });
  expect(wordsOf(result)).toEqual(['found']);
  expect(keys).toHaveLength(1);
});

test('crash: calls that were still queued simply run; one that is done is not asked about', async () => {
  const { act, keys } = acting({});
  const options = {
    model: scriptedModel([{ calls: [{ name: 'act' }, { name: 'act' }, { name: 'act' }] }, 'x']),
    tools: [act],
  };
  const journal = await crashedAfter(3, { ...options, maxParallel: 1 });
  expect(await typesOf(journal)).toEqual(['run-started', 'model-replied', 'tool-settled']);
  keys.length = 0;
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(wordsOf(result)).toEqual(['acted 1', INTERRUPTED, 'acted 1']);
  expect(keys).toEqual(['run/t1.tool.2']);
});

test('crash while the model is asked: it is asked again, with the same key and the same messages', async () => {
  const { act } = acting({});
  const before = scriptedModel([calling, 'x']);
  const journal = await crashedAfter(3, { model: before, tools: [act] });
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(model.requests).toEqual([before.requests[1]]);
  expect(model.requests[0]!.key).toBe('run/t2.model.0');
  expect(result).toMatchObject({
    outcome: { type: 'completed' },
    turns: 2,
    usage: { inputTokens: 20, outputTokens: 10 },
  });
});

test('crash while the policy judges: it is asked again, and decides anew', async () => {
  const { act, keys } = acting({});
  const allowing = { judge: () => [{ type: 'allow' } as const] };
  const denying = { judge: () => [{ type: 'deny', reason: 'not today' } as const] };
  const journal = await crashedAfter(2, { model: scriptedModel([calling, 'x']), tools: [act], policy: allowing });
  keys.length = 0;
  using model = scriptedModel(['Then not.', 'Then not.']);
  const options = { model, tools: [act], runId: 'run', answers: [] };
  const forgotten = await copyOf(await journal.read('run'));
  expect(wordsOf(await runLoop({ ...options, journal, policy: denying }))).toEqual([
    'The call of "act" was denied: not today',
  ]);
  expect(wordsOf(await runLoop({ ...options, journal: forgotten }))).toEqual([
    'The call of "act" was denied: the policy failed: the run was started with a policy, and was resumed without one',
  ]);
  expect(keys).toEqual([]);
});

test('crash anywhere: a run of pure tools comes to the same end from every entry', async () => {
  const { act } = acting({ effect: 'pure' });
  const same = tool({ ...act, execute: () => 'the same' });
  const script: ScriptStep[] = [{ calls: [{ name: 'act' }, { name: 'act' }] }, calling, 'Done.'];
  const journal = memoryJournal();
  const whole = await runLoop({ model: scriptedModel(script), tools: [same], input: 'Go.', journal, runId: 'run' });
  const entries = await journal.read('run');
  expect(entries.length).toBeGreaterThan(6);
  for (let kept = 1; kept <= entries.length; kept++) {
    const copy = await copyOf(entries.slice(0, kept));
    const asked = entries.slice(0, kept).filter(({ event }) => event.type === 'model-replied').length;
    const model = scriptedModel(script.slice(asked).map((step, index) => withIds(step, asked + index)));
    const resumed = await runLoop({ model, tools: [same], journal: copy, runId: 'run', answers: [] });
    expect({ ...resumed, durationMs: 0 }).toEqual({ ...whole, durationMs: 0 });
    model.assertDone();
  }
});

/** The ids that the calls of a step have when it is the script's nth. */
function withIds(step: ScriptStep, n: number): ScriptStep {
  if (typeof step !== 'object' || !('calls' in step)) return step;
  return { ...step, calls: step.calls!.map((call, index) => ({ ...call, id: `call_${n}_${index}` })) };
}

test('crash: limits and counts go on where they were', async () => {
  const { act } = acting({ effect: 'pure' });
  const n = (value: number): ScriptStep => ({ calls: [{ name: 'act', arguments: { value } }] });
  const options = { tools: [act], maxTurns: 3, limits: { calls: 2 } };
  const journal = await crashedAfter(4, { ...options, model: scriptedModel([n(1), n(2), 'x']) });
  using model = scriptedModel([n(3)]);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 3, calls: 2 });
  expect(wordsOf(result).at(-1)).toContain('all 2 tool calls of this run are used up');
});

// ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

test('time: durationMs is the time of the model and the tools together', async () => {
  const clock = manualClock(5_000);
  const after = <T>(ms: number, value: T): Promise<T> => new Promise((end) => clock.timer(ms, () => end(value)));
  const act = tool({ name: 'act', description: 'act', execute: () => after(30, 'acted') });
  using model = scriptedModel([() => after(100, calling), 'Done.']);
  const run = runLoop({ model, tools: [act], input: 'Go.', clock });
  await clock.advance(130);
  expect(await run).toMatchObject({ durationMs: 130 });
});

test('time: events carry it from the clock', async () => {
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
const answers = [{ type: 'client-result', effect: 't1.client.0', content: 'b' }] as const;

test('time: what it is paused is left out, also for the limit', async () => {
  const clock = manualClock();
  const takes = (ms: number, step: ScriptStep) => async () => (await clock.advance(ms), step);
  const started = (last: number) => ({
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
    const surroundings = started(last);
    expect(await runLoop({ ...surroundings, input: 'Go.', limits: { durationMs: 150 } })).toMatchObject({
      durationMs: 100,
    });
    await clock.advance(86_400_000);
    expect(await runLoop({ ...surroundings, answers })).toMatchObject({ outcome, durationMs: 100 + last });
  }
});

test('time: the gap of a restart is left out', async () => {
  const clock = manualClock();
  const first = scriptedModel([async () => (await clock.advance(100), calling), 'x']);
  const { act } = acting({ effect: 'pure' });
  const journal = await crashedAfter(DURING_THE_CALL, {
    model: first,
    tools: [act],
    limits: { durationMs: 150 },
    clock,
  });
  await clock.advance(86_400_000);
  using model = scriptedModel([async () => (await clock.advance(20), 'Done.')]);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [], clock });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, durationMs: 120 });
});

test('time: limits.durationMs stops a tool that hangs, and answers its call', async () => {
  const clock = manualClock();
  let told: AbortSignal | undefined;
  const hang = tool({
    name: 'act',
    description: 'act',
    execute: (_, { signal }) => ((told = signal), new Promise(() => {})),
  });
  using model = scriptedModel([calling]);
  const run = runLoop({ model, tools: [hang], input: 'Go.', limits: { durationMs: 1_000 }, clock });
  await clock.advance(999);
  expect(told!.aborted).toBe(false);
  await clock.advance(1);
  const result = await run;
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' }, durationMs: 1_000 });
  expect(told!.aborted).toBe(true);
  expect(wordsOf(result)).toEqual(['Not finished: the run reached its limit of time.']);
  expect(clock.pending).toBe(0);
});

test('time: a run that ends in time leaves no timer behind', async () => {
  const clock = manualClock();
  using model = scriptedModel(['Done.']);
  await runLoop({ model, input: 'Go.', limits: { durationMs: 1_000 }, clock });
  expect(clock.pending).toBe(0);
});

test('time: a clock that goes back takes nothing away', async () => {
  const times = [1_000, 1_500, 200, 900];
  const clock = { ...manualClock(), now: () => times.shift() ?? 900 };
  using model = scriptedModel([calling, 'Done.']);
  const { act } = acting({ effect: 'pure' });
  expect(await runLoop({ model, tools: [act], input: 'Go.', clock })).toMatchObject({ durationMs: 500 });
});
