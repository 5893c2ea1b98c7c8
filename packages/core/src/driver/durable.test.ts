import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import {
  agentTool,
  diffRuns,
  forkRun,
  replay,
  runLoop,
  step,
  streamLoop,
  tool,
  type Event,
  type JournalEntry,
  type ModelRequest,
} from '../index.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { entryOf } from '../journal/replay.ts';

const echo = tool({
  name: 'echo',
  description: 'Says it again',
  input: z.object({ text: z.string() }),
  effect: 'pure',
  execute: ({ text }) => text,
});
const calling = (text: string): { calls: { name: string; arguments: unknown }[] } => ({
  calls: [{ name: 'echo', arguments: { text } }],
});

describe('prepareTurn', () => {
  test('decides model, tools, choice and instructions of one turn, and is journaled', async () => {
    const journal = memoryJournal();
    const other = { ...scriptedModel(['From the other.']), id: 'other' };
    using model = scriptedModel([calling('a')]);
    const result = await runLoop({
      model,
      models: [other],
      tools: [echo],
      input: 'go',
      journal,
      runId: 'r',
      prepareTurn: ({ turn }) =>
        turn === 1 ? { instructions: 'Be brief.', toolChoice: 'required' } : { model: 'other', tools: [] },
    });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'From the other.' });
    expect(model.requests[0]).toMatchObject({ instructions: 'Be brief.', toolChoice: 'required' });
    expect(other.requests[0]).toMatchObject({ tools: [], toolChoice: 'auto' });
    const entries = await journal.read('r');
    expect(entries.flatMap(({ event }) => (event.type === 'turn-prepared' ? event.decision : []))).toEqual([
      { instructions: 'Be brief.', toolChoice: 'required' },
      { model: 'other', tools: [] },
    ]);
  });

  test.each([
    [() => ({ tools: ['none'] }), 'there is no tool "none"'],
    [() => ({ model: 'none' }), 'not in "models"'],
    [() => ({ toolChoice: 'bogus' as never }), 'is not a toolChoice'],
    [() => ({ tools: 'echo' as never }), 'not an array of names'],
    [() => Promise.reject(new Error('no idea')), 'no idea'],
  ])('what cannot be done fails the run', async (prepareTurn, problem) => {
    const result = await runLoop({ model: scriptedModel([]), tools: [echo], input: 'go', prepareTurn });
    expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'prepare-failed' } });
    expect(JSON.stringify(result.outcome)).toContain(JSON.stringify(problem).slice(1, -1));
  });

  test('a tool that the turn does not have is not called', async () => {
    using model = scriptedModel([calling('a'), 'Done.']);
    const result = await runLoop({ model, tools: [echo], input: 'go', prepareTurn: () => ({ tools: [] }) });
    expect(result).toMatchObject({ calls: 0, outcome: { type: 'completed' } });
  });
});

describe('output', () => {
  const schema = z.object({ total: z.number() });

  test('the validated value is in the result, with its type', async () => {
    using model = scriptedModel(['```json\n{"total": 3}\n```']);
    const result = await runLoop({ model, input: 'add', output: schema });
    expect(result.output?.total).toBe(3);
    expect(model.requests[0]).toMatchObject({
      output: { type: 'object' },
      instructions: expect.stringContaining('total'),
    });
  });

  test('an answer of another form is sent back once, with the problems', async () => {
    using model = scriptedModel(['three', '{"total": "3"}']);
    const result = await runLoop({ model, input: 'add', output: schema });
    expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'output-invalid' } });
    expect(result.output).toBeUndefined();
    using second = scriptedModel(['three', '{"total": 3}']);
    expect(await runLoop({ model: second, input: 'add', output: schema })).toMatchObject({
      outcome: { type: 'completed' },
      output: { total: 3 },
    });
    expect(JSON.stringify(second.requests[1]!.messages)).toContain('it is not JSON');
  });
});

