import { describe, expect, test } from 'vitest';
import { callEcho, echo } from '../../test/echo.ts';
import { resultTexts } from '../../test/results.ts';
import {
  handoff,
  outstanding,
  replay,
  runLoop,
  streamLoop,
  tool,
  waiting,
  type LoopOptions,
  type Policy,
  type RunStore,
  type Tool,
  type Verification,
} from '../index.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { diffRuns } from './diff.ts';
import { forkRun, planFork } from './fork.ts';
import { Parked } from '../tools/result.ts';

describe('forkRun', () => {
  const script = [callEcho('a'), callEcho('b'), 'Done.'];

  async function original(): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    await runLoop({ model: scriptedModel(script), tools: [echo], input: 'go', journal, runId: 'r' });
    return journal;
  }

  test('creates a run that ends the same with the same replies, at any entry', async () => {
    const journal = await original();
    const entries = await journal.read('r');
    for (const { seq } of entries) {
      const fork = await forkRun({ journal, runId: 'r', at: seq });
      const replies = (await journal.read(fork)).filter(({ event }) => event.type === 'model-replied').length;
      using model = scriptedModel(script.slice(replies));
      const result = await runLoop({ model, tools: [echo], journal, runId: fork });
      expect(result, `at ${seq}`).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 3 });
      expect((await journal.read(fork))[0]!.event).toMatchObject({ parent: { runId: 'r', seq } });
    }
  });

  test('applies changes of model, instructions and tools, and a replaced result', async () => {
    const journal = await original();
    const results = { 't1.tool.0': 'something else' };
    const changes = { model: 'scripted', instructions: 'Anew.', tools: [], results };
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes });
    using model = scriptedModel(['Another answer.']);
    const result = await runLoop({ model, journal, runId: fork });
    expect(result.text).toBe('Another answer.');
    expect(model.requests[0]).toMatchObject({ instructions: 'Anew.', tools: [] });
    expect(JSON.stringify(result.messages)).toContain('something else');
    const { same, rest } = diffRuns(await journal.read('r'), await journal.read(fork));
    expect(same).toBe(2);
    expect(rest[0]).toMatchObject({ a: { event: { type: 'tool-settled' } }, b: { event: { type: 'tool-settled' } } });
  });

  test('starts when it is made, so it is listed before runs that are older than it', async () => {
    const clock = manualClock(1_000);
    const journal = memoryJournal();
    const run = { model: scriptedModel(['a', 'b']), input: 'go', journal, clock };
    await runLoop({ ...run, runId: 'r' });
    await clock.advance(1_000);
    await runLoop({ ...run, runId: 'later' });
    await clock.advance(1_000);
    await forkRun({ journal, runId: 'r', at: 0, newRunId: 'fork', clock });
    const listed = (await journal.list()).map(({ runId, startedAt }) => [runId, startedAt]);
    expect(listed).toEqual([
      ['fork', 3_000],
      ['later', 2_000],
      ['r', 1_000],
    ]);
    expect((await journal.read('fork'))[0]!.event).toMatchObject({ at: 1_000 });
  });

  test('does not count the time since the original as active', async () => {
    const clock = manualClock(1_000);
    const journal = memoryJournal();
    const options = { tools: [echo], journal, clock, limits: { durationMs: 60_000 } };
    await runLoop({ ...options, model: scriptedModel([callEcho('a'), 'Done.']), input: 'go', runId: 'a' });
    await clock.advance(3_600_000);
    await forkRun({ journal, runId: 'a', at: 2, changes: { instructions: 'Be brief.' }, newRunId: 'b' });
    await clock.advance(3_600_000);
    const { outcome } = await runLoop({ ...options, model: scriptedModel(['Brief.']), runId: 'b' });
    expect(outcome).toMatchObject({ type: 'completed' });
  });

  test('calls the model again after a replaced result, and copies the other results of the turn', async () => {
    const journal = memoryJournal();
    const both = { calls: [...callEcho('a').calls, ...callEcho('b').calls] };
    await runLoop({ model: scriptedModel([both, 'Done.']), tools: [echo], input: 'go', journal, runId: 'r' });
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { results: { 't1.tool.0': 'c' } } });
    using model = scriptedModel(['Another answer.']);
    const result = await runLoop({ model, tools: [echo], journal, runId: fork });
    expect(result.text).toBe('Another answer.');
    expect(result.messages[2]).toMatchObject({ content: [{ content: [{ text: 'c' }] }, { content: [{ text: 'b' }] }] });
  });

  test('changes what the user said, and asks the model again', async () => {
    const journal = await original();
    const fork = await forkRun({ journal, runId: 'r', at: 0, changes: { input: 'stop' } });
    using model = scriptedModel(['Stopped.']);
    const result = await runLoop({ model, tools: [echo], journal, runId: fork });
    expect(result.messages).toMatchObject([{ content: [{ text: 'stop' }] }, { content: [{ text: 'Stopped.' }] }]);
    expect((await journal.read('r'))[0]!.event).toMatchObject({ input: [{ content: [{ text: 'go' }] }] });
  });

  test('changes limits from the beginning on, and rejects those that the shared entries exceed', async () => {
    const journal = await original();
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { limits: { turns: 2 } } });
    using model = scriptedModel([]);
    const result = await runLoop({ model, tools: [echo], journal, runId: fork });
    expect(result.outcome).toEqual({ type: 'exhausted', limit: 'turns' });
    await expect(forkRun({ journal, runId: 'r', at: 4, changes: { limits: { turns: 1 } } })).rejects.toThrow(
      'no longer applies',
    );
  });

  test('keeps some of the tools by their names', async () => {
    const journal = await original();
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { tools: [] } });
    const kept = await forkRun({ journal, runId: 'r', at: 2, changes: { tools: ['echo'] } });
    const toolsOf = async (runId: string): Promise<readonly string[]> => {
      const { state } = replay(await journal.read(runId));
      return state.tools.map(({ name }) => name);
    };
    expect([await toolsOf(fork), await toolsOf(kept)]).toEqual([[], ['echo']]);
    await expect(forkRun({ journal, runId: 'r', at: 2, changes: { tools: ['other'] } })).rejects.toThrow(
      'it has no tool "other" there',
    );
  });

  test('can be planned: what is taken over and what is performed, without a new run', async () => {
    const journal = await original();
    const plan = await planFork({ journal, runId: 'r', at: 1 });
    expect(plan.copied).toEqual([2]);
    expect(outstanding(plan.state)).toMatchObject([{ type: 'call-model', id: 't2.model.0' }]);
    const changed = await planFork({ journal, runId: 'r', at: 2, changes: { instructions: 'Anew.' } });
    expect([changed.entries.length, changed.copied]).toEqual([4, []]);
    expect(await journal.list()).toHaveLength(1);
  });

  test('copies the blobs of the original run', async () => {
    const journal = memoryJournal();
    const model = scriptedModel([callEcho('x'.repeat(50)), 'Done.']);
    await runLoop({ model, tools: [echo], input: 'go', journal, runId: 'r', maxResultChars: 20 });
    const ids = await journal.blobs.list('r');
    expect(ids).toHaveLength(1);
    const fork = await forkRun({ journal, runId: 'r', at: 1 });
    expect(await journal.blobs.read(fork, ids[0]!, 0, 50)).toMatchObject({ length: 50 });
  });

  test('replaces the result of a client tool', async () => {
    const journal = memoryJournal();
    const ask = tool({ name: 'ask', description: 'Asks the client' });
    const options = { tools: [ask], journal };
    const model = scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']);
    await runLoop({ ...options, model, runId: 'c', input: 'go' });
    const effect = 't1.client.0';
    await runLoop({ ...options, model, runId: 'c', answers: [{ type: 'result', effect, content: 'no' }] });
    const fork = await forkRun({ journal, runId: 'c', at: 2, changes: { results: { [effect]: 'yes' } } });
    const result = await runLoop({ ...options, model: scriptedModel(['Anew.']), runId: fork });
    expect(result.text).toBe('Anew.');
    expect(JSON.stringify(result.messages)).toContain('"yes"');
  });

  test('truncates a replaced result, and rejects changes after the end of the run', async () => {
    const journal = await original();
    const fork = await forkRun({
      journal,
      runId: 'r',
      at: 2,
      changes: { results: { 't1.tool.0': 'x'.repeat(99_999) } },
    });
    const [, , settled] = await journal.read(fork);
    expect(JSON.stringify(settled).length).toBeLessThan(16_000);
    await expect(forkRun({ journal, runId: 'r', at: 5, changes: { instructions: 'Anew.' } })).rejects.toThrow(
      'has ended',
    );
  });

  test('rejects unknown runs, entries and results, and reports why', async () => {
    const journal = await original();
    const fork = (at: number, changes = {}): Promise<string> => forkRun({ journal, runId: 'r', at, changes });
    await expect(fork(99)).rejects.toThrow('it has the entries 0 to 5, not 99');
    await expect(fork(1, { results: { 't1.tool.0': 'x' } })).rejects.toThrow('no call "t1.tool.0"');
    await expect(forkRun({ journal, runId: 'none', at: 0 })).rejects.toMatchObject({ code: 'unknown-run' });
  });
});

