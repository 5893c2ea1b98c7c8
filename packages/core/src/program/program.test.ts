import { describe, expect, test } from 'vitest';
import { runLoop } from '../driver/run.ts';
import type { LoopOptions } from '../driver/options.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Event } from '../machine/events.ts';
import { memoryBudgets } from '../ledger/budgets.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { agentTool } from '../agents/agent-tool.ts';
import {
  all,
  branchTool,
  call,
  fail,
  programModel,
  retry,
  settle,
  step,
  type Program,
  type StepError,
  type Steps,
} from './program.ts';

const double = tool({
  name: 'double',
  description: 'Doubles a number',
  input: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
  effect: 'pure',
  execute: ({ n }) => (n as number) * 2,
});

/** Returns a list that is longer than any result in a history. */
const list = tool({
  name: 'list',
  description: 'Lists 500 items',
  effect: 'pure',
  execute: () => Array.from({ length: 500 }, (_, n) => ({ n, name: `item number ${n} of the list` })),
});

const sum = tool({
  name: 'sum',
  description: 'Adds the numbers of items',
  input: {
    type: 'object',
    properties: { items: { type: 'array', items: { type: 'object', required: ['n'] } } },
    required: ['items'],
  },
  effect: 'pure',
  execute: ({ items }) => (items as { n: number }[]).reduce((total, { n }) => total + n, 0),
});

function program(run: Program<never>['run'], version: unknown = 1): Program<never> {
  return { name: 'flow', version, run };
}

function options(
  run: Program<never>['run'],
  tools: readonly Tool[],
  more: Partial<LoopOptions> = {},
): LoopOptions & { runId: string } {
  return { model: programModel(program(run)), tools, input: '{"n":3}', runId: 'r', ...more };
}

function* doubled({ n }: { n: number }): Steps<unknown> {
  const once = yield* call<number>('double', { n });
  return { answer: yield* call<number>('double', { n: once }) };
}