describe('compaction', () => {
  const summaries = (): { model: ReturnType<typeof scriptedModel> } => ({
    model: scriptedModel(['They said a and b.']),
  });

  test('before the model is asked, whole turns give way to a summary', async () => {
    const { model: summariser } = summaries();
    const journal = memoryJournal();
    const usage = { inputTokens: 90, outputTokens: 10, cost: 0 };
    using model = scriptedModel([calling('a'), calling('b'), { ...calling('c'), usage }, 'Done.']);
    const result = await runLoop({
      model,
      summariser,
      tools: [echo],
      input: 'the task',
      journal,
      runId: 'r',
      compaction: { tokens: 100, keepTurns: 1 },
    });
    summariser.assertDone();
    expect(result.outcome).toEqual({ type: 'completed' });
    const last = model.requests.at(-1)!.messages;
    expect(last[0]).toMatchObject({ role: 'user', content: [{ text: 'the task' }] });
    expect(JSON.stringify(last[1])).toContain('They said a and b.');
    expect(pairs(model.requests)).toBe(true);
    expect(result.usage.inputTokens).toBe(10 + 10 + 90 + 10 + 10);
    const facts = (await journal.read('r')).map(({ event }) => event.type);
    expect(facts.filter((type) => type === 'history-compacted')).toHaveLength(1);
    expect(facts.filter((type) => type === 'tool-settled')).toHaveLength(3);
  });

  test('after the model found it too long, once a turn; then it fails with that', async () => {
    const tooLong = {
      type: 'failure',
      error: { code: 'context-length', message: 'too long', retryable: false },
    } as const;
    const { model: summariser } = summaries();
    using model = scriptedModel([calling('a'), calling('b'), tooLong, 'Done.']);
    const options = { tools: [echo], input: 'the task', compaction: { keepTurns: 1 } };
    expect((await runLoop({ ...options, model, summariser })).outcome).toEqual({ type: 'completed' });
    expect(pairs(model.requests)).toBe(true);
    using again = scriptedModel([calling('a'), calling('b'), tooLong, tooLong]);
    const failed = await runLoop({ ...options, model: again, summariser: summaries().model });
    expect(failed.outcome).toEqual({ type: 'failed', error: { code: 'context-length', message: 'too long' } });
    using without = scriptedModel([calling('a'), calling('b'), tooLong]);
    expect((await runLoop({ ...options, compaction: false, model: without })).outcome).toMatchObject({
      type: 'failed',
    });
  });
});

/** Every call in every request is answered right after. */
function pairs(requests: readonly ModelRequest[]): boolean {
  return requests.every(({ messages }) =>
    messages.every((message, index) => {
      const calls =
        message.role === 'assistant' ? message.content.filter(({ type }) => type === 'tool-call').length : 0;
      const next = messages[index + 1];
      return calls === 0 || (next?.role === 'tool' && next.content.length === calls);
    }),
  );
}

test('a summary that is longer than what it replaces is none', async () => {
  const usage = { inputTokens: 900, outputTokens: 100, cost: 0 };
  const model = scriptedModel([calling('a'), calling('b'), { ...calling('c'), usage }, 'Done.']);
  const summariser = scriptedModel(['so '.repeat(5_000)]);
  const compaction = { tokens: 900, keepTurns: 1 };
  const result = await runLoop({ model, summariser, tools: [echo], input: 'go', compaction });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(JSON.stringify(result.messages)).not.toContain('so so');
});

test('a run that was started with prepareTurn goes on with one, and is not spoilt without', async () => {
  const journal = memoryJournal();
  const ask = tool({ name: 'ask', description: 'Asks the client' });
  const model = scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']);
  const options = { model, tools: [ask], journal, runId: 'r' };
  await runLoop({ ...options, prepareTurn: () => ({}), input: 'go' });
  const answers = [{ type: 'client-result', effect: 't1.client.0', content: 'b' }] as const;
  await expect(runLoop({ ...options, answers })).rejects.toThrow('Pass prepareTurn to resume');
  expect((await runLoop({ ...options, answers, prepareTurn: () => ({}) })).text).toBe('Done.');
});

