import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { defineAgent } from '../agents/define.ts';
import { executeAgent } from '../agents/execute.ts';
import { childRunId } from '../journal/family.ts';
import type { Event } from '../machine/events.ts';
import { policy, type PolicyOptions } from '../policy/policy.ts';
import type { Policy } from '../policy/port.ts';
import type { PolicyRules } from '../policy/rules.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { Answer, ContinueOptions, LoopOptions, LoopResult } from './options.ts';
import { runLoop } from './run.ts';

const PATH = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] } as const;

function fileTools(ran: string[]): Tool[] {
  return (['read', 'write'] as const).map((type) =>
    tool({
      name: type,
      description: type,
      input: PATH,
      touches: ({ path }) => [{ type, path: String(path) }],
      execute: ({ path }) => (ran.push(`${type} ${String(path)}`), 'done'),
    }),
  );
}

const calls = (...all: string[]): ScriptStep => ({
  calls: all.map((one) => {
    const [name = '', path = ''] = one.split(' ');
    return { name, arguments: { path } };
  }),
});

const rules = (given: PolicyRules, options: PolicyOptions = {}): Policy =>
  policy({ rate: { second: 1000, minute: 1000 }, ...given }, { folder: '/project', ...options });

/** A run that is driven by one process after another, in the same journal. */
function world(script: readonly ScriptStep[], options: Partial<LoopOptions> = {}) {
  const ran: string[] = [];
  const journal = memoryJournal();
  const model = scriptedModel(script);
  const shared = { model, tools: fileTools(ran), journal, runId: 'run', clock: manualClock(1_000), ...options };
  return {
    ran,
    journal,
    start: (more: Partial<LoopOptions> = {}) => runLoop({ ...shared, ...more, input: 'Go.' }),
    resume: (more: Partial<ContinueOptions> = {}) => runLoop({ ...shared, ...more } as ContinueOptions),
    events: async (runId = 'run') => (await journal.read(runId)).map(({ event }) => event),
  };
}

function approvalOf({ waiting }: LoopResult, more: object = {}): Answer {
  const [wait] = waiting;
  if (wait?.type !== 'approval') throw new Error('expected an approval');
  return { type: 'approval', effect: wait.effect, digest: wait.digest, approved: true, ...more };
}

test('denied calls keep their place and order, and the others run', async () => {
  const { start, ran } = world([calls('write .env', 'read a', 'read b.pem', 'write c'), 'Done.']);
  const result = await start({ policy: rules({ autonomy: 3 }) });
  expect(ran.toSorted()).toEqual(['read a', 'write c']);
  const [first, second, third, fourth] = resultTexts(result);
  expect(first).toContain('writes of "/project/.env" are denied by "**/.env*"');
  expect(second).toBe('done');
  expect(third).toContain('denied by "**/*.pem"');
  expect(fourth).toBe('done');
});

test('a run records its rules, and the rule that decided about each call', async () => {
  const { start, events } = world([calls('read a', 'read b.pem'), 'Done.']);
  await start({ policy: rules({ autonomy: 2 }) });
  const [started, ...others] = await events();
  expect(started).toMatchObject({ policy: { autonomy: 2 } });
  expect(others.find(({ type }) => type === 'calls-judged')).toMatchObject({
    verdicts: [
      { type: 'allow', rule: 'paths', touches: [{ type: 'read', path: 'a' }] },
      { type: 'deny', rule: 'paths' },
    ],
  });
});

test('narrowing lowers the level of the rules', async () => {
  const { start, ran } = world([calls('write a'), 'Done.']);
  const result = await start({ policy: rules({ autonomy: 3 }), narrow: { autonomy: 0 } });
  expect(ran).toEqual([]);
  expect(resultTexts(result)[0]).toContain('at level 0 (read-only) only reads are allowed');
});

test('a narrowed run may still ask: the policy gets what the run may call, not only what it is narrowed to', async () => {
  const ran: string[] = [];
  const question = tool({
    name: 'question',
    description: 'Asks',
    unnarrowed: true,
    touches: () => [],
    execute: () => (ran.push('question'), 'yes'),
  });
  const script: ScriptStep[] = [{ calls: [{ name: 'question' }, { name: 'read', arguments: { path: 'a' } }] }, 'Done.'];
  const { start } = world(script, { tools: [...fileTools(ran), question], policy: rules({ autonomy: 3 }) });
  const result = await start({ narrow: { tools: ['write'] } });
  expect(ran).toEqual(['question']);
  expect(resultTexts(result)[1]).toContain('read');
});

