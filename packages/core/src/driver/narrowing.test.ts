import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { childRunId } from '../journal/family.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import {
  isListed,
  lowestAutonomy,
  READ_RESULT_DESCRIPTION,
  withNarrowing,
  type Narrowing,
} from '../machine/narrowing.ts';
import { policy as rulePolicy } from '../policy/policy.ts';
import type { Policy } from '../policy/port.ts';
import { scriptedModel, type ScriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { LoopOptions, LoopResult, StartedRun } from './options.ts';
import { approve } from './make-answer.ts';
import { runLoop, startLoop } from './run.ts';

const call = (...names: readonly string[]) => ({ calls: names.map((name) => ({ name })) });
const named = (name: string): Tool => tool({ name, description: name, execute: () => name });
const narrowing = (name: string, narrow: Narrowing, isError = false): Tool =>
  tool({ name, description: name, execute: () => ({ content: name, isError, narrow }) });

const offeredTo = ({ requests }: ScriptedModel): readonly (readonly string[])[] =>
  requests.map(({ tools }) => tools.map(({ name }) => name));

const resultsOf = ({ messages }: LoopResult): readonly string[] =>
  messages.flatMap((message) =>
    message.role === 'tool' ? message.content.map(({ content }) => (content[0] as { text: string }).text) : [],
  );

function run(model: ScriptedModel, tools: readonly Tool[], more: Partial<LoopOptions> = {}): Promise<LoopResult> {
  return runLoop({ model, tools, input: 'go', ...more });
}

const REFUSED = 'The tool "b" is not allowed here. Allowed tools: a, skill. Use one of them, or answer without a tool.';

test('a result narrows the run from the next turn on, in what is offered and in what is executed', async () => {
  const model = scriptedModel([call('skill', 'b'), call('b', 'a'), 'done']);
  const result = await run(model, [narrowing('skill', { tools: ['a', 'skill'] }), named('a'), named('b')]);
  expect(offeredTo(model)).toEqual([
    ['skill', 'a', 'b'],
    ['skill', 'a'],
    ['skill', 'a'],
  ]);
  expect(resultsOf(result)).toEqual(['skill', 'b', REFUSED.replace('a, skill', 'skill, a'), 'a']);
});

test('a result of a failed call narrows the run too', async () => {
  const model = scriptedModel([call('skill'), call('b'), 'done']);
  const result = await run(model, [narrowing('skill', { tools: [] }, true), named('b')]);
  expect(resultsOf(result)[1]).toContain('The tool "b" is not allowed here. Allowed tools: none.');
});

test('nothing that a run does widens it: tools are intersected, and the lowest autonomy applies', async () => {
  const seen: unknown[] = [];
  const policy: Policy = {
    judge(calls, { autonomy }) {
      seen.push(autonomy);
      return calls.map(() => ({ type: 'allow' }));
    },
  };
  const tools = [
    narrowing('one', { tools: ['one', 'two', 'three', 'a'], autonomy: 2 }),
    narrowing('two', { tools: ['three', 'two', 'b'], autonomy: 1 }),
    narrowing('three', { tools: ['one', 'two', 'three', 'a', 'b'], autonomy: 3 }),
    named('a'),
    named('b'),
  ];
  const model = scriptedModel([call('one'), call('two'), call('three'), call('two'), 'done']);
  await run(model, tools, { policy });
  expect(offeredTo(model).at(-1)).toEqual(['two', 'three']);
  expect(seen).toEqual([undefined, 2, 1, 1]);
});

test('the option "narrow" applies from the first turn on', async () => {
  const model = scriptedModel([call('b'), 'done']);
  await run(model, [named('a'), named('b')], { narrow: { tools: ['a'] }, toolChoice: { tool: 'b' } });
  // The narrowing makes the choice impossible, so that it does not apply.
  expect(model.requests[0]).toMatchObject({ tools: [{ name: 'a' }], toolChoice: 'auto' });
});

test('a tool that is marked, "read_result" and the tools of the loop stay callable', async () => {
  const long = tool({
    name: 'long',
    description: 'long',
    execute: () => ({ content: 'x'.repeat(500), narrow: { tools: [] } }),
  });
  const model = scriptedModel([call('long'), call('question', 'read_result', 'long'), 'done']);
  const more = { journal: memoryJournal(), maxResultChars: 100 };
  const result = await run(model, [long, tool({ ...named('question'), unnarrowed: true })], more);
  expect(offeredTo(model)[1]).toEqual(['question', 'read_result']);
  expect(resultsOf(result).slice(-3)).toEqual([
    'question',
    expect.stringContaining('arguments are not valid'),
    expect.stringContaining('Allowed tools: question, read_result.'),
  ]);
});

test('a tool that pretends to page through results does not start', async () => {
  let started = false;
  const fake = tool({
    name: 'read_result_x',
    description: READ_RESULT_DESCRIPTION,
    execute: () => (started = true),
  });
  const result = await run(scriptedModel([call('read_result_x'), 'done']), [fake], { narrow: { tools: [] } });
  expect(resultsOf(result)[0]).toContain('The tool "read_result_x" is not allowed here. Allowed tools: none.');
  expect(result.messages.at(-2)).toMatchObject({ content: [{ errorType: 'permission_denied' }] });
  expect(started).toBe(false);
});

test('only an event from outside lifts it, at once', async () => {
  const model = scriptedModel([call('lift'), call('b'), 'done']);
  const journal = memoryJournal();
  const lift = tool({
    name: 'lift',
    description: 'lift',
    execute: async () => String(await live.liftNarrowing('ann')),
  });
  const options = { model, journal, runId: 'r', tools: [lift, named('b')], narrow: { tools: ['lift'] }, input: 'go' };
  const live: StartedRun = startLoop(options);
  expect(resultsOf(await live.result)).toEqual(['true', 'b']);
  expect(offeredTo(model)).toEqual([['lift'], ['lift', 'b'], ['lift', 'b']]);
  const events = (await journal.read('r')).map(({ event }) => event);
  expect(events.find(({ type }) => type === 'narrowing-lifted')).toMatchObject({ by: 'ann' });
  expect(await live.liftNarrowing()).toBe(false);
});

test('what belongs to the run is neither lifted nor taken over by the next run', async () => {
  const model = scriptedModel([call('lift'), call('b'), 'done']);
  const lift = tool({
    name: 'lift',
    description: 'lift',
    execute: async () => `${await live.liftNarrowing('ann', 'agent:x')} ${await live.liftNarrowing()}`,
  });
  const fixed = { source: 'agent:x', tools: ['lift', 'c'], fixed: true } as const;
  const narrow = [fixed, { source: 'plan', without: ['c'] }];
  const options = { model, tools: [lift, named('b'), named('c')], narrow, input: 'go' };
  const live: StartedRun = startLoop(options);
  const result = await live.result;
  expect(resultsOf(result)).toEqual(['false true', expect.stringContaining('"b" is not allowed here')]);
  expect(offeredTo(model)).toEqual([['lift'], ['lift', 'c'], ['lift', 'c']]);
  expect(result.carried?.narrow).toBeUndefined();
  const again = await run(scriptedModel(['done']), [], { narrow });
  expect(again.carried?.narrow).toEqual([{ source: 'plan', without: ['c'] }]);
});

test('lifting a run that is not narrowed does nothing', async () => {
  const lift = tool({ name: 'lift', description: 'lift', execute: async () => String(await live.liftNarrowing()) });
  const live: StartedRun = startLoop({ model: scriptedModel([call('lift'), 'done']), tools: [lift], input: 'go' });
  expect(resultsOf(await live.result)).toEqual(['false']);
});

describe('with a journal', () => {
  const tools = [
    narrowing('skill', { tools: ['a'] }),
    named('a'),
    named('b'),
    tool({ name: 'ask', description: 'ask' }),
  ];

  test('a resumed run and a fork stay narrowed', async () => {
    const journal = memoryJournal();
    const paused = await run(scriptedModel([call('skill'), call('a'), 'done']), tools, { journal, runId: 'r' });
    expect(paused.outcome).toEqual({ type: 'completed' });
    const runId = await forkRun({ journal, runId: 'r', at: 3, changes: { instructions: 'other' } });
    const model = scriptedModel([call('b'), 'done']);
    const forked = await runLoop({ journal, runId, model, tools });
    expect(offeredTo(model)[0]).toEqual(['a']);
    expect(resultsOf(forked).at(-1)).toContain('not allowed here');
  });

  test('a result that narrows is covered by the digest of its entry', async () => {
    const journal = memoryJournal();
    await run(scriptedModel([call('skill'), 'done']), tools, { journal, runId: 'r' });
    const entries = await journal.read('r');
    const changed = entries.map((entry) => {
      const { event } = entry;
      if (event.type !== 'tool-settled' || event.result.type !== 'result') return entry;
      return { ...entry, event: { ...event, result: { ...event.result, narrow: { tools: ['a', 'b'] } } } };
    });
    expect(replay(entries).type).toBe('replayed');
    expect(replay(changed)).toMatchObject({ type: 'diverged', event: 'tool-settled' });
  });
});

test('a child run is narrowed as its parent is, and by its own definition', async () => {
  const inside = scriptedModel([call('a', 'b', 'c'), 'done']);
  const child = agentTool({
    name: 'child',
    description: 'child',
    model: inside,
    tools: [named('a'), named('b'), named('c')],
    narrow: { tools: ['b', 'c'] },
  });
  const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'go' } }] }, 'done']);
  await run(model, [child], { narrow: { tools: ['child', 'a', 'b'] } });
  expect(offeredTo(inside)[0]).toEqual(['b']);
});

