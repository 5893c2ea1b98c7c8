import { describe, expect, test } from 'vitest';
import { callEcho, echo } from '../../test/echo.ts';
import { agentTool } from '../agents/agent-tool.ts';
import type { JournalEntry } from '../journal/port.ts';
import { entryOf, replay } from '../journal/replay.ts';
import type { Event } from '../machine/events.ts';
import type { Limits } from '../machine/rules.ts';
import { step } from '../machine/step.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const nextTick = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const hang = tool({ name: 'hang', description: '', effect: 'pure', execute: () => new Promise(() => {}) });
const callHang = { calls: [{ name: 'hang' }] };
const callHelper = { calls: [{ name: 'helper', arguments: { task: 'help' } }] };

describe('a child run', () => {
  const child = (script: Parameters<typeof scriptedModel>[0], more = {}): ReturnType<typeof agentTool> =>
    agentTool({ name: 'helper', description: 'Helps', model: scriptedModel(script), tools: [echo], ...more });

  test('is a run with a link to its parent; its answer is the result, and its usage counts for the parent', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([callHelper, 'Done.']);
    const result = await runLoop({
      model,
      tools: [child([callEcho('x'), 'Helped.'])],
      input: 'go',
      journal,
      runId: 'p',
    });
    expect(result).toMatchObject({ text: 'Done.', usage: { inputTokens: 40, outputTokens: 20 } });
    expect(JSON.stringify(result.messages)).toContain('Helped.');
    const [first] = await journal.read('p.t1.tool.0');
    expect(first!.event).toMatchObject({ type: 'run-started', parent: { runId: 'p', effect: 't1.tool.0' } });
    expect(await journal.list({ parent: 'p' })).toHaveLength(1);
  });

  test('gets a fixed share of the limits of its parent', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([callHelper, 'Done.']);
    const limits = { calls: 9, tokens: 1_015 };
    await runLoop({ model, tools: [child(['x'], { share: 0.25 })], input: 'go', journal, runId: 'p', limits });
    const [first] = await journal.read('p.t1.tool.0');
    expect(first!.event).toMatchObject({ rules: { limits: { calls: 2, tokens: 250 } } });
  });

  /** A value for every limit, and what a result reports of it. A new limit does not compile until it is here. */
  const everyLimit: Required<Limits> = { calls: 100, tokens: 1_000, cost: 10, durationMs: 100_000 };
  const used: { readonly [Name in keyof Limits]-?: (result: LoopResult) => number } = {
    calls: ({ calls }) => calls,
    tokens: ({ usage }) => usage.inputTokens + usage.outputTokens,
    cost: ({ usage }) => usage.cost!,
    durationMs: ({ durationMs }) => durationMs,
  };

  test('gets a share of every limit of its parent', async () => {
    const journal = memoryJournal();
    const priced = { ...scriptedModel([callHelper, 'Done.']), priced: true };
    const helper = agentTool({ name: 'helper', description: '', model: { ...scriptedModel(['x']), priced: true } });
    const limits = everyLimit;
    await runLoop({ model: priced, tools: [helper], input: 'go', journal, runId: 'p', limits });
    const [first] = await journal.read('p.t1.tool.0');
    const started = first!.event as Extract<Event, { type: 'run-started' }>;
    expect(Object.keys(started.rules.limits).toSorted()).toEqual(Object.keys(limits).toSorted());
  });

  test('counts what it uses for every limit of its parent', async () => {
    const clock = manualClock();
    const usage = { inputTokens: 30, outputTokens: 20, cost: 2 };
    const wait = tool({ name: 'wait', description: '', execute: async () => void (await clock.advance(500)) });
    const inner = scriptedModel([
      { calls: [{ name: 'wait' }], usage },
      { text: 'Helped.', usage },
    ]);
    const model = scriptedModel([
      { ...callHelper, usage },
      { text: 'Done.', usage },
    ]);
    const alone = { calls: 1, tokens: 100, cost: 4, durationMs: 0 };
    const helper = agentTool({ name: 'helper', description: '', model: inner, tools: [wait] });
    const result = await runLoop({ model, tools: [helper], input: 'go', clock });
    for (const name of Object.keys(used) as (keyof Limits)[]) {
      expect([name, used[name](result) > alone[name]]).toEqual([name, true]);
    }
  });

  test('is rejected if another run has its id', async () => {
    const journal = memoryJournal();
    await runLoop({ model: scriptedModel(['Foreign.']), journal, runId: 'q.t1.tool.0', input: 'x' });
    const helper = agentTool({ name: 'helper', description: 'Works', model: scriptedModel(['Mine.']) });
    const run = runLoop({ model: scriptedModel([callHelper]), tools: [helper], journal, runId: 'q', input: 'go' });
    await expect(run).rejects.toMatchObject({ code: 'run-exists' });
  });

  test('adds its calls to those of its parent', async () => {
    const model = scriptedModel([callEcho('a'), 'Done.']);
    const helper = agentTool({ name: 'helper', description: 'Works', model, tools: [echo] });
    const result = await runLoop({ model: scriptedModel([callHelper, 'All done.']), tools: [helper], input: 'go' });
    expect(result.calls).toBe(2);
  });

  test('pauses its parent when it pauses, and is resumed with it', async () => {
    const journal = memoryJournal();
    const policy = { judge: () => [{ type: 'ask' as const }] };
    const helper = child([callEcho('x'), 'Helped.'], { policy });
    using model = scriptedModel([callHelper, 'Done.']);
    const options = { model, tools: [helper], journal, runId: 'p' };
    const paused = await runLoop({ ...options, input: 'go' });
    expect(paused.outcome).toBeUndefined();
    const [wait] = paused.waiting;
    expect(wait).toMatchObject({ type: 'approval', effect: 't1.tool.0/t1.approval.0', call: { name: 'echo' } });
    if (wait?.type !== 'approval') throw new Error('no approval');
    const { effect, digest } = wait;
    await expect(
      runLoop({ ...options, answers: [{ type: 'approval', effect, digest: 'other', approved: true }] }),
    ).rejects.toMatchObject({ code: 'answer-unfit' });
    const result = await runLoop({ ...options, answers: [{ type: 'approval', effect, digest, approved: true }] });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
    expect(JSON.stringify(result.messages)).toContain('Helped.');
  });
});

