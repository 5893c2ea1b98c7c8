import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { forkRun } from '../journal/fork.ts';
import type { Item } from '../journal/items.ts';
import { memoryJournal } from '../journal/memory.ts';
import { memoryBudgets, type BudgetDefinition, type Budgets } from '../ledger/budgets.ts';
import type { Ledger, Spending } from '../ledger/port.ts';
import type { Waiting } from '../machine/state.ts';
import type { Touch } from '../policy/port.ts';
import { scriptedModel, type ScriptStep } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import { answer, approve, deny } from './make-answer.ts';
import type { ContinueOptions } from './options.ts';
import { runLoop, startLoop } from './run.ts';

const calling = { calls: [{ name: 'add' }] };
const NO_CALLS: BudgetDefinition = { limits: { calls: 0 }, atLimit: 'ask' };
const NO_TOKENS: BudgetDefinition = { limits: { tokens: 0 }, atLimit: 'ask' };
const LACK = 'The budget "acme" has 0 calls left of 0, and up to 1 are needed.';

interface Started {
  readonly budgets: Budgets;
  readonly ran: string[];
  readonly options: Omit<ContinueOptions, 'model' | 'ledger'> & { readonly ledger: Ledger };
  readonly start: (replies: readonly ScriptStep[], more?: object) => ReturnType<typeof runLoop>;
  readonly resume: (replies: readonly ScriptStep[], more?: object) => ReturnType<typeof runLoop>;
}

function open(definition: BudgetDefinition): Started {
  const budgets = memoryBudgets({ acme: definition });
  const ran: string[] = [];
  const add = tool({
    name: 'add',
    description: 'Adds',
    effect: 'idempotent',
    execute: (_, { key }) => {
      ran.push(key);
      return '3';
    },
  });
  const options = { tools: [add], journal: memoryJournal(), runId: 'run', ledger: budgets.ledger(['acme']) };
  return {
    budgets,
    ran,
    options,
    start: (replies, more) => runLoop({ ...options, model: scriptedModel(replies), input: 'Add.', ...more }),
    resume: (replies, more) => runLoop({ ...options, model: scriptedModel(replies), ...more }),
  };
}

type Asked = Extract<Waiting, { type: 'approval' }>;

