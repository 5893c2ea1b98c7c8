import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { memoryJournal } from '../journal/memory.ts';
import { memoryBudgets, type Budgets } from '../ledger/budgets.ts';
import type { Amounts, Ledger } from '../ledger/port.ts';
import type { Model, ModelErrorCode, ModelReply } from '../model.ts';
import { manualClock } from '../testing/manual-clock.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import { handoff } from './handoff.ts';
import { runLoop, streamLoop } from './run.ts';

type Asked = readonly [method: 'reserve' | 'settle' | 'release', key: string, amounts?: Amounts];

/** A ledger that records what it is asked. `refuse`: the keys that it refuses. */
function recording(refuse: readonly string[] = []): Ledger & { readonly asked: Asked[] } {
  const asked: Asked[] = [];
  return {
    asked,
    reserve(key, amounts) {
      asked.push(['reserve', key, amounts]);
      return refuse.includes(key) ? { type: 'refused', reason: 'It is spent.' } : { type: 'reserved' };
    },
    settle: (key, { durationMs: _, ...amounts }) => void asked.push(['settle', key, amounts]),
    release: (key) => void asked.push(['release', key]),
  };
}

/** The same ledger, with answers that come later. */
function slow(ledger: Ledger): Ledger {
  return {
    reserve: async (...args) => ledger.reserve(...args),
    settle: async (...args) => ledger.settle(...args),
    release: async (...args) => ledger.release(...args),
  };
}

const add = tool({ name: 'add', description: 'Adds', effect: 'pure', execute: () => '3' });
const calling = { calls: [{ name: 'add' }] };
const usage = { inputTokens: 20, outputTokens: 10, cost: 0.5 };

function failing(...errors: readonly { code: ModelErrorCode; status?: number }[]): readonly ModelReply[] {
  return errors.map((error) => ({ type: 'failure', error: { message: 'no', retryable: false, ...error } }));
}