describe('limits', () => {
  async function started(options: Partial<LoopOptions>): Promise<Extract<Event, { type: 'run-started' }>> {
    const { start, events } = world(['Done.'], options);
    await start();
    return (await events())[0] as Extract<Event, { type: 'run-started' }>;
  }

  test('the smallest of the options and of the level applies, and is recorded', async () => {
    const low = await started({ policy: rules({ autonomy: 0 }), maxTurns: 30 });
    expect(low.rules).toMatchObject({ maxTurns: 5, limits: { calls: 10 } });
    const own = await started({ policy: rules({ autonomy: 2 }), maxTurns: 3, limits: { calls: 7, tokens: 9 } });
    expect(own.rules).toMatchObject({ maxTurns: 3, limits: { calls: 7, tokens: 9 } });
    const narrow = await started({ policy: rules({ autonomy: 3 }), narrow: { autonomy: 0 } });
    expect(narrow.rules).toMatchObject({ maxTurns: 5, limits: { calls: 10 } });
    const code = await started({ policy: { judge: (all) => all.map(() => ({ type: 'allow' })) } });
    expect(code.rules).toMatchObject({ maxTurns: 20, limits: {} });
  });

  describe('on resume', () => {
    const down: ScriptStep = { type: 'failure', error: { code: 'network', message: 'down', retryable: true } };
    const reads = (count: number): ScriptStep[] => Array.from({ length: count }, (_, index) => calls(`read f${index}`));
    const many = (count: number): ScriptStep => calls(...Array.from({ length: count }, (_, index) => `read g${index}`));
    const changesIn = (events: readonly Event[]) => events.filter(({ type }) => type === 'policy-changed');
    const level = (autonomy: 0 | 3): Policy => rules({ autonomy });

    test('a lower level allows fewer turns, also after another resume', async () => {
      const script = [...reads(2), down, ...reads(1), down, ...reads(20)];
      const { start, resume, events } = world(script);
      await start({ policy: level(3) });
      await resume({ policy: level(0) });
      const result = await resume({ policy: level(3) });
      expect([result.outcome, result.turns]).toEqual([{ type: 'exhausted', limit: 'turns' }, 5]);
      expect(changesIn(await events())).toMatchObject([
        { rules: { autonomy: 0 }, limits: { turns: 5, calls: 10 } },
        { rules: { autonomy: 3 } },
      ]);
      expect(changesIn(await events())[1]).not.toHaveProperty('limits');
    });

    test('a lower level allows fewer calls', async () => {
      const { start, resume, ran } = world([...reads(2), down, many(20), 'Done.']);
      await start({ policy: level(3) });
      const result = await resume({ policy: level(0) });
      expect([ran.length, result.calls]).toEqual([10, 10]);
      expect(resultTexts(result).at(-1)).toContain('all 10 tool calls');
    });

    test('a run that is beyond the limit is exhausted before its next turn', async () => {
      const { start, resume, ran } = world([...reads(7), down, ...reads(9)]);
      await start({ policy: level(3) });
      const result = await resume({ policy: level(0) });
      // The turn that failed had started.
      expect([result.outcome, result.turns, ran.length]).toEqual([{ type: 'exhausted', limit: 'turns' }, 8, 8]);
    });

    test('a policy that is code limits a run too, and limits that are not smaller are not recorded', async () => {
      const code = (turns?: number): Policy => ({
        judge: (all) => all.map(() => ({ type: 'allow' })),
        limits: () => (turns === undefined ? {} : { turns }),
      });
      const { start, resume, events } = world([...reads(1), down, down, ...reads(9)], { maxTurns: 4 });
      await start({ policy: code() });
      await resume({ policy: code(4) });
      expect(changesIn(await events())).toEqual([]);
      const result = await resume({ policy: code(3) });
      expect([result.outcome, result.turns]).toEqual([{ type: 'exhausted', limit: 'turns' }, 3]);
      expect(changesIn(await events())).toMatchObject([{ limits: { turns: 3 } }]);
    });
  });

  test.each([0, 1, 2] as const)('a reflection that touches nothing runs at level %i', async (autonomy) => {
    const reflected: unknown[] = [];
    const agent = defineAgent({
      name: 'careful',
      description: 'Reflects',
      model: scriptedModel([{ calls: [{ name: 'out', arguments: { n: 1 } }] }, { calls: [{ name: 'submit' }] }]),
      prompts: { user: 'Go' },
      tools: {
        output: {
          name: 'out',
          description: 'Out',
          touches: () => [],
          reflectionHandler: (output) => (reflected.push(output), 'Fine.'),
        },
      },
      validation: { maxAttempts: 1, outputSchema: z.object({ n: z.number() }) },
    });
    const result = await executeAgent(agent, { input: undefined, policy: rules({ autonomy }) });
    expect([result.type, reflected]).toEqual(['success', [{ n: 1 }]]);
  });

  test('turns of an agent are limited too', async () => {
    const agent = defineAgent({
      name: 'endless',
      description: 'Never ends',
      model: scriptedModel(Array.from({ length: 20 }, () => calls('other x'))),
      prompts: { user: 'Go' },
      tools: { output: { name: 'out', description: 'Out' } },
      validation: { maxAttempts: 1, outputSchema: z.object({}) },
    });
    const result = await executeAgent(agent, { input: undefined, policy: rules({ autonomy: 0 }) });
    expect(result).toMatchObject({ error: { code: 'MAX_ITERATIONS', context: { maxIterations: 5 } } });
  });

  test('files that a run may modify are counted over its turns, by path, and over a resume', async () => {
    const names = (from: number, to: number): string[] =>
      Array.from({ length: to - from }, (_, index) => `write f${from + index}`);
    const script = [calls(...names(0, 6)), calls('write f0', ...names(6, 9)), calls(...names(9, 12)), 'Done.'];
    const model = scriptedModel([
      ...script.slice(0, 2),
      { type: 'failure', error: { code: 'network', message: 'down', retryable: true } } as const,
      ...script.slice(2),
    ]);
    const { start, resume, ran } = world([], { model, policy: rules({ autonomy: 1, tools: { write: 'allow' } }) });
    await start();
    expect(ran).toHaveLength(10);
    const result = await resume();
    expect(ran.slice(10)).toEqual(['write f9']);
    expect(resultTexts(result).slice(-2)[0]).toContain('a run may modify 10 files, and has modified 10');
  });

  test('a call that people approve counts, and one that they deny does not', async () => {
    const script = [calls('write a'), calls('write b'), 'Done.'];
    const seen: (readonly string[] | undefined)[] = [];
    const asking = rules({ autonomy: 1 });
    const spy: Policy = {
      ...asking,
      judge: (all, context) => (seen.push(context.written), asking.judge(all, context)),
    };
    for (const approved of [true, false]) {
      const { start, resume } = world(script, { policy: spy });
      const paused = await start();
      await resume({ answers: [approvalOf(paused, { approved })] });
    }
    expect(seen).toEqual([undefined, ['a'], undefined, undefined]);
  });
});