describe('a call that exceeds its budget', () => {
  test('is asked about, runs once if it is approved, and the next one is asked about again', async () => {
    const { start, resume, ran, budgets, options } = open(NO_CALLS);
    const paused = await start([calling]);
    const [wait] = paused.waiting as readonly [Asked];
    expect(wait).toMatchObject({
      type: 'approval',
      effect: 't1.approval.0',
      reason: LACK,
      rule: 'budget',
      eachTime: true,
      raises: true,
    });
    expect(paused.wakeAt).toBe(wait.expiresAt);
    expect(ran).toEqual([]);
    const again = await resume([calling], { answers: [approve(wait, { by: 'ann', forRun: true })] });
    expect(ran).toEqual(['run/t1.tool.0']);
    expect(again).toMatchObject({ calls: 2, waiting: [{ effect: 't2.approval.0', raises: true }] });
    expect(await budgets.get('acme')).toMatchObject({ settled: { calls: 1 }, reserved: { calls: 0 } });
    const done = await resume(['None.'], { answers: [deny(again.waiting[0]!, 'too much')] });
    expect(done).toMatchObject({ outcome: { type: 'completed' }, text: 'None.' });
    expect(done.messages.at(-2)).toMatchObject({ content: [{ isError: true, errorType: 'denied' }] });
    expect(ran).toHaveLength(1);
    const entries = await options.journal.read('run');
    expect(entries.map(({ event }) => event).filter(({ type }) => /budget|approval/.test(type))).toMatchObject([
      { type: 'budget-escalated', effect: 't1.tool.0', reason: LACK },
      { type: 'approval-given', approved: true, by: 'ann', raises: 'run' },
      { type: 'budget-escalated', effect: 't2.tool.0' },
      { type: 'approval-given', approved: false },
    ]);
  });

  test('keeps its approval if the process dies before it is reserved', async () => {
    const { start, ran, options } = open(NO_CALLS);
    const paused = await start([calling]);
    const failing: Ledger = { ...options.ledger, reserve: () => Promise.reject(new Error('power failure')) };
    const approved = { ...options, model: scriptedModel([]), answers: [approve(paused.waiting[0]!)] };
    await expect(runLoop({ ...approved, ledger: failing })).rejects.toMatchObject({ code: 'ledger-failed' });
    const done = await runLoop({ ...options, model: scriptedModel(['Three.']) });
    expect(done).toMatchObject({ outcome: { type: 'completed' }, calls: 1 });
    expect(ran).toHaveLength(1);
  });

  test('is not answered by the approval that the policy asked for', async () => {
    const { start, resume } = open(NO_CALLS);
    const policy = { judge: () => [{ type: 'ask' } as const] };
    const first = await start([calling], { policy });
    const given = approve(first.waiting[0]!);
    const second = await resume([], { policy, answers: [given] });
    expect(second.waiting).toMatchObject([{ effect: 't1.approval.0', raises: true }]);
    await expect(resume([], { policy, answers: [given] })).rejects.toMatchObject({ code: 'answer-unfit' });
    const done = await resume(['Three.'], { policy, answers: [approve(second.waiting[0]!)] });
    expect(done).toMatchObject({ outcome: { type: 'completed' }, calls: 1 });
  });

  test('is denied if nobody approves it in time', async () => {
    const { start, resume, ran } = open(NO_CALLS);
    let now = 1_000;
    const clock = { now: () => now, timer: () => () => {} };
    const { waiting } = await start([calling], { clock });
    now = (waiting[0] as Asked).expiresAt;
    expect(await resume(['None.'], { clock })).toMatchObject({ outcome: { type: 'completed' }, text: 'None.' });
    expect(ran).toEqual([]);
  });

  test('is refused if nobody can answer, and if the ledger asks although it was approved', async () => {
    const { start, options } = open(NO_CALLS);
    const exhausted = { outcome: { type: 'exhausted', limit: 'budget' } };
    expect(await start([calling], { canAnswer: false })).toMatchObject(exhausted);
    const asking: Ledger = { ...options.ledger, reserve: (key) => ({ type: 'escalated', reason: key }) };
    const own = { ...options, runId: 'other', ledger: asking };
    const first = await runLoop({ ...own, model: scriptedModel([calling]), input: 'Add.' });
    const second = await runLoop({ ...own, model: scriptedModel([calling]), answers: [yes(first.waiting[0]!)] });
    expect(second).toMatchObject(exhausted);
  });

  test('waits while the other calls of its reply go on', async () => {
    const { start, ran } = open({ limits: { calls: 1 }, atLimit: 'ask' });
    const { waiting } = await start([{ calls: [{ name: 'add' }, { name: 'add' }] }]);
    expect(ran).toEqual(['run/t1.tool.0']);
    expect(waiting).toMatchObject([{ type: 'approval', effect: 't1.approval.1' }]);
  });

  test('is asked about again in a fork, because the approval was for the original', async () => {
    const { start, resume, options, ran } = open(NO_CALLS);
    const paused = await start([calling]);
    await resume(['Three.'], { answers: [approve(paused.waiting[0]!)] });
    expect(ran).toHaveLength(1);
    const { journal } = options;
    const at = (await journal.read('run')).findIndex(({ event }) => event.type === 'budget-escalated');
    await forkRun({ journal, runId: 'run', at, newRunId: 'fork' });
    const own = { ...options, runId: 'fork' };
    const open1 = await runLoop({ ...own, model: scriptedModel([]) });
    expect(open1.waiting).toMatchObject([{ raises: true }]);
    const done = await runLoop({ ...own, model: scriptedModel(['Three.']), answers: [approve(open1.waiting[0]!)] });
    expect(done).toMatchObject({ outcome: { type: 'completed' } });
    expect(ran).toEqual(['run/t1.tool.0', 'fork/t1.tool.0']);
  });
});

function yes(wait: Waiting): ReturnType<typeof answer> {
  return answer(wait, wait.type === 'question' ? wait.question.choices![0] : undefined);
}

