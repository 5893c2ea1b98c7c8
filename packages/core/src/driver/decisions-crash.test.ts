import { expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import type { Journal, JournalEntry } from '../journal/port.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

/** Runs to the end, and returns a journal with the first entries of the run, as after a crash. */
async function crashedAfter(entries: number, options: Omit<LoopOptions, 'input'>): Promise<Journal> {
  const journal = memoryJournal();
  await runLoop({ input: 'Go.', ...options, journal, runId: 'run' });
  return copyOf((await journal.read('run')).slice(0, entries));
}

async function copyOf(entries: readonly JournalEntry[]): Promise<Journal> {
  const copy = memoryJournal();
  await copy.append('run', entries);
  return copy;
}

/** The tool `act`, and the keys under which it ran. */
function actTool(definition: Partial<ToolDefinition>): { readonly act: Tool; readonly keys: string[] } {
  const keys: string[] = [];
  const act = tool({
    name: 'act',
    description: 'Acts',
    ...definition,
    execute: (_, { key }) => `acted ${keys.push(key)}`,
  });
  return { act, keys };
}

const callAct: ScriptStep = { calls: [{ name: 'act' }] };
const typesOf = async (journal: Journal): Promise<readonly string[]> =>
  (await journal.read('run')).map(({ event }) => event.type);

const INTERRUPTED =
  'The call of "act" was interrupted, and it is not known whether it took effect. Find out before you call it again.';

/** After `run-started` and `model-replied`: the call was issued, and it is not known whether it ran. */
const DURING_CALL = 2;

test.each(['pure', 'idempotent'] as const)(
  'crash: a tool with effect %s runs again under the same key',
  async (effect) => {
    const { act, keys } = actTool({ effect });
    const journal = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [act] });
    using model = scriptedModel(['Done.']);
    const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
    expect(keys).toEqual(['run/t1.tool.0', 'run/t1.tool.0']);
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2, calls: 1 });
    expect(resultTexts(result)).toEqual(['acted 2']);
    expect(await typesOf(journal)).toEqual([
      'run-started',
      'model-replied',
      'effect-lost',
      'tool-settled',
      'model-replied',
    ]);
  },
);

test('crash: a once tool, which is the default, does not run again', async () => {
  const { act, keys } = actTool({});
  const journal = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [act] });
  using model = scriptedModel(['Let me see.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(keys).toEqual(['run/t1.tool.0']);
  expect(resultTexts(result)).toEqual([INTERRUPTED]);
  expect(result.outcome).toEqual({ type: 'completed' });
});

type Verify = NonNullable<ToolDefinition['verify']>;
const throwing = (): never => {
  throw new Error('no network');
};

test.each<[string, Verify, string, number]>([
  ['done', () => ({ type: 'done', result: { receipt: 7 } }), '{"receipt":7}', 1],
  ['done, asynchronously', async () => ({ type: 'done', result: 'ok' }), 'ok', 1],
  ['not done', () => ({ type: 'not-done' }), 'acted 2', 2],
  ['unknown', () => ({ type: 'unknown' }), INTERRUPTED, 1],
  ['undefined', () => undefined as never, INTERRUPTED, 1],
  ['an exception', throwing, INTERRUPTED, 1],
  ['a rejection', async () => throwing(), INTERRUPTED, 1],
])('crash: a once tool with verify is verified first; verify returns %s', async (_, verify, text, runs) => {
  const verified: string[] = [];
  const { act, keys } = actTool({ verify: (input, context) => (verified.push(context.key), verify(input, context)) });
  const journal = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [act] });
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(verified).toEqual(['run/t1.tool.0']);
  expect(keys).toEqual(Array.from({ length: runs }, () => 'run/t1.tool.0'));
  expect(resultTexts(result)).toEqual([text]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 1 });
});

test.each(['once', 'idempotent'] as const)(
  'crash: a %s tool knows who was to execute the call before',
  async (effect) => {
    const recipients: (string | undefined)[] = [];
    const actFor = (recipient: string): Tool =>
      tool({
        name: 'act',
        description: 'Acts',
        effect,
        recipient: () => recipient,
        execute: (_, context) => (recipients.push(context.recipient), 'acted'),
        verify: (_, context) => (recipients.push(context.recipient), { type: 'unknown' }),
      });
    const journal = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [actFor('first')] });
    using model = scriptedModel([callAct, 'Done.']);
    await runLoop({ model, tools: [actFor('second')], journal, runId: 'run', answers: [] });
    expect(recipients).toEqual(['first', 'first', 'second']);
  },
);

test('a call whose tool cannot say who would execute it runs without that', async () => {
  const { act } = actTool({
    recipient: () => {
      throw new Error('no');
    },
  });
  const result = await runLoop({ input: 'Go.', model: scriptedModel([callAct, 'Done.']), tools: [act] });
  expect(resultTexts(result)).toEqual(['acted 1']);
});

test('crash: a once tool whose verification times out is answered as interrupted', async () => {
  const clock = manualClock();
  const { act, keys } = actTool({ verify: () => new Promise(() => {}), timeoutMs: 100 });
  const journal = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [act], clock });
  using model = scriptedModel(['Done.']);
  const run = runLoop({ model, tools: [act], journal, runId: 'run', answers: [], clock });
  await clock.advance(100);
  expect(resultTexts(await run)).toEqual([INTERRUPTED]);
  expect(keys).toHaveLength(1);
});