describe('asks', () => {
  test('a grant for the run answers an ask of the autonomy rule', async () => {
    const { start, resume, ran } = world([calls('write a'), calls('write a'), 'Done.'], { policy: rules({}) });
    const paused = await start();
    const result = await resume({ answers: [approvalOf(paused, { forRun: true })] });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(ran).toEqual(['write a', 'write a']);
  });

  test('a grant for the run does not answer an ask of another rule', async () => {
    const strict = rules({ tools: { write: 'ask' } });
    const { start, resume, ran } = world([calls('write a'), calls('write a'), 'Done.'], { policy: strict });
    const paused = await start();
    expect(paused.waiting).toMatchObject([{ type: 'approval', rule: 'tools', eachTime: true }]);
    const again = await resume({ answers: [approvalOf(paused, { forRun: true })] });
    expect(again.waiting).toMatchObject([{ type: 'approval', rule: 'tools' }]);
    expect(ran).toEqual(['write a']);
  });

  test('escalation: what lists do not cover pauses the run, and runs after an approval', async () => {
    const bounded = rules({ autonomy: 2, paths: { write: ['src/**'] } });
    const { start, resume, ran } = world([calls('write src/a', 'write etc/b'), 'Done.'], { policy: bounded });
    const paused = await start();
    expect(ran).toEqual(['write src/a']);
    expect(paused.waiting).toMatchObject([{ touches: [{ type: 'write', path: 'etc/b' }], rule: 'autonomy' }]);
    const result = await resume({ answers: [approvalOf(paused)] });
    expect([ran.at(-1), result.outcome?.type]).toEqual(['write etc/b', 'completed']);
  });
});