describe('forkRun does not run a call twice', () => {
  test('rejects a fork while an idempotent or verifiable call is outstanding', async () => {
    const journal = memoryJournal();
    const never = new Promise<string>(() => {});
    const calls = ['idempotent', 'verifiable', 'once', 'pure'].map((name) => ({ name }));
    const tools = calls.map(({ name }) =>
      tool({
        name,
        description: '',
        effect: name === 'verifiable' ? 'once' : (name as 'once'),
        execute: () => never,
        ...(name === 'verifiable' && { verify: () => ({ type: 'not-done' as const }) }),
      }),
    );
    for (const call of calls) {
      const run = streamLoop({
        model: scriptedModel([{ calls: [call] }]),
        tools,
        input: 'go',
        journal,
        runId: call.name,
      });
      await new Promise((resolve) => void setImmediate(resolve));
      await run.detach();
    }
    const fork = (runId: string): Promise<string> => forkRun({ journal, runId, at: 1 });
    const why = '"t1.tool.0" is outstanding and has no result that the fork could use';
    await expect(fork('idempotent')).rejects.toThrow(why);
    await expect(fork('verifiable')).rejects.toThrow(`${why}. Resume the run until it has one, or fork before entry 1`);
    await expect(fork('once')).resolves.toBeDefined();
    await expect(fork('pure')).resolves.toBeDefined();
  });
});