describe.each([
  ['at once', (ledger: Ledger) => ledger],
  ['later', slow],
])('with a ledger that answers %s', (_, answering) => {
  test('reserves what an effect may use before it starts, and settles what it used', async () => {
    const ledger = recording();
    const model: Model = {
      ...scriptedModel([
        { ...calling, usage },
        { text: 'Three.', usage },
      ]),
      maxCost: (input, output) => input + 2 * output,
    };
    const priced = { ...add, spends: { cost: 0.01 } };
    const result = await runLoop({
      model,
      tools: [priced],
      ledger: answering(ledger),
      settings: { maxOutputTokens: 100 },
      instructions: 'x'.repeat(40),
      input: 'x'.repeat(400),
      runId: 'run',
    });
    expect(result.outcome).toEqual({ type: 'completed' });
    // 100 for the input, 10 for the instructions, 10 for the tool; then what the model reported and the result.
    expect(ledger.asked).toEqual([
      ['reserve', 'run/t1.model.0', { tokens: 220, cost: 120 + 200 }],
      ['settle', 'run/t1.model.0', { tokens: 30, cost: 0.5 }],
      ['reserve', 'run/t1.tool.0', { calls: 1, cost: 0.01 }],
      ['settle', 'run/t1.tool.0', {}],
      ['reserve', 'run/t2.model.0', { tokens: 223, cost: 123 + 200 }],
      ['settle', 'run/t2.model.0', { tokens: 30, cost: 0.5 }],
    ]);
  });

  test('a model call that is refused does not start, and the run ends', async () => {
    const model = scriptedModel([calling]);
    const journal = memoryJournal();
    const ledger = answering(recording(['run/t2.model.0']));
    const result = await runLoop({ model, tools: [add], ledger, journal, runId: 'run', input: 'Add.' });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'budget' }, turns: 2, calls: 1 });
    expect(result.messages.at(-1)).toMatchObject({ role: 'tool' });
    expect((await journal.read('run')).at(-1)).toMatchObject({
      event: { type: 'budget-refused', effect: 't2.model.0', reason: 'It is spent.' },
      status: 'exhausted',
    });
    model.assertDone();
  });

  test('a tool call that is refused does not run, and every call has a result', async () => {
    const ran: string[] = [];
    const { promise: aborted, resolve } = Promise.withResolvers<void>();
    const work = tool({
      name: 'work',
      description: 'Works',
      input: { type: 'object', properties: { what: { type: 'string' } } },
      execute: async ({ what }, { signal }) => {
        ran.push(String(what));
        signal.addEventListener('abort', () => resolve());
        await aborted;
      },
    });
    const calls = ['a', 'b', 'c'].map((what) => ({ name: 'work', arguments: { what } }));
    const ledger = answering(recording(['run/t1.tool.1']));
    const model = scriptedModel([{ calls }]);
    const result = await runLoop({ model, tools: [work], ledger, runId: 'run', input: 'Work.', maxParallel: 2 });
    await aborted;
    expect(ran).toEqual(['a']);
    expect(result.outcome).toEqual({ type: 'exhausted', limit: 'budget' });
    const { content } = result.messages.at(-1)!;
    expect(content).toHaveLength(3);
    expect(content[1]).toMatchObject({
      isError: true,
      content: [{ type: 'error', text: 'Not finished: the run reached its limit of spending.' }],
    });
  });

  test('a summary is reserved and settled too, and can be refused', async () => {
    const options = { tools: [add], compaction: { tokens: 40, keepTurns: 1 }, runId: 'run', input: 'Add.' };
    const long = { ...calling, usage: { inputTokens: 50, outputTokens: 1 } };
    const ledger = recording();
    const summariser = scriptedModel([{ text: 'It was 3.', usage }]);
    const model = scriptedModel([long, long, 'Three.']);
    await runLoop({ ...options, model, summariser, ledger: answering(ledger) });
    expect(ledger.asked.filter(([, key]) => key === 'run/t2.compact.0')).toEqual([
      ['reserve', 'run/t2.compact.0', { tokens: expect.any(Number), cost: 0 }],
      ['settle', 'run/t2.compact.0', { tokens: 30, cost: 0.5 }],
    ]);
    const refusing = answering(recording(['run/t2.compact.0']));
    const refused = await runLoop({ ...options, model: scriptedModel([long, long]), ledger: refusing });
    expect(refused).toMatchObject({ outcome: { type: 'exhausted', limit: 'budget' }, turns: 2 });
  });

  test('a summary is reserved at the price of the agent that the run was handed to', async () => {
    const long = { ...calling, usage: { inputTokens: 50, outputTokens: 1 } };
    const clerk = { ...scriptedModel([long, long, 'It was 3.', 'Three.']), maxCost: () => 7 };
    const agents = [{ name: 'clerk', tools: [add], model: clerk }];
    const ledger = recording();
    await runLoop({
      model: scriptedModel([{ calls: [{ name: 'hand_off_to_clerk' }] }]),
      tools: [handoff(agents[0]!)],
      agents,
      compaction: { tokens: 40, keepTurns: 1 },
      ledger: answering(ledger),
      input: 'Add.',
    });
    const summaries = ledger.asked.filter(([method, key]) => method === 'reserve' && key.includes('compact'));
    expect(summaries.map(([, , amounts]) => amounts?.cost)).toContain(7);
    expect(summaries.map(([, , amounts]) => amounts?.cost)).not.toContain(0);
  });

  test('only a model call that certainly used nothing is released', async () => {
    const codes: readonly (readonly [ModelErrorCode, string])[] = [
      ['auth', 'release'],
      ['rate-limit', 'release'],
      ['context-length', 'release'],
      ['overloaded', 'reserve'],
      ['network', 'reserve'],
      ['invalid-request', 'reserve'],
    ];
    for (const [code, last] of codes) {
      const ledger = recording();
      await runLoop({ model: scriptedModel(failing({ code })), ledger: answering(ledger), input: 'Add.' });
      expect([code, ledger.asked.at(-1)?.[0]]).toEqual([code, last]);
    }
  });

  test('a model call is not released if one of its attempts may have used something', async () => {
    const [failure] = failing({ code: 'rate-limit' }) as [Extract<ModelReply, { type: 'failure' }>];
    const network = { code: 'network', message: 'cut off', retryable: true } as const;
    const attempts = [
      { model: 'a', ms: 1, error: network },
      { model: 'a', ms: 1, error: failure.error },
    ];
    const ledger = recording();
    await runLoop({ model: scriptedModel([{ ...failure, attempts }]), ledger: answering(ledger), input: 'Add.' });
    expect(ledger.asked.map(([method]) => method)).toEqual(['reserve']);
  });

  test('a usage that the model does not report is charged as reserved', async () => {
    const ledger = recording();
    const model = scriptedModel([{ text: 'Three.', usage: { inputTokens: 0, outputTokens: 0 } }]);
    await runLoop({ model, ledger: answering(ledger), runId: 'run', input: 'Add.' });
    expect(ledger.asked.at(-1)).toEqual(['settle', 'run/t1.model.0', {}]);
  });

  test('child runs draw on the ledger of their parent, at every depth', async () => {
    const budgets = memoryBudgets({ all: { calls: 3 } });
    const inner = agentTool({
      name: 'inner',
      description: 'Adds',
      model: scriptedModel([calling, calling]),
      tools: [add],
    });
    const outer = agentTool({
      name: 'outer',
      description: 'Delegates',
      model: scriptedModel([{ calls: [{ name: 'inner', arguments: { task: 'Add.' } }] }, 'It was refused.']),
      tools: [inner],
    });
    const model = scriptedModel([{ calls: [{ name: 'outer', arguments: { task: 'Add.' } }] }, 'Done.']);
    const ledger = answering(budgets.ledger(['all']));
    const result = await runLoop({ model, tools: [outer], ledger, input: 'Add.' });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
    expect(await totalCalls(budgets)).toBe(3);
    expect(await budgets.reservations()).toEqual([]);
  });

  test('a run stops if a reservation fails, and can be resumed', async () => {
    const journal = memoryJournal();
    const ledger = answering({
      ...recording(),
      reserve(key) {
        if (key.endsWith('t2.model.0')) throw new Error('the database is locked');
        return { type: 'reserved' };
      },
    });
    const options = { tools: [add], journal, runId: 'run' };
    const first = runLoop({ ...options, model: scriptedModel([calling]), ledger, input: 'Add.' });
    await expect(first).rejects.toMatchObject({
      code: 'ledger-failed',
      message: 'The ledger failed, so run "run" stopped. It can be resumed: the database is locked',
    });
    const resumed = await runLoop({ ...options, model: scriptedModel(['Three.']), ledger: answering(recording()) });
    expect(resumed).toMatchObject({ outcome: { type: 'completed' }, text: 'Three.', calls: 1 });
  });

  test('a run continues if settling fails: the reservation stays', async () => {
    const ledger = answering({
      ...recording(),
      settle() {
        throw new Error('the database is locked');
      },
    });
    const result = await runLoop({ model: scriptedModel([calling, 'Three.']), tools: [add], ledger, input: 'Add.' });
    expect(result.text).toBe('Three.');
  });

  test('a call that was lost is settled when its verification finds the result', async () => {
    const journal = memoryJournal();
    const budgets = memoryBudgets({ all: { calls: 1 } });
    const ledger = answering(budgets.ledger(['all']));
    const { promise: started, resolve: onStart } = Promise.withResolvers<void>();
    const pay = tool({
      name: 'pay',
      description: 'Pays',
      execute: () => {
        onStart();
        return new Promise(() => {});
      },
      verify: () => ({ type: 'done', result: 'paid' }),
    });
    const options = { tools: [pay], ledger, journal, runId: 'run' };
    const live = streamLoop({ ...options, model: scriptedModel([{ calls: [{ name: 'pay' }] }]), input: 'Pay.' });
    await started;
    await live.detach();
    expect(await budgets.reservations()).toHaveLength(1);
    const resumed = await runLoop({ ...options, model: scriptedModel(['It is paid.']) });
    expect(resumed.text).toBe('It is paid.');
    expect(await budgets.reservations()).toEqual([]);
    expect(await totalCalls(budgets)).toBe(1);
  });
});