describe('a model call that exceeds its budget', () => {
  test('pauses the run on a question, and an approval starts it once', async () => {
    const { start, resume, options } = open(NO_TOKENS);
    const paused = await start([calling]);
    expect(paused.outcome).toBeUndefined();
    expect(paused.waiting).toEqual([
      {
        type: 'question',
        effect: 't1.model.0.budget',
        call: expect.objectContaining({ name: 'scripted', id: 't1.model.0' }),
        question: {
          prompt: expect.stringMatching(
            /^The budget "acme" has 0 tokens left of 0, .* May the run exceed it this time\?$/,
          ),
          choices: ['Exceed it', 'End the run'],
        },
        expiresAt: expect.any(Number),
        raises: true,
      },
    ]);
    expect(paused.wakeAt).toBe(paused.waiting[0]!.expiresAt);
    // Without an answer it stays paused.
    expect((await resume([])).waiting).toEqual(paused.waiting);
    await expect(resume([], { answers: [answer(paused.waiting[0]!, 'maybe')] })).rejects.toMatchObject({
      code: 'answer-unfit',
    });
    const next = await resume([calling], { answers: [yes(paused.waiting[0]!)] });
    expect(next).toMatchObject({ turns: 2, calls: 1, waiting: [{ effect: 't2.model.0.budget' }] });
    const ended = await resume([], { answers: [answer(next.waiting[0]!, 'End the run')] });
    expect(ended).toMatchObject({ outcome: { type: 'exhausted', limit: 'budget' }, waiting: [] });
    expect((await options.journal.read('run')).at(-1)).toMatchObject({ status: 'exhausted' });
  });

  test('ends the run if nobody answers in time, and can be cancelled', async () => {
    const { start, resume } = open(NO_TOKENS);
    let now = 1_000;
    const clock = { now: () => now, timer: () => () => {} };
    const { waiting } = await start([], { clock });
    now = waiting[0]!.expiresAt!;
    expect(await resume([], { clock })).toMatchObject({ outcome: { type: 'exhausted', limit: 'budget' } });
    const other = open(NO_TOKENS);
    await other.start([]);
    expect(await other.resume([], { signal: AbortSignal.abort() })).toMatchObject({
      outcome: { type: 'cancelled', phase: 'model' },
    });
  });

  test('the answer may come before the run has paused, and the time until then does not count', async () => {
    const { options } = open(NO_TOKENS);
    let now = 1_000;
    const run = startLoop({
      ...options,
      model: scriptedModel(['Three.']),
      input: 'Add.',
      clock: { now: () => now, timer: () => () => {} },
      limits: { durationMs: 50 },
      beforePause: async ([wait]) => {
        now += 100;
        await run.answer(yes(wait!));
      },
    });
    expect(await run.result).toMatchObject({ outcome: { type: 'completed' }, text: 'Three.', durationMs: 0 });
  });

  test('is asked about again in a fork that repeats it', async () => {
    const { start, resume, options } = open(NO_TOKENS);
    const { journal } = options;
    const paused = await start([]);
    await resume(['Three.'], { answers: [yes(paused.waiting[0]!)] });
    const at = (await journal.read('run')).findIndex(({ event }) => event.type === 'question-answered');
    await forkRun({ journal, runId: 'run', at, newRunId: 'fork', changes: { instructions: 'Be short.' } });
    const own = { ...options, runId: 'fork' };
    const asked = await runLoop({ ...own, model: scriptedModel([]) });
    expect(asked.waiting).toMatchObject([{ effect: 't1.model.0.budget' }]);
    const done = await runLoop({ ...own, model: scriptedModel(['3.']), answers: [yes(asked.waiting[0]!)] });
    expect(done).toMatchObject({ outcome: { type: 'completed' }, text: '3.' });
  });

  test('a child run asks through its parent', async () => {
    const budgets = memoryBudgets({ acme: { limits: { tokens: 0 }, atLimit: 'ask', only: { names: ['inner'] } } });
    const inner = { ...scriptedModel(['Four.']), id: 'inner' };
    const helper = agentTool({ name: 'helper', description: 'Helps', model: inner });
    const options = { tools: [helper], journal: memoryJournal(), runId: 'run', ledger: budgets.ledger(['acme']) };
    const asking = { calls: [{ name: 'helper', arguments: { task: 'Add.' } }] };
    const paused = await runLoop({ ...options, model: scriptedModel([asking]), input: 'Go.' });
    expect(paused.waiting).toMatchObject([{ type: 'question', effect: 't1.tool.0/t1.model.0.budget', raises: true }]);
    const answers = [yes(paused.waiting[0]!)];
    const done = await runLoop({ ...options, model: scriptedModel(['Four.']), answers });
    expect(done).toMatchObject({ outcome: { type: 'completed' }, text: 'Four.' });
  });

  test('also for a summary', async () => {
    const budgets = memoryBudgets({ acme: { limits: { tokens: 0 }, atLimit: 'ask', only: { names: ['short'] } } });
    const summariser = (): ReturnType<typeof scriptedModel> => ({ ...scriptedModel(['Short.']), id: 'short' });
    const add = tool({ name: 'add', description: 'Adds', effect: 'pure', execute: () => 'x'.repeat(400) });
    const options = {
      tools: [add],
      journal: memoryJournal(),
      runId: 'run',
      ledger: budgets.ledger(['acme']),
    };
    const long = { ...calling, usage: { inputTokens: 900, outputTokens: 1 } };
    const compaction = { tokens: 100, keepTurns: 1 };
    const model = scriptedModel([long, long]);
    const paused = await runLoop({ ...options, compaction, summariser: summariser(), model, input: 'Go.' });
    expect(paused.waiting).toMatchObject([{ type: 'question', effect: 't2.compact.0.budget' }]);
    const answers = [yes(paused.waiting[0]!)];
    const done = await runLoop({ ...options, summariser: summariser(), model: scriptedModel(['Done.']), answers });
    expect(done).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  });
});