test.each([
  { tools: 'a' },
  { tools: [1] },
  { without: 'a' },
  { ask: [1] },
  { autonomy: 4 },
  { autonomy: '1' },
  { source: '' },
  { source: 1 },
  { rules: 'none' },
  { rules: [] },
  { rules: { at: new Date(0) } },
  { tool: ['a'] },
  'all',
])('rejects %j as a narrowing', async (bad) => {
  const narrow = bad as Narrowing;
  await expect(run(scriptedModel(['done']), [], { narrow })).rejects.toThrow('"narrow" is');
  const result = await run(scriptedModel([call('skill'), 'done']), [narrowing('skill', narrow)]);
  expect(resultsOf(result)).toEqual([expect.stringContaining('returned a "narrow" that is not valid')]);
  const model = scriptedModel(['done']);
  expect(() => agentTool({ name: 'child', description: '', model, narrow })).toThrow('"narrow" is');
});

test('a narrowing that is there already, or is none, adds nothing', () => {
  const one: Narrowing = { tools: ['a'], autonomy: 2 };
  const had = withNarrowing(undefined, [one, { source: 'plan', autonomy: 1 }]);
  expect(had).toHaveLength(2);
  expect(lowestAutonomy(had)).toBe(1);
  expect(withNarrowing(had, { autonomy: 2, tools: ['a'] })).toBe(had);
  for (const none of [{}, [], null, 'x', undefined]) expect(withNarrowing(had, none as never)).toBe(had);
  expect(withNarrowing(undefined, {})).toBeUndefined();
});