test('under stricter rules a resumed run denies what was asked about, and laxer rules allow no more', async () => {
  const script = [calls('write a', 'write b'), calls('write c'), 'Done.'];
  const strict = world(script, { policy: rules({}) });
  await strict.start();
  const denied = await strict.resume({ policy: rules({ autonomy: 0 }) });
  expect(denied.outcome?.type).toBe('completed');
  expect(strict.ran).toEqual([]);
  const lax = world(script, { policy: rules({}) });
  await lax.start();
  const paused = await lax.resume({ policy: rules({ autonomy: 3 }) });
  expect(paused.waiting).toHaveLength(2);
});

test('rates are live: recorded rules do not count calls a second time', async () => {
  const clock = { now: (): number => 0 };
  const made = (second: number): Policy => policy({ autonomy: 3, rate: { second } }, { folder: '/project', clock });
  const { start, resume, ran } = world([calls('read a'), calls('read b', 'read c'), 'Done.']);
  await start({ policy: made(5), maxTurns: 1 });
  const other = world([calls('read a', 'read b', 'read c'), 'Done.']);
  await other.start({ policy: made(2) });
  expect([ran, other.ran]).toEqual([['read a'], ['read a', 'read b']]);
  await expect(resume({ policy: made(2) })).resolves.toBeDefined();
});

test('two tenants side by side have their own scopes and rates', async () => {
  const shared = policy({ rate: { second: 2 }, autonomy: 3 }, { folder: '/project', clock: { now: () => 0 } });
  const run = async (tenant: string, scopes: string[]): Promise<readonly string[]> => {
    const { start, ran } = world([calls('read a', 'read b', 'read c', 'write d'), 'Done.']);
    await start({ policy: shared, principal: { subject: 'bot', tenant, scopes } });
    return ran.toSorted();
  };
  const all = await Promise.all([
    run('acme', ['tools:execute']),
    run('blue', ['tools:execute:write']),
    run('acme', ['tools:execute']),
  ]);
  expect(all[1]).toEqual([]); // its two calls within the rate are reads, which its scopes do not allow
  expect([...all[0]!, ...all[2]!]).toHaveLength(2);
});