test('cancels a child run that the parent is parked on', async () => {
  const journal = memoryJournal();
  const policy = { judge: () => [{ type: 'ask' as const }] };
  const model = scriptedModel([callEcho('x')]);
  const helper = agentTool({ name: 'helper', description: 'Helps', model, tools: [echo], policy });
  const options = { model: scriptedModel([callHelper]), tools: [helper], journal, runId: 'p' };
  await runLoop({ ...options, input: 'go' });
  expect(await journal.list({ status: ['paused'] })).toHaveLength(2);
  const result = await runLoop({ ...options, signal: AbortSignal.abort() });
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

describe('a child run whose parent is resumed', () => {
  const task = { calls: [{ name: 'child', arguments: { task: 'x' } }] };
  const pay = (ran: string[]): ReturnType<typeof tool> =>
    tool({ name: 'pay', description: 'Pays', execute: (_, { key }) => (ran.push(key), 'paid') });
  const ask = tool({ name: 'ask', description: 'Asks the client' });

  async function pausedOnClient(ran: string[]): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [{ name: 'pay' }] }, { calls: [{ name: 'ask' }] }]);
    const child = agentTool({ name: 'child', description: 'Works', model, tools: [pay(ran), ask] });
    await runLoop({ model: scriptedModel([task]), tools: [child], journal, runId: 'p', input: 'go' });
    return journal;
  }
  const answers = [{ type: 'result', effect: 't1.tool.0/t2.client.0', content: 'yes' }] as const;

  test('stops its parent if its tools have changed, and can be resumed later with the original ones', async () => {
    const ran: string[] = [];
    const journal = await pausedOnClient(ran);
    const child = (...tools: ReturnType<typeof tool>[]): ReturnType<typeof tool> =>
      agentTool({ name: 'child', description: 'Works', model: scriptedModel(['Done.']), tools });
    const model = scriptedModel(['All done.']);
    const options = { model, journal, runId: 'p', answers };
    await expect(runLoop({ ...options, tools: [child(pay(ran))] })).rejects.toMatchObject({ code: 'tools-changed' });
    const { answers: _, ...without } = options;
    const again = await runLoop({ ...without, tools: [child(pay(ran), ask)] });
    expect(again.waiting).toMatchObject([{ type: 'client', effect: 't1.tool.0/t2.client.0' }]);
    const result = await runLoop({ ...options, tools: [child(pay(ran), ask)] });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'All done.' });
    expect(ran).toHaveLength(1);
  });

  test('accepts changed tools if its parent does', async () => {
    const ran: string[] = [];
    const journal = await pausedOnClient(ran);
    const child = agentTool({ name: 'child', description: 'Works', model: scriptedModel(['Done.']), tools: [ask] });
    const model = scriptedModel(['All done.']);
    const options = { model, tools: [child], journal, runId: 'p', answers, acceptChangedTools: true };
    expect((await runLoop(options)).text).toBe('All done.');
    expect(ran).toHaveLength(1);
  });

  test('is not started again if its journal was deleted', async () => {
    const ran: string[] = [];
    const journal = await pausedOnClient(ran);
    await journal.delete('p.t1.tool.0');
    const child = agentTool({ name: 'child', description: 'Works', model: scriptedModel([]), tools: [pay(ran), ask] });
    const run = runLoop({ model: scriptedModel([]), tools: [child], journal, runId: 'p', answers });
    await expect(run).rejects.toMatchObject({ code: 'unknown-run' });
    expect(ran).toHaveLength(1);
  });

  /** The journal after a crash of parent and child, while the child waits for its second tool. */
  async function crashed(ran: string[]): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [{ name: 'pay' }] }, callHang]);
    const child = agentTool({ name: 'child', description: 'Works', model, tools: [pay(ran), hang] });
    const run = streamLoop({ model: scriptedModel([task]), tools: [child], journal, runId: 'p', input: 'go' });
    await waitUntil(async () => JSON.stringify(await journal.read('p.t1.tool.0')).includes('t2.tool.0'));
    await run.detach();
    return journal;
  }

  test('is not started again if it was running at a crash and its journal is missing', async () => {
    const ran: string[] = [];
    const journal = await crashed(ran);
    await journal.delete('p.t1.tool.0');
    const child = (): Tool =>
      agentTool({ name: 'child', description: '', model: scriptedModel(['Again.']), tools: [pay(ran), hang] });
    for (let attempt = 0; attempt < 3; attempt++) {
      const run = runLoop({ model: scriptedModel(['All done.']), tools: [child()], journal, runId: 'p' });
      await expect(run).rejects.toMatchObject({
        code: 'unknown-run',
        message: expect.stringContaining('"p.t1.tool.0"'),
      });
    }
    expect(await journal.list()).toHaveLength(1);
    expect(ran).toHaveLength(1);
  });

  test('is started if the process died before it could start', async () => {
    const journal = memoryJournal();
    const ran: string[] = [];
    await crashed(ran).then(async (other) => journal.append('p', (await other.read('p')).slice(0, 2)));
    const child = agentTool({
      name: 'child',
      description: '',
      model: scriptedModel(['New.']),
      tools: [pay(ran), hang],
    });
    const result = await runLoop({ model: scriptedModel(['All done.']), tools: [child], journal, runId: 'p' });
    expect(JSON.stringify(result.messages)).toContain('New.');
  });

  test('is resumed if the process died before its parent had recorded the start', async () => {
    const journal = memoryJournal();
    const other = await crashed([]);
    journal.append('p', (await other.read('p')).slice(0, 2));
    journal.append('p.t1.tool.0', (await other.read('p.t1.tool.0')).slice(0, 1));
    const child = agentTool({ name: 'child', description: '', model: scriptedModel(['Old.']), tools: [pay([]), hang] });
    const result = await runLoop({ model: scriptedModel(['All done.']), tools: [child], journal, runId: 'p' });
    expect(JSON.stringify(result.messages)).toContain('Old.');
    const types = (await journal.read('p')).map(({ event }) => event.type);
    expect(types).toContain('child-started');
    expect((await journal.read('p.t1.tool.0')).map(({ event }) => event.type)).toEqual([
      'run-started',
      'effect-lost',
      'model-replied',
    ]);
  });

  test('is not used by a later run with the id of its parent', async () => {
    const journal = memoryJournal();
    const other = await crashed([]);
    journal.append('p.t1.tool.0', await other.read('p.t1.tool.0'));
    const child = agentTool({ name: 'child', description: '', model: scriptedModel(['New.']), tools: [pay([]), hang] });
    const model = scriptedModel([task, 'All done.']);
    const result = await runLoop({ model, tools: [child], journal, runId: 'p', input: 'other' });
    expect(JSON.stringify(result.messages)).toContain('run \\"p.t1.tool.0\\" of an earlier');
    expect(await journal.read('p.t1.tool.0')).toEqual(await other.read('p.t1.tool.0'));
  });

  test('is not pruned while its parent is open', async () => {
    const journal = memoryJournal();
    const wait = tool({ name: 'wait', description: 'Waits' });
    const child = agentTool({ name: 'child', description: 'Works', model: scriptedModel(['Done.']) });
    const model = scriptedModel([{ calls: [...task.calls, { name: 'wait' }] }, 'All done.']);
    const options = { model, tools: [child, wait], journal, runId: 'p' };
    await runLoop({ ...options, input: 'go' });
    expect(await journal.prune(Infinity)).toBe(0);
    await runLoop({ ...options, answers: [{ type: 'result', effect: 't1.client.1', content: '' }] });
    expect(await journal.prune(Infinity)).toBe(2);
  });

  test('is cancelled with all its siblings and their children when its cancelled parent is resumed', async () => {
    const journal = await pausedOnClient([]);
    const entries = await journal.read('p');
    journal.append('p', [entryAfter(entries, { type: 'cancel-requested', at: 0 })]);
    const [first] = await journal.read('p.t1.tool.0');
    if (first?.event.type !== 'run-started') throw new Error('no start');
    for (let index = 1; index <= 150; index++) {
      const parent = { runId: 'p', effect: `t1.tool.${index}` };
      const runId = `p.t1.tool.${index}`;
      journal.append(runId, [{ ...first, event: { ...first.event, runId, parent } }]);
    }
    // The last one was cancelled before the crash, but not the run that it had called.
    journal.append('p.t1.tool.150', [
      entryAfter(await journal.read('p.t1.tool.150'), { type: 'cancel-requested', at: 0 }),
    ]);
    const inner = { runId: 'p.t1.tool.150.t1.tool.0', parent: { runId: 'p.t1.tool.150', effect: 't1.tool.0' } };
    journal.append(inner.runId, [{ ...first, event: { ...first.event, ...inner } }]);
    await runLoop({ model: scriptedModel([]), journal, runId: 'p' });
    const open = await journal.list({ status: ['running', 'paused'], limit: Infinity });
    expect(open.map(({ runId }) => runId)).toEqual([]);
  });

  test('is cancelled when its parent is resumed, if a crash interrupted the cancellation', async () => {
    const journal = await pausedOnClient([]);
    const entries = await journal.read('p');
    const seq = entries.length;
    const event = { type: 'cancel-requested', at: 0 } as const;
    journal.append('p', [{ ...entryAfter(entries, event), seq }]);
    await runLoop({ model: scriptedModel([]), journal, runId: 'p' });
    expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
  });
});