test('a reservation for an effect that does not start any more is released', async () => {
  const { promise: reserving, resolve: onReserve } = Promise.withResolvers<void>();
  const { promise: answer, resolve: reserve } = Promise.withResolvers<void>();
  const { promise: released, resolve: onRelease } = Promise.withResolvers<string>();
  const ledger: Ledger = {
    ...recording(),
    async reserve() {
      onReserve();
      await answer;
      return { type: 'reserved' };
    },
    release: (key) => onRelease(key),
  };
  const live = streamLoop({ model: scriptedModel([]), ledger, runId: 'run', input: 'Add.' });
  await reserving;
  live.cancel();
  reserve();
  expect(await released).toBe('run/t1.model.0');
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'model' });
});

async function totalCalls(budgets: Budgets): Promise<number> {
  const { settled } = (await budgets.get('all'))!;
  return settled.calls;
}

test('an effect that began and never settled is charged in full, also if it is performed again', async () => {
  const journal = memoryJournal();
  const budgets = memoryBudgets({ all: { tokens: 1_000 } });
  const ledger = budgets.ledger(['all']);
  const settings = { maxOutputTokens: 100 };
  const options = { ledger, journal, runId: 'run' };
  const { promise: asked, resolve: onAsk } = Promise.withResolvers<void>();
  const model: Model = {
    id: 'm',
    reply() {
      onAsk();
      return new Promise(() => {});
    },
  };
  const live = streamLoop({ ...options, model, settings, input: 'Add.' });
  await asked;
  await live.detach();
  const [reservation] = await budgets.reservations();
  expect(reservation).toMatchObject({ key: 'run/t1.model.0', amounts: { tokens: 101 }, repeated: false });
  await runLoop({ ...options, model: scriptedModel([{ text: 'Three.', usage }]) });
  expect(await budgets.get('all')).toMatchObject({ settled: { tokens: 101 }, reserved: { tokens: 0 } });
});