describe('child runs', () => {
  const CHILD = childRunId('run', 't1.tool.0');

  function family(options: { readonly own?: Policy; readonly child?: readonly ScriptStep[] } = {}) {
    const ran: string[] = [];
    const definition = {
      name: 'helper',
      description: 'Helps',
      model: scriptedModel(options.child ?? [calls('write a'), 'Helped.']),
      tools: fileTools(ran),
      touches: () => [],
    };
    const bare = agentTool(definition);
    const helper = options.own ? agentTool({ ...definition, policy: options.own }) : bare;
    const script: ScriptStep[] = [{ calls: [{ name: 'helper', arguments: { task: 'Write.' } }] }, 'Done.'];
    const parent = world(script, { tools: [helper] });
    return { ...parent, ran, bare };
  }

  test('the policy of the calling run judges their calls', async () => {
    const { start, ran, events } = family();
    await start({ policy: rules({ autonomy: 0 }) });
    expect(ran).toEqual([]);
    const all = await events(CHILD);
    expect(all[0]).toMatchObject({ policy: { autonomy: 0 }, rules: { maxTurns: 5 } });
    expect(all.find(({ type }) => type === 'calls-judged')).toMatchObject({ verdicts: [{ type: 'deny' }] });
  });

  test('an ask pauses both runs, and an answer resumes both', async () => {
    const { start, resume, ran } = family();
    const asking = rules({});
    const paused = await start({ policy: asking });
    expect(paused.waiting).toMatchObject([{ type: 'approval', rule: 'autonomy' }]);
    const result = await resume({ policy: asking, answers: [approvalOf(paused)] });
    expect([ran, result.outcome?.type]).toEqual([['write a'], 'completed']);
  });

  test.each<[string, PolicyRules, PolicyRules, string[]]>([
    ['the parent is stricter', { autonomy: 0 }, { autonomy: 3 }, []],
    ['the child is stricter', { autonomy: 3 }, { autonomy: 0 }, []],
    ['both allow it', { autonomy: 3 }, { autonomy: 3, rate: { second: 9 } }, ['write a']],
  ])('with a policy of their own, the stricter applies: %s', async (_, parent, own, expected) => {
    const { start, ran, events } = family({ own: rules(own) });
    await start({ policy: rules(parent) });
    expect(ran).toEqual(expected);
    expect((await events(CHILD))[0]).toMatchObject({ policy: { all: [parent, own] } });
  });

  test('a policy that a child run shares with its parent counts its calls once', async () => {
    const shared = rules({ autonomy: 3, rate: { second: 2 } }, { clock: { now: () => 0 } });
    const { start, ran, events } = family({ own: shared });
    await start({ policy: shared });
    expect(ran).toEqual(['write a']);
    expect((await events(CHILD))[0]).toMatchObject({ policy: { autonomy: 3 } });
  });

  test('a paused child run is judged by the stricter rules of a resume', async () => {
    const { start, resume, ran } = family();
    await start({ policy: rules({}) });
    const result = await resume({ policy: rules({ autonomy: 0 }) });
    expect([ran, result.outcome?.type]).toEqual([[], 'completed']);
  });

  test('rules that only the calling run has recorded hold for a child run that starts later', async () => {
    const ran: string[] = [];
    const helper = agentTool({
      name: 'helper',
      description: 'Helps',
      model: scriptedModel([calls('write b'), 'Helped.']),
      tools: fileTools(ran),
      touches: () => [],
    });
    const script = [calls('write a'), { calls: [{ name: 'helper', arguments: { task: 'x' } }] }, 'Done.'];
    const { start, resume } = world(script, { tools: [...fileTools(ran), helper] });
    const paused = await start({ policy: rules({ tools: { write: 'ask' } }) });
    const lax = rules({ autonomy: 3 });
    const again = await resume({ policy: lax, answers: [approvalOf(paused)] });
    expect(ran).toEqual(['write a']);
    expect(again.waiting).toMatchObject([{ rule: 'tools' }]);
  });

  test('denies the calls of a paused child run if the calling run is resumed without its policy', async () => {
    const { start, resume, ran } = family();
    const paused = await start({ policy: rules({}) });
    await resume({ answers: [approvalOf(paused)] }).catch(() => {});
    const twice = family({ child: [calls('write a'), calls('write b'), 'Helped.'] });
    const first = await twice.start({ policy: rules({}) });
    await twice.resume({ answers: [approvalOf(first)] }).catch(() => {});
    expect([ran.filter((one) => one !== 'write a'), twice.ran.filter((one) => one !== 'write a')]).toEqual([[], []]);
  });

  test('say which policy is missing if their own was removed from the code', async () => {
    const parent = rules({ autonomy: 3 });
    const { start, resume, ran, events, bare } = family({ own: rules({ autonomy: 1 }) });
    await start({ policy: parent });
    await resume({ policy: parent, tools: [bare] });
    expect(ran).toEqual([]);
    const changed = (await events(CHILD)).find(({ type }) => type === 'policy-changed');
    const reason = expect.stringContaining('not all of them are there now. Resume it with code that has them');
    expect(changed).toMatchObject({ verdicts: { 't1.tool.0': { type: 'deny', reason } } });
  });

  test('have the principal, the session, the trace and the labels of the calling run', async () => {
    const facts = {
      principal: { subject: 's', tenant: 't', scopes: ['tools:execute'] },
      session: 'chat 7',
      trace: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      labels: { team: 'sales' },
    };
    const { start, events } = family();
    await start(facts);
    const [first] = await events(CHILD);
    expect(first).toMatchObject(facts);
    expect(first).not.toHaveProperty('policy');
  });
});