describe('a program', () => {
  test('calls tools, gets their values and answers', async () => {
    const { outcome, text, turns } = await runLoop(options(doubled, [double]));
    expect({ outcome, text, turns }).toEqual({ outcome: { type: 'completed' }, text: '{"answer":12}', turns: 3 });
  });

  test('takes more steps at once than fit into a reply', async () => {
    function* run(): Steps<unknown> {
      const values = yield* all<number>(Array.from({ length: 250 }, (_, n) => step('double', { n })));
      return values.reduce((total, one) => total + one, 0);
    }
    const { text, turns, calls } = await runLoop(options(run, [double]));
    expect({ text, turns, calls }).toEqual({ text: String(249 * 250), turns: 4, calls: 250 });
  });

  test('takes no turn for no steps, and answers with null if it returns nothing', async () => {
    function* run(): Steps<void> {
      expect(yield* all([])).toEqual([]);
    }
    const { text, turns } = await runLoop(options(run, []));
    expect({ text, turns }).toEqual({ text: 'null', turns: 1 });
  });

  test('catches the error of a step, and tries again', async () => {
    let failures = 2;
    const flaky = tool({
      name: 'flaky',
      description: 'Fails twice',
      execute() {
        if (failures-- > 0) throw new Error('not now');
        return 'at last';
      },
    });
    function* run(): Steps<unknown> {
      const [first] = yield* settle([step('nothing')]);
      return [first!.type === 'failed' && first!.error.errorType, yield* retry(3, () => call('flaky'))];
    }
    const { text } = await runLoop(options(run, [flaky]));
    expect(text).toBe('["not_found","at last"]');
  });

  test('does not repeat a step that was denied or may have taken effect, unless it says so', async () => {
    const counts = { denied: 0, hanging: 0 };
    const hanging = tool({
      name: 'hanging',
      description: 'Hangs',
      timeoutMs: 1,
      execute: () => (counts.hanging++, new Promise(() => {})),
    });
    const policy: LoopOptions['policy'] = {
      judge: (calls) => calls.map(({ name }) => (name === 'double' ? deny() : { type: 'allow' })),
    };
    const deny = () => (counts.denied++, { type: 'deny' as const, reason: 'no' });
    function* run(): Steps<unknown> {
      const types: unknown[] = [];
      const attempts = [
        retry(3, () => call('double', { n: 1 })),
        retry(3, () => call('hanging')),
        retry(2, () => call('hanging'), ['timeout']),
      ];
      for (const attempt of attempts) {
        try {
          yield* attempt;
        } catch (error) {
          types.push((error as StepError).errorType);
        }
      }
      return types;
    }
    const { text } = await runLoop(options(run, [double, hanging], { policy }));
    expect(text).toBe('["denied","timeout","timeout"]');
    expect(counts).toEqual({ denied: 1, hanging: 3 });
  });

  test('fails the run with its own code, which cannot be resumed', async () => {
    const journal = memoryJournal();
    const given = options(
      function* () {
        yield* call('double', { n: 1 });
        fail('out-of-stock', 'There is none left.');
      },
      [double],
    );
    const { outcome } = await runLoop({ ...given, journal });
    expect(outcome).toEqual({ type: 'failed', error: { code: 'out-of-stock', message: 'There is none left.' } });
    const { input: _, ...again } = given;
    const before = (await journal.read('r')).length;
    const resumed = await runLoop({ ...again, journal });
    expect(resumed.outcome).toEqual(outcome);
    expect(await journal.read('r')).toHaveLength(before);
  });

  test('fails the run with step-failed if it does not catch the error of a step', async () => {
    const { outcome } = await runLoop(options(() => call('nothing'), []));
    expect(outcome).toMatchObject({ type: 'failed', error: { code: 'step-failed' } });
  });

  test('is not stopped by the limits of errors, repetition and turns that models have', async () => {
    function* run(): Steps<unknown> {
      for (let count = 0; count < 30; count++) yield* settle([step('nothing')]);
      for (let count = 0; count < 30; count++) yield* call('double', { n: 1 });
      return 'done';
    }
    const { outcome, turns } = await runLoop(options(run, [double]));
    expect({ outcome, turns }).toEqual({ outcome: { type: 'completed' }, turns: 61 });
    const limited = await runLoop(options(run, [double], { errorLimit: 3 }));
    expect(limited.outcome).toEqual({ type: 'exhausted', limit: 'errors' });
  });

  test('is completed under limits of tokens and cost, and reserves no tokens in a ledger', async () => {
    const budgets = memoryBudgets({ job: { tokens: 1, cost: 0, calls: 2 } });
    const ledger = budgets.ledger(['job']);
    const limits = { tokens: 1, cost: 0.01 };
    const { outcome, usage } = await runLoop(options(doubled, [double], { limits, ledger }));
    expect(outcome).toEqual({ type: 'completed' });
    expect(usage).toEqual({ inputTokens: 0, outputTokens: 0, cost: 0 });
    expect(await budgets.get('job')).toMatchObject({ settled: { tokens: 0, cost: 0, calls: 2 } });
  });

  test('rejects compaction, which would remove the history that it reads', async () => {
    await expect(runLoop(options(doubled, [double], { compaction: true }))).rejects.toMatchObject({
      code: 'invalid-options',
    });
  });

  test('is rejected without a version that is plain JSON', () => {
    for (const version of [undefined, () => 1]) {
      expect(() => programModel({ name: 'flow', version, run: doubled as never })).toThrow('is not complete');
    }
  });
});