test('a run that was started with a ledger is resumed with one', async () => {
  const journal = memoryJournal();
  const approve = { judge: () => [{ type: 'ask' as const }] };
  const options = { tools: [add], policy: approve, journal, runId: 'run' };
  await runLoop({ ...options, model: scriptedModel([calling]), ledger: recording(), input: 'Add.' });
  await expect(runLoop({ ...options, model: scriptedModel([]) })).rejects.toMatchObject({
    code: 'invalid-options',
    message: 'Run "run" was started with a ledger. Pass the ledger to resume it.',
  });
  const cancelled = await runLoop({ ...options, model: scriptedModel([]), signal: AbortSignal.abort() });
  expect(cancelled.outcome).toMatchObject({ type: 'cancelled' });
});

test('a run that was started without a ledger draws on one from then on', async () => {
  const journal = memoryJournal();
  const approve = { judge: () => [{ type: 'ask' as const }] };
  const options = { tools: [add], policy: approve, journal, runId: 'run' };
  const { waiting } = await runLoop({ ...options, model: scriptedModel([calling]), input: 'Add.' });
  const [wait] = waiting;
  if (wait?.type !== 'approval') throw new Error('expected an approval');
  const answers = [{ type: 'approval', effect: wait.effect, digest: wait.digest, approved: true }] as const;
  const ledger = recording(['run/t2.model.0']);
  const result = await runLoop({ ...options, model: scriptedModel([]), ledger, answers });
  expect(result.outcome).toEqual({ type: 'exhausted', limit: 'budget' });
  expect(ledger.asked.map(([method, key]) => `${method} ${key}`)).toEqual([
    'reserve run/t1.tool.0',
    'settle run/t1.tool.0',
    'reserve run/t2.model.0',
  ]);
});

test('a closing turn is refused too', async () => {
  const result = await runLoop({
    model: scriptedModel([calling]),
    tools: [add],
    ledger: recording(['run/t2.model.0']),
    maxTurns: 1,
    closingTurn: true,
    runId: 'run',
    input: 'Add.',
  });
  expect(result.outcome).toEqual({ type: 'exhausted', limit: 'budget' });
});

test('a ledger that returns neither answer stops the run', async () => {
  const ledger = { ...recording(), reserve: () => undefined as never };
  const run = runLoop({ model: scriptedModel([]), ledger, runId: 'run', input: 'Add.' });
  await expect(run).rejects.toMatchObject({
    code: 'ledger-failed',
    message: expect.stringContaining('reserve returned'),
  });
});

test.each([
  ['forward by 20 minutes', 20 * 60_000],
  ['back by an hour', -60 * 60_000],
])(
  'the time that an effect took is settled by the monotonic clock, also if the clock is set %s meanwhile',
  async (_, ms) => {
    const steady = manualClock();
    let offset = 0;
    const clock = { ...steady, now: () => steady.now() + offset };
    const took: unknown[] = [];
    const ledger: Ledger = { ...recording(), settle: (_key, { durationMs }) => void took.push(durationMs) };
    const wait = tool({
      name: 'add',
      description: 'Adds',
      execute: async () => (await steady.advance(5), (offset += ms), await steady.advance(5), '3'),
    });
    await runLoop({ model: scriptedModel([calling, 'Three.']), tools: [wait], ledger, clock, input: 'Add.' });
    expect(took).toEqual([0, 10, 0]);
  },
);

test.each([{ cost: -1 }, { cost: Number.NaN }, { tips: 1 }])('rejects a tool that spends %j', (spends) => {
  expect(() => tool({ name: 'add', description: 'Adds', spends: spends as Amounts })).toThrow('"spends" of tool "add"');
});