test('crash: a once tool that is missing in this process is answered as interrupted', async () => {
  const { act, keys } = actTool({ verify: () => ({ type: 'not-done' }) });
  const journal = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [act] });
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, journal, runId: 'run', answers: [], acceptChangedTools: true });
  expect(resultTexts(result)).toEqual([INTERRUPTED]);
  expect(keys).toHaveLength(1);
});

test('crash during a verification: the call is verified again, and does not run', async () => {
  const clock = manualClock();
  let answer: ReturnType<Verify> = new Promise(() => {});
  const { act, keys } = actTool({ verify: () => answer });
  const first = await crashedAfter(DURING_CALL, { model: scriptedModel([callAct, 'x']), tools: [act], clock });
  void streamLoop({ model: scriptedModel([]), tools: [act], journal: first, runId: 'run', answers: [], clock });
  await clock.advance(0);
  const second = await copyOf(await first.read('run'));
  expect(await typesOf(second)).toEqual(['run-started', 'model-replied', 'effect-lost']);
  answer = { type: 'done', result: 'found' };
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal: second, runId: 'run', answers: [] });
  expect(resultTexts(result)).toEqual(['found']);
  expect(keys).toHaveLength(1);
});

test('crash: queued calls run, and settled calls keep their results', async () => {
  const { act, keys } = actTool({});
  const options = {
    model: scriptedModel([{ calls: [{ name: 'act' }, { name: 'act' }, { name: 'act' }] }, 'x']),
    tools: [act],
  };
  const journal = await crashedAfter(3, { ...options, maxParallel: 1 });
  expect(await typesOf(journal)).toEqual(['run-started', 'model-replied', 'tool-settled']);
  keys.length = 0;
  using model = scriptedModel(['Done.']);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(resultTexts(result)).toEqual(['acted 1', INTERRUPTED, 'acted 1']);
  expect(keys).toEqual(['run/t1.tool.2']);
});

test('crash during a model call: the model is called again with the same key and messages', async () => {
  const { act } = actTool({});
  const before = scriptedModel([callAct, 'x']);
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

test('crash while the policy judges: the policy is called again, and may decide differently', async () => {
  const { act, keys } = actTool({});
  const allowing = { judge: () => [{ type: 'allow' } as const] };
  const denying = { judge: () => [{ type: 'deny', reason: 'not today' } as const] };
  const journal = await crashedAfter(2, { model: scriptedModel([callAct, 'x']), tools: [act], policy: allowing });
  keys.length = 0;
  using model = scriptedModel(['Then not.', 'Then not.']);
  const options = { model, tools: [act], runId: 'run', answers: [] };
  const copy = await copyOf(await journal.read('run'));
  expect(resultTexts(await runLoop({ ...options, journal, policy: denying }))).toEqual([
    'The call of "act" was denied: not today',
  ]);
  expect(resultTexts(await runLoop({ ...options, journal: copy }))).toEqual([
    'The call of "act" was denied: the policy failed: the run was started with a policy, and was resumed without one',
  ]);
  expect(keys).toEqual([]);
});

test('crash after any entry: a run of pure tools ends the same', async () => {
  const { act } = actTool({ effect: 'pure' });
  const same = tool({ ...act, execute: () => 'the same' });
  const script: ScriptStep[] = [{ calls: [{ name: 'act' }, { name: 'act' }] }, callAct, 'Done.'];
  const journal = memoryJournal();
  const whole = await runLoop({ model: scriptedModel(script), tools: [same], input: 'Go.', journal, runId: 'run' });
  const entries = await journal.read('run');
  expect(entries.length).toBeGreaterThan(6);
  for (let count = 1; count <= entries.length; count++) {
    const copy = await copyOf(entries.slice(0, count));
    const replies = entries.slice(0, count).filter(({ event }) => event.type === 'model-replied').length;
    const model = scriptedModel(script.slice(replies).map((step, index) => withIds(step, replies + index)));
    const resumed = await runLoop({ model, tools: [same], journal: copy, runId: 'run', answers: [] });
    expect({ ...resumed, durationMs: 0 }).toEqual({ ...whole, durationMs: 0 });
    model.assertDone();
  }
});

/** Gives the calls of a step the ids that they have as the nth step of a script. */
function withIds(step: ScriptStep, n: number): ScriptStep {
  if (typeof step !== 'object' || !('calls' in step)) return step;
  return { ...step, calls: step.calls!.map((call, index) => ({ ...call, id: `call_${n}_${index}` })) };
}

test('crash: limits continue from the counts before it', async () => {
  const { act } = actTool({ effect: 'pure' });
  const n = (value: number): ScriptStep => ({ calls: [{ name: 'act', arguments: { value } }] });
  const options = { tools: [act], maxTurns: 3, limits: { calls: 2 } };
  const journal = await crashedAfter(4, { ...options, model: scriptedModel([n(1), n(2), 'x']) });
  using model = scriptedModel([n(3)]);
  const result = await runLoop({ model, tools: [act], journal, runId: 'run', answers: [] });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 3, calls: 2 });
  expect(resultTexts(result).at(-1)).toContain('all 2 tool calls of this run are used up');
});

test('crash: the time until the restart does not count', async () => {
  const clock = manualClock();
  const first = scriptedModel([async () => (await clock.advance(100), callAct), 'x']);
  const { act } = actTool({ effect: 'pure' });
  const journal = await crashedAfter(DURING_CALL, {
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