describe('the definition of a program', () => {
  const waiting = tool({ name: 'double', description: 'Asked first', needsApproval: true, execute: () => 4 });

  async function paused(): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    const { outcome } = await runLoop(options(doubled, [waiting], { journal }));
    expect(outcome).toBeUndefined();
    return journal;
  }

  test('is recorded when the run starts', async () => {
    const [first] = await (await paused()).read('r');
    expect(first!.event).toMatchObject({ type: 'run-started', program: { name: 'flow', version: 1 } });
  });

  test('must be the same to resume the run, unless a change is accepted and recorded', async () => {
    const journal = await paused();
    const resumed = { tools: [waiting], journal, runId: 'r' };
    const changed = { ...resumed, model: programModel(program(doubled, 2)) };
    await expect(runLoop(changed)).rejects.toMatchObject({ code: 'program-changed' });
    await expect(runLoop({ ...resumed, model: scriptedModel([]) })).rejects.toMatchObject({ code: 'program-changed' });
    await runLoop({ ...changed, acceptChangedProgram: true });
    const events = (await journal.read('r')).map(({ event }) => event);
    expect(events).toContainEqual({
      type: 'program-changed',
      at: expect.any(Number),
      program: { name: 'flow', version: 2 },
    });
    await runLoop(changed);
    await expect(runLoop({ ...resumed, model: programModel(program(doubled)) })).rejects.toThrow(
      'acceptChangedProgram',
    );
  });

  test('does not have to be known to cancel the run', async () => {
    const journal = await paused();
    const given = { tools: [waiting], journal, runId: 'r', signal: AbortSignal.abort() };
    const { outcome } = await runLoop({ ...given, model: scriptedModel([]) });
    expect(outcome).toEqual({ type: 'cancelled', phase: 'approval' });
  });

  test('a program that asks for other calls than the run has made fails, and can be resumed with the right one', async () => {
    const journal = await paused();
    function* other({ n }: { n: number }): Steps<unknown> {
      return yield* call('double', { n: n + 1 });
    }
    const [wait] = (await runLoop({ ...resumedWith(doubled), journal })).waiting;
    const { effect, digest } = wait as Extract<NonNullable<typeof wait>, { type: 'approval' }>;
    const answers = [{ type: 'approval', effect, digest, approved: true }] as const;
    const { outcome } = await runLoop({ ...resumedWith(other), journal, answers });
    expect(outcome).toMatchObject({
      error: { code: 'program-diverged', message: expect.stringContaining('double {"n":4}') },
    });
    const { waiting: next } = await runLoop({ ...resumedWith(doubled), journal });
    expect(next).toHaveLength(1);
  });

  function resumedWith(run: Program<never>['run']): { model: LoopOptions['model']; tools: Tool[]; runId: string } {
    return { model: programModel(program(run)), tools: [waiting], runId: 'r' };
  }

  test('a program that throws fails the run, which can be resumed when it is repaired', async () => {
    const journal = memoryJournal();
    const broken = options(
      function* () {
        yield* call('double', { n: 1 });
        throw new TypeError('no such field');
      },
      [double],
    );
    const { outcome } = await runLoop({ ...broken, journal });
    expect(outcome).toMatchObject({
      error: { code: 'program-failed', message: expect.stringContaining('no such field') },
    });
    const repaired = programModel(program(() => call('double', { n: 1 })));
    const { text } = await runLoop({ model: repaired, tools: [double], journal, runId: 'r' });
    expect(text).toBe('2');
  });
});