test('a list of a journal that is none, or has other values than names, has no tool', () => {
  for (const none of ['a', 1, {}, [1, null, ['a'], 'b']]) expect(isListed(none as never, 'a')).toBe(false);
  expect(isListed([1, 'a__*'] as never, 'a__b')).toBe(true);
});

const unmarked = named('question');

test('the name of a tool does not keep it callable', async () => {
  const result = await run(scriptedModel([call('question'), 'done']), [unmarked], { narrow: { tools: [] } });
  expect(resultsOf(result)[0]).toContain('The tool "question" is not allowed here.');
});

test('a call of a tool that has lost its mark does not start', async () => {
  const journal = memoryJournal();
  const options = { journal, runId: 'r' };
  const asking = tool({ ...unmarked, unnarrowed: true, needsApproval: true });
  const narrow: Narrowing = { tools: [] };
  const paused = await run(scriptedModel([call('question')]), [asking], { ...options, narrow });
  const [wait] = paused.waiting;
  const tools = [tool({ ...unmarked, needsApproval: true })];
  const result = await runLoop({ ...options, model: scriptedModel(['done']), tools, answers: [approve(wait!)] });
  expect(resultsOf(result)).toEqual(['The run is narrowed, and may not call "question".']);
});

describe('without', () => {
  test('takes tools away, and leaves those that are offered later', async () => {
    const found = named('found');
    const search = tool({
      name: 'search',
      description: 'search',
      execute: async (_, { offer }) => {
        await offer([found]);
        return 'found';
      },
    });
    const model = scriptedModel([call('skill'), call('search', 'b'), call('found'), 'done']);
    const result = await run(model, [narrowing('skill', { without: ['b', 'skill'] }), search, named('b')]);
    expect(offeredTo(model).slice(1)).toEqual([['search'], ['search', 'found'], ['search', 'found']]);
    expect(resultsOf(result)[2]).toContain('The tool "b" is not allowed here. Allowed tools: search.');
    expect(resultsOf(result)[3]).toBe('found');
  });

  test('applies together with "tools", whatever names it', async () => {
    const narrow: Narrowing[] = [{ tools: ['a', 'b'] }, { source: 'plan', without: ['b', 'stays'] }];
    const model = scriptedModel(['done']);
    const stays = tool({ ...named('stays'), unnarrowed: true });
    await run(model, [named('a'), named('b'), named('c'), stays], { narrow });
    expect(offeredTo(model)).toEqual([['a', 'stays']]);
  });
});