test('a fork that copies a truncated result offers read_result', async () => {
  const journal = memoryJournal();
  const big = tool({ name: 'big', description: '', effect: 'pure', execute: () => 'x'.repeat(50) });
  const options = { journal, tools: [big], maxResultChars: 20 };
  await runLoop({ ...options, runId: 'r', model: scriptedModel([{ calls: [{ name: 'big' }] }, 'Done.']), input: 'go' });
  const toolNames = async (runId: string): Promise<readonly string[]> => {
    const model = scriptedModel(['Done.']);
    await runLoop({ journal, runId, model, tools: [big] });
    return model.requests[0]!.tools.map(({ name }) => name);
  };
  const entries = await journal.read('r');
  expect(entries.map(({ event }) => event.type).slice(1, 4)).toEqual([
    'model-replied',
    'tools-changed',
    'tool-settled',
  ]);
  expect(await toolNames(await forkRun({ journal, runId: 'r', at: 1, changes: { model: 'other' } }))).toEqual([
    'big',
    'read_result',
  ]);
  expect(await toolNames(await forkRun({ journal, runId: 'r', at: 3, changes: { tools: [big] } }))).toEqual([
    'big',
    'read_result',
  ]);
});

test('a fork that copies a handoff and a truncated result offers read_result to the new agent', async () => {
  const journal = memoryJournal();
  const big = tool({ name: 'big', description: '', effect: 'pure', execute: () => 'x'.repeat(500) });
  const agents = [{ name: 'x', tools: [big] }];
  const options = { journal, tools: [handoff({ name: 'x' }), big], agents };
  const calls = [{ name: 'hand_off_to_x' }, { name: 'big' }];
  const rules = { parallel: false, maxResultChars: 100 };
  await runLoop({ ...options, ...rules, runId: 'r', model: scriptedModel([{ calls }, 'Done.']), input: 'go' });
  const runId = await forkRun({ journal, runId: 'r', at: 1 });
  const model = scriptedModel(['Done.']);
  await runLoop({ ...options, runId, model });
  expect(model.requests[0]!.tools.map(({ name }) => name)).toEqual(['big', 'read_result']);
});