describe('a long result', () => {
  function* summed(): Steps<unknown> {
    const items = yield* call<readonly { n: number }[]>('list');
    const total = yield* call('sum', { items });
    return { count: items.length, total };
  }

  test('is given to the program in full, and passed on by reference', async () => {
    const journal = memoryJournal();
    const { text, messages } = await runLoop(options(summed, [list, sum], { journal }));
    expect(text).toBe('{"count":500,"total":124750}');
    expect(JSON.stringify(messages).length).toBeLessThan(2_000);
    expect(messages[3]).toMatchObject({
      content: [{ arguments: expect.stringMatching(/^{"items":{"\$blob":/), references: ['items'] }],
    });
    expect(await journal.blobs.list('r')).toHaveLength(1);
  });

  test('is found again by another process, and by a fork', async () => {
    const journal = memoryJournal();
    const asked = { ...sum, needsApproval: true };
    const given = options(summed, [list, asked], { journal });
    const [wait] = (await runLoop(given)).waiting;
    const fork = await forkRun({ journal, runId: 'r', at: 2 });
    const { effect, digest } = wait as Extract<NonNullable<typeof wait>, { type: 'approval' }>;
    const answers = [{ type: 'approval', effect, digest, approved: true }] as const;
    const { input: _, ...again } = { ...given, journal, model: programModel(program(summed)) };
    expect((await runLoop({ ...again, answers })).text).toBe('{"count":500,"total":124750}');
    const forked = await runLoop({ ...again, runId: fork });
    expect(forked.waiting).toHaveLength(1);
    expect((await runLoop({ ...again, runId: fork, answers })).text).toBe('{"count":500,"total":124750}');
  });

  test('stays in the history if there is no store', async () => {
    const { text, messages } = await runLoop(options(summed, [list, sum]));
    expect(text).toBe('{"count":500,"total":124750}');
    expect(JSON.stringify(messages[2])).toContain('item number 499');
  });

  test('that cannot be read stops the run, which can be resumed when it can', async () => {
    const memory = memoryJournal();
    let reads = 0;
    const read: typeof memory.blobs.read = (...args) =>
      ++reads === 2 ? Promise.reject(new Error('the disk is away')) : memory.blobs.read(...args);
    const journal = { ...memory, blobs: { ...memory.blobs, read } };
    const given = options(summed, [list, sum], { journal });
    await expect(runLoop(given)).rejects.toThrow('the disk is away');
    const { input: _, ...again } = given;
    expect((await runLoop({ ...again, journal })).text).toBe('{"count":500,"total":124750}');
  });

  test('is changed in a fork without being cut', async () => {
    const journal = memoryJournal();
    await runLoop(options(summed, [list, sum], { journal }));
    const items = JSON.stringify(Array.from({ length: 900 }, () => ({ n: 1, name: 'the same item again' })));
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { results: { 't1.tool.0': items } } });
    const { model, tools } = options(summed, [list, sum]);
    const { text } = await runLoop({ model, tools: tools!, journal, runId: fork });
    expect(text).toBe('{"count":900,"total":900}');
  });

  test('is validated as the argument that it stands for', async () => {
    const odd = tool({ ...list, name: 'odd', execute: () => Array.from({ length: 5_000 }, () => 'no object') });
    function* run(): Steps<unknown> {
      const [outcome] = yield* settle([step('sum', { items: yield* call('odd') })]);
      return outcome!.type === 'failed' ? outcome!.error.errorType : 'done';
    }
    const { text } = await runLoop(options(run, [odd, sum], { journal: memoryJournal() }));
    expect(text).toBe('invalid_params');
  });

  test('is judged with its value', async () => {
    const seen: unknown[] = [];
    const policy: LoopOptions['policy'] = {
      judge: (calls) =>
        calls.map(({ input }) => {
          seen.push(input);
          return { type: 'allow' };
        }),
    };
    await runLoop(options(summed, [list, sum], { journal: memoryJournal(), policy }));
    expect((seen[1] as { items: unknown[] }).items).toHaveLength(500);
  });

  test('data that looks like a reference is only data', async () => {
    const journal = memoryJournal();
    let got: unknown;
    const take = tool({
      name: 'take',
      description: 'Takes anything',
      input: { type: 'object' },
      execute: (all) => void (got = all),
    });
    function* run(): Steps<unknown> {
      yield* call('list');
      const [blob] = blobs;
      yield* call('take', { items: { $blob: blob } });
      return 'done';
    }
    const blobs: string[] = [];
    const known = tool({
      ...list,
      async execute() {
        const items = list.execute!({}, {} as never);
        blobs.push(await journal.blobs.put('r', JSON.stringify(items)));
        return items;
      },
    });
    await runLoop(options(run, [known, take], { journal }));
    expect(got).toEqual({ items: { $blob: blobs[0] } });
  });

  test('of another run, or of a model without references, is not resolved', async () => {
    const journal = memoryJournal();
    await runLoop({ model: scriptedModel(['hi']), input: 'go', journal, runId: 'other' });
    const foreign = await journal.blobs.put('other', '[{"n":1}]');
    const content = [
      {
        type: 'tool-call',
        id: 'a',
        name: 'sum',
        arguments: JSON.stringify({ items: { $blob: foreign } }),
        references: ['items'],
      },
    ] as const;
    const usage = { inputTokens: 1, outputTokens: 1 };
    const asking = { type: 'reply', content, finish: 'tool-calls', usage, model: 'm' } as const;
    for (const references of [true, undefined]) {
      const model = { ...scriptedModel([asking, 'done']), ...(references && { references }) };
      const { messages } = await runLoop({
        model: { ...model, reply: clean(model) },
        tools: [sum],
        input: 'go',
        journal,
      });
      expect(messages[2]).toMatchObject({ content: [{ isError: true, errorType: 'invalid_params' }] });
    }
  });

  /** A scripted model copies its requests, which functions do not survive. */
  function clean(model: LoopOptions['model']): LoopOptions['model']['reply'] {
    return ({ readBlob: _, ...request }, emit, signal) => model.reply(request, emit, signal);
  }

  test('is not readable for a model that does not declare references', async () => {
    const seen: boolean[] = [];
    const model = scriptedModel([(request) => (seen.push('readBlob' in request), 'done')]);
    await runLoop({ model, input: 'go', journal: memoryJournal() });
    expect(seen).toEqual([false]);
  });
});