async function waitUntil(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await nextTick();
}

/** The journal entry for an event after these entries. */
function entryAfter(entries: readonly JournalEntry[], event: Event): JournalEntry {
  const replayed = replay(entries);
  return entryOf(entries.length, event, step(replayed.state, event));
}

test('cancels a child run of a detached parent that is resumed with an aborted signal', async () => {
  const journal = memoryJournal();
  const child = (): Tool =>
    agentTool({ name: 'helper', description: '', model: scriptedModel([callHang]), tools: [hang] });
  const options = { journal, runId: 'p' };
  const model = scriptedModel([callHelper]);
  const run = streamLoop({ ...options, model, tools: [child()], input: 'go' });
  await nextTick();
  await run.detach();
  await nextTick();
  expect((await journal.list()).map(({ status }) => status)).toEqual(['running', 'running']);
  await runLoop({ ...options, model: scriptedModel([]), tools: [child()], signal: AbortSignal.abort() });
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

test('does not start a child run after its parent was cancelled', async () => {
  const journal = memoryJournal();
  const child = agentTool({ name: 'helper', description: '', model: scriptedModel([]) });
  const run = streamLoop({
    journal,
    runId: 'p',
    model: scriptedModel([callHelper]),
    tools: [child],
    policy: { judge: (calls) => (run.cancel(), calls.map(() => ({ type: 'allow' }))) },
    input: 'go',
  });
  expect((await run.result).outcome).toMatchObject({ type: 'cancelled' });
  expect(await journal.list()).toHaveLength(1);
});

test('does not cancel a child run if the journal fails for its parent', async () => {
  const journal = memoryJournal();
  let broken = false;
  const failing: typeof journal = {
    ...journal,
    append(runId, entries, lease) {
      if (broken && runId === 'p') throw new Error('disk full');
      return journal.append(runId, entries, lease);
    },
  };
  const model = scriptedModel([callHang]);
  const child = agentTool({ name: 'helper', description: '', model, tools: [hang] });
  const look = tool({
    name: 'look',
    description: '',
    execute: async () => {
      await nextTick();
      broken = true;
    },
  });
  const both = { calls: [...callHelper.calls, { name: 'look' }] };
  const run = runLoop({
    journal: failing,
    runId: 'p',
    model: scriptedModel([both]),
    tools: [child, look],
    input: 'go',
  });
  await expect(run).rejects.toMatchObject({ code: 'journal-failed' });
  await nextTick();
  expect(await journal.list({ parent: 'p' })).toMatchObject([{ status: 'running', entries: 2 }]);
});

test('cancels a child run only after the cancel of its parent is durable', async () => {
  const journal = memoryJournal();
  const stored = Promise.withResolvers<void>();
  const slow: typeof journal = {
    ...journal,
    async append(runId, entries, lease) {
      if (runId === 'p' && entries.some(({ event }) => event.type === 'cancel-requested')) await stored.promise;
      return journal.append(runId, entries, lease);
    },
  };
  const child = agentTool({ name: 'helper', description: '', model: scriptedModel([callHang]), tools: [hang] });
  const run = streamLoop({
    journal: slow,
    runId: 'p',
    model: scriptedModel([callHelper]),
    tools: [child],
    input: 'go',
  });
  await waitUntil(async () => (await journal.read('p.t1.tool.0')).length === 2);
  run.cancel();
  for (let tick = 0; tick < 20; tick++) await nextTick();
  expect((await journal.list()).map(({ status }) => status)).toEqual(['running', 'running']);
  stored.resolve();
  await run.result;
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

test('cancels a child run that pauses while its parent is cancelled', async () => {
  const journal = memoryJournal();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: paused, resolve: onPause } = Promise.withResolvers<void>();
  const { promise: stored, resolve: store } = Promise.withResolvers<void>();
  const slow: typeof journal = {
    ...journal,
    async append(runId, entries, lease) {
      if (runId === 'p' && entries.some(({ event }) => event.type === 'cancel-requested')) await stored;
      return journal.append(runId, entries, lease);
    },
    async acquire(runId) {
      const lease = await journal.acquire(runId);
      if (runId === 'p') return lease;
      const slowRelease = async (): Promise<void> => {
        onPause();
        await released;
        await lease.release();
      };
      return { ...lease, release: slowRelease };
    },
  };
  const pick = tool({ name: 'pick', description: '' });
  const asking = scriptedModel([{ calls: [{ name: 'pick' }] }]);
  const child = agentTool({ name: 'helper', description: '', model: asking, tools: [pick] });
  const model = scriptedModel([callHelper]);
  const run = streamLoop({ journal: slow, runId: 'p', model, tools: [child], input: 'go' });
  await paused;
  run.cancel();
  // The child run ends as paused before the cancel of its parent is stored.
  release();
  for (let tick = 0; tick < 20; tick++) await nextTick();
  store();
  expect((await run.result).outcome).toMatchObject({ type: 'cancelled' });
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

test.each([1, 2])('cancels a child run again if its cancel could not be stored %i times', async (times) => {
  const journal = memoryJournal();
  let failures = 0;
  const failing: typeof journal = {
    ...journal,
    append(runId, entries, lease) {
      const fails =
        runId !== 'p' && entries.some(({ event }) => event.type === 'cancel-requested') && failures++ < times;
      if (fails) throw new Error('disk full');
      return journal.append(runId, entries, lease);
    },
  };
  const child = agentTool({ name: 'helper', description: '', model: scriptedModel([callHang]), tools: [hang] });
  const model = scriptedModel([callHelper]);
  const run = streamLoop({ journal: failing, runId: 'p', model, tools: [child], input: 'go' });
  await waitUntil(async () => (await journal.read('p.t1.tool.0')).length === 2);
  run.cancel();
  expect((await run.result).outcome).toMatchObject({ type: 'cancelled' });
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

test('a child run performs nothing before its parent has recorded the start', async () => {
  const journal = memoryJournal();
  let recorded = false;
  const checking: typeof journal = {
    ...journal,
    async append(runId, entries, lease) {
      if (runId === 'p' && entries.some(({ event }) => event.type === 'child-started')) {
        for (let tick = 0; tick < 20; tick++) await nextTick();
        recorded = true;
      }
      return journal.append(runId, entries, lease);
    },
  };
  const model = scriptedModel(['Helped.']);
  const reply: typeof model.reply = (...request) => {
    expect(recorded).toBe(true);
    return model.reply(...request);
  };
  const child = agentTool({ name: 'helper', description: '', model: { ...model, reply }, tools: [] });
  const options = { journal: checking, runId: 'p', model: scriptedModel([callHelper, 'Done.']), tools: [child] };
  expect(JSON.stringify((await runLoop({ ...options, input: 'go' })).messages)).toContain('Helped.');
});

test('a child run performs nothing if its parent is cancelled before it has recorded the start', async () => {
  const journal = memoryJournal();
  const [childStored, cancelStored] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow: typeof journal = {
    ...journal,
    async append(runId, entries, lease) {
      if (runId !== 'p') await childStored.promise;
      else if (entries.some(({ event }) => event.type === 'cancel-requested')) await cancelStored.promise;
      return journal.append(runId, entries, lease);
    },
  };
  // The model would throw if it were called.
  const child = agentTool({ name: 'helper', description: '', model: scriptedModel([]) });
  const run = streamLoop({
    journal: slow,
    runId: 'p',
    model: scriptedModel([callHelper]),
    tools: [child],
    input: 'go',
  });
  await waitUntil(() => journal.isDriven('p.t1.tool.0'));
  run.cancel();
  childStored.resolve();
  await waitUntil(async () => (await journal.read('p.t1.tool.0')).length > 0);
  for (let tick = 0; tick < 20; tick++) await nextTick();
  expect(await journal.read('p.t1.tool.0')).toHaveLength(1);
  cancelStored.resolve();
  await run.result;
  expect((await journal.read('p.t1.tool.0')).map(({ event }) => event.type)).toEqual([
    'run-started',
    'cancel-requested',
  ]);
});