describe('a fork in the middle of a turn uses the later results of the original', () => {
  /** Runs with two payments and a lookup, and forks at each entry up to the last result of the first turn. */
  async function forkEverywhere(options: Partial<LoopOptions>): Promise<readonly string[][]> {
    const journal = memoryJournal();
    const ran: string[] = [];
    const tools = ['pay', 'book', 'look'].map((name) =>
      tool({
        name,
        description: '',
        effect: name === 'look' ? 'pure' : 'once',
        execute: async () => (ran.push(name), `${name} ok`),
      }),
    );
    const calling = { calls: tools.map(({ name }) => ({ name })) };
    const code = { tools, journal, ...options };
    await runLoop({ ...code, model: scriptedModel([calling, 'Done.']), runId: 'r', input: 'go' });
    const entries = await journal.read('r');
    const texts: string[][] = [];
    for (const { seq } of entries.slice(0, -1)) {
      ran.length = 0;
      const runId = await forkRun({ journal, runId: 'r', at: seq });
      const result = await runLoop({ ...code, model: scriptedModel(['Done.']), runId });
      texts.push([...resultTexts(result)]);
      expect(ran, `at ${seq}`).toEqual([]);
    }
    return texts;
  }

  test.each<[string, Partial<LoopOptions>]>([
    ['in parallel', {}],
    ['one by one', { parallel: false }],
    ['at most two at once', { maxParallel: 2 }],
    ['after a policy', { policy: { judge: (calls) => calls.map(() => ({ type: 'allow' as const })) } }],
  ])('calls %s', async (_, options) => {
    const texts = await forkEverywhere(options);
    expect(texts.length).toBeGreaterThan(3);
    expect(new Set(texts.map((one) => one.join('; ')))).toEqual(new Set(['pay ok; book ok; look ok']));
  });

  /** A run whose process ended while a payment was in progress, and that was resumed. */
  async function lostPayment(verification: Verification): Promise<{ journal: RunStore; tools: Tool[]; ran: string[] }> {
    const journal = memoryJournal();
    const ran: string[] = [];
    const payment = (execute: () => unknown): Tool =>
      tool({ name: 'pay', description: '', execute, verify: () => verification });
    const first = streamLoop({
      model: scriptedModel([{ calls: [{ name: 'pay' }] }]),
      tools: [payment(() => new Promise(() => {}))],
      input: 'go',
      journal,
      runId: 'r',
    });
    await new Promise((resolve) => void setImmediate(resolve));
    await first.detach();
    const tools = [payment(() => (ran.push('pay'), 'paid'))];
    await runLoop({ model: scriptedModel(['Done.']), tools, journal, runId: 'r' });
    return { journal, tools, ran };
  }

  test.each<[Verification, string, number]>([
    [{ type: 'done', result: 'paid before' }, 'paid before', 0],
    [{ type: 'not-done' }, 'paid', 1],
    [{ type: 'unknown' }, 'it is not known whether it took effect', 0],
  ])('a call that was lost and verified: $type', async (verification, text, times) => {
    const { journal, tools, ran } = await lostPayment(verification);
    expect(ran).toHaveLength(times);
    const entries = await journal.read('r');
    for (const { seq } of entries.slice(0, -1)) {
      const runId = await forkRun({ journal, runId: 'r', at: seq });
      const result = await runLoop({ model: scriptedModel(['Done.']), tools, journal, runId });
      expect(resultTexts(result), `at ${seq}`).toEqual([expect.stringContaining(text)]);
    }
    expect(ran).toHaveLength(times);
  });

  test('a call that started earlier than in the fork, because a call before it was parked', async () => {
    const journal = memoryJournal();
    const ran: string[] = [];
    let there = false;
    const device = tool({
      name: 'device',
      description: '',
      effect: 'idempotent',
      execute: () => (there ? 'from the device' : new Parked('device', [])),
    });
    const pay = tool({ name: 'pay', description: '', execute: () => (ran.push('pay'), 'paid') });
    const options = { journal, tools: [device, pay], runId: 'r' };
    const calling = { calls: [{ name: 'device' }, { name: 'pay' }] };
    await runLoop({ ...options, model: scriptedModel([calling]), input: 'go', maxParallel: 1 });
    there = true;
    await runLoop({ ...options, model: scriptedModel(['Done.']) });
    const runId = await forkRun({ journal, runId: 'r', at: 1 });
    const result = await runLoop({ ...options, model: scriptedModel(['Done.']), runId });
    expect(resultTexts(result)).toEqual(['from the device', 'paid']);
    expect(ran).toEqual(['pay']);
  });

  test('is rejected if it would answer a call "interrupted" that never started', async () => {
    const journal = memoryJournal();
    const tick = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
    const first = Promise.withResolvers<string>();
    const named = (name: string, execute: () => unknown): Tool => tool({ name, description: '', execute });
    const tools = [
      named('first', () => first.promise),
      named('asked', () => new Promise(() => {})),
      named('last', () => 'paid'),
    ];
    const policy: Policy = {
      judge: (calls) => calls.map(({ name }) => ({ type: name === 'asked' ? 'ask' : 'allow' })),
    };
    const model = scriptedModel([{ calls: tools.map(({ name }) => ({ name })) }]);
    const run = streamLoop({ model, tools, policy, input: 'go', journal, runId: 'r', maxParallel: 1 });
    await tick();
    const entries = await journal.read('r');
    const [asked] = waiting(replay(entries).state);
    if (asked?.type !== 'approval') throw new Error('expected an approval');
    await run.answer({ type: 'approval', effect: asked.effect, digest: asked.digest, approved: true });
    first.resolve('ok');
    await tick();
    await run.detach();
    // In the fork nobody has approved "asked", so "last" is next; in the original it has not started.
    await expect(forkRun({ journal, runId: 'r', at: entries.length - 1 })).rejects.toThrow(
      '"t1.tool.2" has not started there yet. Resume the run until it has a result.',
    );
  });
});