describe('branches', () => {
  function branch(name: string, run: Program<never>['run'], tools: readonly Tool[]): Tool {
    return branchTool({ name, description: 'A branch', program: { name, version: 1, run }, tools });
  }

  function* both({ n }: { n: number }): Steps<unknown> {
    return yield* all([step('left', { n }), step('right', { n })]);
  }

  test('an approval in one branch does not stop the others', async () => {
    const journal = memoryJournal();
    const asked = tool({ ...double, name: 'asked', needsApproval: true });
    const tools = [
      branch('left', ({ n }: { n: number }) => call('asked', { n }), [asked]),
      branch('right', doubled, [double]),
    ];
    const given = options(both, tools, { journal });
    const { waiting } = await runLoop(given);
    expect(waiting).toMatchObject([{ type: 'approval', effect: 't1.tool.0/t1.approval.0' }]);
    expect((await journal.read('r.t1.tool.1')).at(-1)).toMatchObject({ status: 'completed' });
    const { effect, digest } = waiting[0] as Extract<(typeof waiting)[0], { type: 'approval' }>;
    const { input: _, ...again } = given;
    const answers = [{ type: 'approval', effect, digest, approved: true }] as const;
    expect((await runLoop({ ...again, journal, answers })).text).toBe('[6,{"answer":12}]');
  });

  test('a branch takes its next step while another still waits for its first', async () => {
    const { promise: rightIsDone, resolve } = Promise.withResolvers<string>();
    const first = tool({ name: 'first', description: 'Waits', effect: 'pure', execute: () => rightIsDone });
    const last = tool({
      name: 'last',
      description: 'Ends',
      effect: 'pure',
      execute: () => void resolve('right first'),
    });
    function* right(): Steps<unknown> {
      yield* call('double', { n: 1 });
      return yield* call('last');
    }
    const tools = [branch('left', () => call('first'), [first]), branch('right', right, [double, last])];
    const { text } = await runLoop(options(both, tools));
    expect(text).toBe('["right first","(no output)"]');
  });

  /** An agent whose model uses 15 tokens in each of three turns. */
  function agent(): Tool {
    const calls = { calls: [{ name: 'double', arguments: { n: 1 } }] };
    const model = scriptedModel([calls, calls, 'done']);
    return agentTool({ name: 'agent', description: 'An agent', model, tools: [double], share: 'ledger' });
  }

  test('draw on the ledger of the calling run instead of shares of its limits', async () => {
    const run = ({ n }: { n: number }): Steps<unknown> => call('agent', { task: `${n}` });
    const branches = (): readonly Tool[] => ['left', 'right'].map((name) => branch(name, run, [agent()]));

    // Three turns of each agent use 90 tokens, and four calls are made in each branch. A quarter or less is not enough.
    const limits = { tokens: 100 };
    const shared = await runLoop(options(both, branches(), { journal: memoryJournal(), limits }));
    expect(shared.outcome).toMatchObject({ type: 'failed', error: { code: 'step-failed' } });

    const budgets = memoryBudgets({ job: { tokens: 400 } });
    const ledger = budgets.ledger(['job']);
    const drawn = await runLoop(options(both, branches(), { journal: memoryJournal(), limits, ledger }));
    expect(drawn).toMatchObject({ outcome: { type: 'completed' }, text: '["done","done"]' });
    expect(drawn.usage).toMatchObject({ inputTokens: 60, outputTokens: 30 });
    expect((await budgets.get('job'))!.settled.tokens).toBe(90);
  });

  test('are stopped by the budget that they share', async () => {
    const budgets = memoryBudgets({ job: { calls: 5 } });
    const tools = ['left', 'right'].map((name) => branch(name, doubled, [double]));
    const journal = memoryJournal();
    const { outcome } = await runLoop(options(both, tools, { journal, ledger: budgets.ledger(['job']) }));
    // Two calls of branches and three of their four calls.
    expect(outcome).toMatchObject({ type: 'failed', error: { code: 'step-failed' } });
    expect((await budgets.get('job'))!.settled.calls).toBe(5);
    const ends = await Promise.all([0, 1].map(async (index) => (await journal.read(`r.t1.tool.${index}`)).at(-1)!));
    expect(ends.map(({ status }) => status).toSorted()).toEqual(['completed', 'exhausted']);
  });

  test('have only the time that the calling run has left as a limit', async () => {
    const journal = memoryJournal();
    const budgets = memoryBudgets({ job: {} });
    const limits = { calls: 50, tokens: 50, cost: 1, durationMs: 60_000 };
    const tools = ['left', 'right'].map((name) => branch(name, doubled, [double]));
    await runLoop(options(both, tools, { journal, limits, ledger: budgets.ledger(['job']) }));
    for (const index of [0, 1]) {
      const { event } = (await journal.read(`r.t1.tool.${index}`))[0]!;
      const { limits: given } = (event as Extract<Event, { type: 'run-started' }>).rules;
      expect(Object.keys(given)).toEqual(['durationMs']);
      expect(given.durationMs).toBeGreaterThan(30_000);
    }
  });

  test('have the same parts of its limits without a ledger, and all its time', async () => {
    const journal = memoryJournal();
    const limits = { calls: 500, tokens: 5_000, durationMs: 60_000 };
    const run = (): Steps<unknown> => all(Array.from({ length: 50 }, (_, n) => step('branch', { n })));
    const given = options(run, [branch('branch', doubled, [double])], { journal, limits });
    expect((await runLoop(given)).outcome).toEqual({ type: 'completed' });
    for (const index of [0, 25, 49]) {
      const { event } = (await journal.read(`r.t1.tool.${index}`))[0]!;
      const { limits: own } = (event as Extract<Event, { type: 'run-started' }>).rules;
      expect(own).toMatchObject({ calls: 9, tokens: 98 });
      expect(own.durationMs).toBeGreaterThan(30_000);
    }
  });

  test('fail with an error that the calling program can handle', async () => {
    const tools = [branch('left', () => fail('no-stock', 'None left.'), []), branch('right', doubled, [double])];
    function* run({ n }: { n: number }): Steps<unknown> {
      const outcomes = yield* settle([step('left', { n }), step('right', { n })]);
      return outcomes.map((outcome) => (outcome.type === 'failed' ? outcome.error.message : outcome.value));
    }
    const { text } = await runLoop(options(run, tools));
    expect(text).toBe('["left failed: None left. (no-stock)",{"answer":12}]');
  });
});