describe('results that are too long', () => {
  test('are kept whole, and a tool that pages through them appears', async () => {
    const whole = Array.from({ length: 500 }, (_, index) => `line ${index}`).join('\n');
    const big = tool({ name: 'big', description: 'Much', effect: 'pure', execute: () => whole });
    let id = '';
    let read = '';
    using model = scriptedModel([
      { calls: [{ name: 'big' }] },
      ({ messages }) => {
        id = /read_result: \{"id":"([^"]+)"/.exec(JSON.stringify(messages).replaceAll('\\', ''))![1]!;
        return { calls: [{ name: 'read_result', arguments: { id, offset: 0 } }] };
      },
      ({ messages }) => {
        read = JSON.stringify(messages.at(-1));
        return 'Done.';
      },
    ]);
    const result = await runLoop({ model, tools: [big], input: 'go', journal: memoryJournal(), maxResultChars: 1_000 });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(model.requests.map(({ tools }) => tools.length)).toEqual([1, 2, 2]);
    expect(read).toContain('line 60');
    expect(read).toContain('offset');
  });
});

describe('a child', () => {
  const child = (script: Parameters<typeof scriptedModel>[0], more = {}): ReturnType<typeof agentTool> =>
    agentTool({ name: 'helper', description: 'Helps', model: scriptedModel(script), tools: [echo], ...more });
  const asking = { calls: [{ name: 'helper', arguments: { task: 'help' } }] };

  test('is a run of its own, linked, whose answer is the result and whose usage counts', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([asking, 'Done.']);
    const result = await runLoop({
      model,
      tools: [child([calling('x'), 'Helped.'])],
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

  test('draws a fixed share of the limits', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([asking, 'Done.']);
    const limits = { calls: 9, tokens: 1_015 };
    await runLoop({ model, tools: [child(['x'], { share: 0.25 })], input: 'go', journal, runId: 'p', limits });
    const [first] = await journal.read('p.t1.tool.0');
    expect(first!.event).toMatchObject({ rules: { limits: { calls: 2, tokens: 250 } } });
  });

  test('pauses its parent where it pauses, and goes on with it', async () => {
    const journal = memoryJournal();
    const ask = { judge: () => [{ type: 'ask' as const }] };
    const helper = child([calling('x'), 'Helped.'], { policy: ask });
    using model = scriptedModel([asking, 'Done.']);
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

test('a child that its parent is parked on is cancelled with it', async () => {
  const journal = memoryJournal();
  const policy = { judge: () => [{ type: 'ask' as const }] };
  const model = scriptedModel([calling('x')]);
  const helper = agentTool({ name: 'helper', description: 'Helps', model, tools: [echo], policy });
  const script = [{ calls: [{ name: 'helper', arguments: { task: 'help' } }] }];
  const options = { model: scriptedModel(script), tools: [helper], journal, runId: 'p' };
  await runLoop({ ...options, input: 'go' });
  expect(await journal.list({ status: ['paused'] })).toHaveLength(2);
  const result = await runLoop({ ...options, signal: AbortSignal.abort() });
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

describe('a child that cannot be relied on', () => {
  const task = { calls: [{ name: 'kid', arguments: { task: 'x' } }] };
  const pay = (ran: string[]): ReturnType<typeof tool> =>
    tool({ name: 'pay', description: 'Pays', execute: (_, { key }) => (ran.push(key), 'paid') });
  const ask = tool({ name: 'ask', description: 'Asks the client' });

  async function parked(ran: string[]): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [{ name: 'pay' }] }, { calls: [{ name: 'ask' }] }]);
    const kid = agentTool({ name: 'kid', description: 'Works', model, tools: [pay(ran), ask] });
    await runLoop({ model: scriptedModel([task]), tools: [kid], journal, runId: 'p', input: 'go' });
    return journal;
  }
  const answers = [{ type: 'client-result', effect: 't1.tool.0/t2.client.0', content: 'yes' }] as const;

  test('one whose tools have changed stops its parent, and nothing is lost', async () => {
    const ran: string[] = [];
    const journal = await parked(ran);
    const kid = (...tools: ReturnType<typeof tool>[]): ReturnType<typeof tool> =>
      agentTool({ name: 'kid', description: 'Works', model: scriptedModel(['Done.']), tools });
    const model = scriptedModel(['All done.']);
    const options = { model, journal, runId: 'p', answers };
    await expect(runLoop({ ...options, tools: [kid(pay(ran))] })).rejects.toMatchObject({ code: 'tools-changed' });
    const { answers: _, ...without } = options;
    const again = await runLoop({ ...without, tools: [kid(pay(ran), ask)] });
    expect(again.waiting).toMatchObject([{ type: 'client', effect: 't1.tool.0/t2.client.0' }]);
    const result = await runLoop({ ...options, tools: [kid(pay(ran), ask)] });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'All done.' });
    expect(ran).toHaveLength(1);
  });

  test('what its parent accepts of changed tools, it accepts too', async () => {
    const ran: string[] = [];
    const journal = await parked(ran);
    const kid = agentTool({ name: 'kid', description: 'Works', model: scriptedModel(['Done.']), tools: [ask] });
    const model = scriptedModel(['All done.']);
    const options = { model, tools: [kid], journal, runId: 'p', answers, acceptChangedTools: true };
    expect((await runLoop(options)).text).toBe('All done.');
    expect(ran).toHaveLength(1);
  });

  test('one that is gone though it was waited for is not started anew', async () => {
    const ran: string[] = [];
    const journal = await parked(ran);
    await journal.delete('p.t1.tool.0');
    const kid = agentTool({ name: 'kid', description: 'Works', model: scriptedModel([]), tools: [pay(ran), ask] });
    const going = runLoop({ model: scriptedModel([]), tools: [kid], journal, runId: 'p', answers });
    await expect(going).rejects.toMatchObject({ code: 'unknown-run' });
    expect(ran).toHaveLength(1);
  });

  test('one that ended stays as long as its parent needs it', async () => {
    const journal = memoryJournal();
    const wait = tool({ name: 'wait', description: 'Waits' });
    const kid = agentTool({ name: 'kid', description: 'Works', model: scriptedModel(['Done.']) });
    const model = scriptedModel([{ calls: [...task.calls, { name: 'wait' }] }, 'All done.']);
    const options = { model, tools: [kid, wait], journal, runId: 'p' };
    await runLoop({ ...options, input: 'go' });
    expect(await journal.prune(Infinity)).toBe(0);
    await runLoop({ ...options, answers: [{ type: 'client-result', effect: 't1.client.1', content: '' }] });
    expect(await journal.prune(Infinity)).toBe(2);
  });

  test("another's run under its name is not taken for it", async () => {
    const journal = memoryJournal();
    await runLoop({ model: scriptedModel(['Foreign.']), journal, runId: 'q.t1.tool.0', input: 'x' });
    const kid = agentTool({ name: 'kid', description: 'Works', model: scriptedModel(['Mine.']) });
    const going = runLoop({ model: scriptedModel([task]), tools: [kid], journal, runId: 'q', input: 'go' });
    await expect(going).rejects.toMatchObject({ code: 'run-exists' });
  });

  test('its calls count for its parent', async () => {
    const model = scriptedModel([{ calls: [{ name: 'echo', arguments: { text: 'a' } }] }, 'Done.']);
    const kid = agentTool({ name: 'kid', description: 'Works', model, tools: [echo] });
    const result = await runLoop({ model: scriptedModel([task, 'All done.']), tools: [kid], input: 'go' });
    expect(result.calls).toBe(2);
  });

  test('one that was left behind by a crash in the middle of a cancel is cancelled when its parent is opened', async () => {
    const journal = await parked([]);
    const entries = await journal.read('p');
    const seq = entries.length;
    const event = { type: 'cancel-requested', at: 0 } as const;
    journal.append('p', [{ ...entryAfter(entries, event), seq }]);
    await runLoop({ model: scriptedModel([]), journal, runId: 'p' });
    expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
  });
});

/** The entry that the fact would make. */
function entryAfter(entries: readonly JournalEntry[], event: Event): JournalEntry {
  const replayed = replay(entries);
  return entryOf(entries.length, event, step(replayed.state, event));
}

describe('a fork', () => {
  const script = [calling('a'), calling('b'), 'Done.'];

  async function original(): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    await runLoop({ model: scriptedModel(script), tools: [echo], input: 'go', journal, runId: 'r' });
    return journal;
  }

  test('at any entry, with the same answers after it, ends equal', async () => {
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

  test('with changes: another model, instructions, tools, a replaced result', async () => {
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

  test('with nothing but another result asks the model anew, and keeps what else was under way', async () => {
    const journal = memoryJournal();
    const both = { calls: [...calling('a').calls, ...calling('b').calls] };
    await runLoop({ model: scriptedModel([both, 'Done.']), tools: [echo], input: 'go', journal, runId: 'r' });
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { results: { 't1.tool.0': 'c' } } });
    using model = scriptedModel(['Otherwise.']);
    const result = await runLoop({ model, tools: [echo], journal, runId: fork });
    expect(result.text).toBe('Otherwise.');
    expect(result.messages[2]).toMatchObject({ content: [{ content: [{ text: 'c' }] }, { content: [{ text: 'b' }] }] });
  });

  test('has the long results of its parent', async () => {
    const journal = memoryJournal();
    const model = scriptedModel([calling('x'.repeat(50)), 'Done.']);
    await runLoop({ model, tools: [echo], input: 'go', journal, runId: 'r', maxResultChars: 20 });
    const ids = await journal.blobs.list('r');
    expect(ids).toHaveLength(1);
    const fork = await forkRun({ journal, runId: 'r', at: 1 });
    expect(await journal.blobs.read(fork, ids[0]!, 0, 50)).toMatchObject({ length: 50 });
  });

  test("a client's result can be replaced, too", async () => {
    const journal = memoryJournal();
    const ask = tool({ name: 'ask', description: 'Asks the client' });
    const options = { tools: [ask], journal };
    const model = scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']);
    await runLoop({ ...options, model, runId: 'c', input: 'go' });
    const effect = 't1.client.0';
    await runLoop({ ...options, model, runId: 'c', answers: [{ type: 'client-result', effect, content: 'no' }] });
    const fork = await forkRun({ journal, runId: 'c', at: 2, changes: { results: { [effect]: 'yes' } } });
    const result = await runLoop({ ...options, model: scriptedModel(['Anew.']), runId: fork });
    expect(result.text).toBe('Anew.');
    expect(JSON.stringify(result.messages)).toContain('"yes"');
  });

  test('a replaced result is held to the size of any other, and what was used stays used', async () => {
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

  test('what cannot be forked so says why', async () => {
    const journal = await original();
    const fork = (at: number, changes = {}): Promise<string> => forkRun({ journal, runId: 'r', at, changes });
    await expect(fork(99)).rejects.toThrow('it has the entries 0 to 5, not 99');
    await expect(fork(1, { results: { 't1.tool.0': 'x' } })).rejects.toThrow('no call "t1.tool.0"');
    await expect(forkRun({ journal, runId: 'none', at: 0 })).rejects.toMatchObject({ code: 'unknown-run' });
  });
});

describe('going on', () => {
  test('a run that failed with its model can be resumed', async () => {
    const journal = memoryJournal();
    const down = { type: 'failure', error: { code: 'overloaded', message: 'down', retryable: true } } as const;
    const options = { tools: [echo], journal, runId: 'r' };
    const failed = await runLoop({ ...options, model: scriptedModel([calling('a'), down]), input: 'go' });
    expect(failed.outcome).toMatchObject({ type: 'failed', error: { code: 'overloaded' } });
    const result = await runLoop({ ...options, model: scriptedModel(['Done.']) });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2 });
  });

  test('tools that are gone or have changed are reported, not guessed', async () => {
    const journal = memoryJournal();
    const client = tool({ name: 'pick', description: 'The client picks' });
    const options = { journal, runId: 'r' };
    const model = scriptedModel([{ calls: [{ name: 'pick' }] }, 'Done.']);
    await runLoop({ ...options, model, tools: [client, echo], input: 'go' });
    const input = z.object({ words: z.string() });
    const other = tool({ name: 'echo', description: '', input, execute: ({ words }) => words });
    await expect(runLoop({ ...options, model, tools: [other] })).rejects.toThrow(
      '"pick" is missing; "echo" has a different parameters and effect',
    );
    const answers = [{ type: 'client-result', effect: 't1.client.0', content: 'b' }] as const;
    const result = await runLoop({ ...options, model, tools: [other], answers, acceptChangedTools: true });
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('only one drives a run', async () => {
    const journal = memoryJournal();
    const lease = await journal.acquire('r');
    const options = { journal, runId: 'r', model: scriptedModel(['Done.']), input: 'go' };
    await expect(runLoop(options)).rejects.toMatchObject({ code: 'run-driven' });
    await lease.release();
    expect((await runLoop(options)).text).toBe('Done.');
  });
});

describe('a fork does nothing twice', () => {
  test('so it is refused where something is under way that nobody could tell from a second one', async () => {
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