const ALLOWS: Policy = { judge: (calls) => calls.map(() => ({ type: 'allow' })) };

describe('ask', () => {
  const skill = narrowing('skill', { source: 'skill:deploy', ask: ['b'] });
  const script = [call('skill', 'b'), call('a', 'b')];

  test.each([
    ['without a policy', {}],
    ['with a policy that allows the call', { policy: ALLOWS }],
  ])('makes people approve calls %s', async (_, more) => {
    const options = { ...more, journal: memoryJournal(), runId: 'r' };
    const never = tool({ ...named('b'), needsApproval: () => false });
    const tools = [skill, named('a'), never];
    const paused = await run(scriptedModel(script), tools, options);
    expect(paused.waiting).toMatchObject([
      { type: 'approval', call: { name: 'b', turn: 2 }, reason: 'skill:deploy requires it' },
    ]);
    const answers = [approve(paused.waiting[0]!)];
    const result = await runLoop({ ...options, model: scriptedModel(['done']), tools, answers });
    expect(resultsOf(result)).toEqual(['skill', 'b', 'a', 'b']);
  });

  test('does not allow what a policy denies', async () => {
    const policy: Policy = { judge: (calls) => calls.map(() => ({ type: 'deny', reason: 'no' })) };
    const result = await run(scriptedModel([call('b'), 'done']), [named('b')], { policy, narrow: { ask: ['b'] } });
    expect(resultsOf(result)[0]).toContain('no');
  });
});

describe('rules', () => {
  const deny = { source: 'skill:x', rules: { tools: { b: 'deny' } } } as const;

  const policy = rulePolicy({ autonomy: 3 });

  test('are judged beside those of the host, and the strictest verdict applies', async () => {
    const model = scriptedModel([call('a', 'b'), 'done']);
    const result = await run(model, [named('a'), named('b')], { policy, narrow: deny });
    expect(resultsOf(result)).toEqual([
      'a',
      'The call of "b" was denied: skill:x: the entry "b" denies it. Use another tool.',
    ]);
  });

  test('allow nothing that the policy of the host denies', async () => {
    const denying = rulePolicy({ autonomy: 3, tools: { b: 'deny' } });
    const narrow: Narrowing = { rules: { tools: { b: 'allow' } } };
    const result = await run(scriptedModel([call('b'), 'done']), [named('b')], { policy: denying, narrow });
    expect(resultsOf(result)[0]).toContain('"b" was denied');
  });

  test('that are malformed deny every call', async () => {
    const narrow = { rules: { tools: { b: 'maybe' } } } as unknown as Narrowing;
    const result = await run(scriptedModel([call('a'), 'done']), [named('a')], { policy, narrow });
    expect(resultsOf(result)[0]).toContain('The rules of the policy are malformed');
  });

  test.each([
    ['without a policy', {}],
    ['with a policy that is code', { policy: ALLOWS }],
  ])('deny every call %s, which cannot apply them', async (_, more) => {
    const result = await run(scriptedModel([call('a'), 'done']), [named('a')], { ...more, narrow: deny });
    expect(resultsOf(result)[0]).toContain('skill:x has rules, and the run has no policy that can apply them');
  });

  test('count no calls', async () => {
    const model = scriptedModel([{ calls: Array.from({ length: 15 }, () => ({ name: 'a' })) }, 'done']);
    const many = rulePolicy({ autonomy: 3, rate: { second: 100 } });
    const result = await run(model, [named('a')], { policy: many, narrow: deny });
    expect(new Set(resultsOf(result))).toEqual(new Set(['a']));
  });

  test('apply to child runs', async () => {
    const inner = scriptedModel([call('b'), 'done']);
    const child = agentTool({ name: 'child', description: 'child', model: inner, tools: [named('b')] });
    const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'go' } }] }, 'done']);
    await run(model, [child], { policy, narrow: deny });
    expect(JSON.stringify(inner.requests.at(-1)!.messages)).toContain('was denied');
  });
});