test('the listener is warned once of each budget and kind, and the journal is not', async () => {
  const budgets = memoryBudgets({ acme: { limits: { calls: 4 }, warnAt: 0.5 } });
  const items: Item[] = [];
  const journal = memoryJournal();
  const add = tool({ name: 'add', description: 'Adds', effect: 'pure', execute: () => String(items.length) });
  await runLoop({
    model: scriptedModel([calling, calling, calling, 'Done.']),
    tools: [add],
    ledger: budgets.ledger(['acme']),
    journal,
    runId: 'run',
    input: 'Add.',
    onItem: (item) => void items.push(item),
  });
  expect(items.filter(({ type }) => type === 'budget-warning')).toEqual([
    { type: 'budget-warning', effect: 't2.tool.0', budget: 'acme', kind: 'calls', used: 2, limit: 4 },
  ]);
  expect(JSON.stringify(await journal.read('run'))).not.toContain('budget-');
});

test('a reservation sees what a call touches, and counts files, lines and requests', async () => {
  const seen: [object, Partial<Spending>][] = [];
  const ledger: Ledger = {
    reserve(_, amounts, { effect, name, touches }) {
      if (effect === 'call-tool') seen.push([amounts, { name, ...(touches && { touches }) }]);
      return { type: 'reserved' };
    },
    settle() {},
    release() {},
  };
  const touches: readonly Touch[] = [
    { type: 'write', path: 'a', lines: 3 } as Touch,
    { type: 'write', path: 'a' },
    { type: 'write', path: 'b' },
    { type: 'url', url: 'https://a.test/' },
    { type: 'read', path: 'c' },
  ];
  const write = tool({
    name: 'write',
    description: 'Writes',
    effect: 'pure',
    touches: () => touches,
    execute: () => '',
  });
  const add = tool({ name: 'add', description: 'Adds', effect: 'pure', execute: () => '' });
  const model = scriptedModel([{ calls: [{ name: 'write' }, { name: 'add' }] }, 'Done.']);
  await runLoop({ model, tools: [write, add], ledger, input: 'Go.' });
  const [[amounts, about], other] = seen as [[object, Partial<Spending>], [object, object]];
  expect(amounts).toMatchObject({ calls: 1, files: 2, requests: 1 });
  expect(about).toMatchObject({ name: 'write', touches: [{ path: 'a' }, {}, {}, {}, {}] });
  expect(other).toEqual([{ calls: 1 }, { name: 'add' }]);
});

test('counts how long effects take', async () => {
  const budgets = memoryBudgets({ acme: { limits: { durationMs: 100 } } });
  let now = 1_000;
  const slow = tool({
    name: 'add',
    description: 'Adds',
    effect: 'pure',
    execute: () => {
      now += 60;
      return String(now);
    },
  });
  const result = await runLoop({
    model: scriptedModel([calling, calling, calling]),
    tools: [slow],
    ledger: budgets.ledger(['acme']),
    clock: { now: () => now, timer: () => () => {} },
    input: 'Add.',
  });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'budget' }, calls: 2 });
  expect(await budgets.get('acme')).toMatchObject({ settled: { durationMs: 120 } });
});