describe('a source', () => {
  const narrow: readonly Narrowing[] = [
    { source: 'plan', without: ['b'] },
    { source: 'skill:x', without: ['c'] },
    { without: ['d'] },
  ];

  /** Lifts what `source` narrows, and calls all tools in the next turn. */
  async function lifting(source: string | undefined): Promise<{ readonly lifted: boolean; readonly offered: unknown }> {
    const model = scriptedModel([call('lift'), 'done']);
    let lifted = false;
    const lift = tool({
      name: 'lift',
      description: 'lift',
      execute: async () => void (lifted = await live.liftNarrowing('ann', source)),
    });
    const tools = [lift, named('b'), named('c'), named('d')];
    const live: StartedRun = startLoop({ model, journal: memoryJournal(), tools, narrow, input: 'go' });
    await live.result;
    return { lifted, offered: offeredTo(model)[1] };
  }

  test.each([
    ['plan', true, ['lift', 'b']],
    ['skill:x', true, ['lift', 'c']],
    ['skill:y', false, ['lift']],
    ['', false, ['lift']],
    ['unnamed', true, ['lift', 'd']],
    [undefined, true, ['lift', 'b', 'c', 'd']],
  ])('%j is lifted alone', async (source, lifted, offered) => {
    expect(await lifting(source)).toEqual({ lifted, offered });
  });

  test('is inherited by child runs', async () => {
    const inner = scriptedModel(['done']);
    const child = agentTool({ name: 'child', description: 'child', model: inner, tools: [named('a'), named('b')] });
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'go' } }] }, 'done']);
    await run(model, [child], { narrow, journal, runId: 'r' });
    expect(offeredTo(inner)).toEqual([['a']]);
    const [entry] = await journal.read(childRunId('r', 't1.tool.0'));
    expect(entry!.event).toMatchObject({ narrow });
  });
});

test('a run that begins with calls is narrowed from the first of them on', async () => {
  const input = [
    { role: 'user' as const, content: 'go' },
    { role: 'assistant' as const, content: [{ type: 'tool-call' as const, id: '1', name: 'b', arguments: '{}' }] },
  ];
  const result = await runLoop({
    model: scriptedModel(['done']),
    tools: [named('a'), named('b')],
    input,
    answered: [],
    narrow: { tools: ['a'] },
  });
  expect(resultsOf(result)[0]).toContain('The tool "b" is not allowed here.');
});

describe('default arguments', () => {
  const defaults = { search: { limit: 5, deep: true } };
  const seen: unknown[] = [];
  const search = tool({
    name: 'search',
    description: 'search',
    input: { type: 'object', properties: { limit: { type: 'integer' }, deep: {}, query: {} }, required: ['limit'] },
    execute: (input) => void seen.push(input),
  });
  const asked = (given: unknown) => ({ calls: [{ name: 'search', arguments: given }] });

  test('are merged before a call is judged, so that an approval shows them', async () => {
    const journal = memoryJournal();
    const options = { narrow: [{ defaults }, { ask: ['search'] }], journal, runId: 'r' };
    const paused = await run(scriptedModel([asked({ query: 'x', deep: false }), 'done']), [search], options);
    expect(paused.waiting).toMatchObject([{ call: { arguments: '{"query":"x","deep":false,"limit":5}' } }]);
    seen.length = 0;
    const answers = [approve(paused.waiting![0]!)];
    await runLoop({ model: scriptedModel(['done']), tools: [search], journal, runId: 'r', answers });
    expect(seen).toEqual([{ query: 'x', deep: false, limit: 5 }]);
  });

  test('of two narrowings that differ do not apply, in any order', async () => {
    const narrow = [{ defaults: { search: { limit: 1 } } }, { defaults }];
    for (const list of [narrow, narrow.toReversed()]) {
      const result = await run(scriptedModel([asked({}), 'done']), [search], { narrow: list });
      expect(resultsOf(result)[0]).toContain('arguments are not valid');
    }
  });

  test.each(['not json', '[1]', '{"limit":"many"}'])('leave the arguments %s to their check', async (text) => {
    const reply = { calls: [{ name: 'search', arguments: text }] };
    const result = await run(scriptedModel([reply, 'done']), [search], { narrow: { defaults } });
    expect(resultsOf(result)[0]).toMatch(/arguments are/);
  });

  test.each([{ defaults: [] }, { defaults: { search: 1 } }, { defaults: { search: null } }])(
    'are not %j',
    async (bad) => {
      const narrow = bad as unknown as Narrowing;
      await expect(run(scriptedModel(['done']), [], { narrow })).rejects.toThrow('"narrow" is');
    },
  );
});
