import { describe, expect, test } from 'vitest';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import type { Ledger } from '../ledger/port.ts';
import type { Policy } from '../policy/port.ts';
import { scriptedModel, type ScriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { handoff, type HandoffAgent } from './handoff.ts';
import { runLoop, startLoop } from './run.ts';
import type { StartedRun } from './options.ts';

const call = (...names: readonly string[]) => ({ calls: names.map((name) => ({ name })) });
const named = (name: string): Tool => tool({ name, description: name, execute: () => name });
const ask = tool({ name: 'ask', description: 'ask' });

const seenBy = ({ requests }: ScriptedModel) =>
  requests.map(({ instructions, tools, messages }) => [
    instructions,
    tools.map(({ name }) => name).join(),
    messages.length,
  ]);

describe('the agents of handoff tools', () => {
  const boss: HandoffAgent = { name: 'boss', instructions: 'Decide.', model: scriptedModel(['yes']) };
  const billing: HandoffAgent = {
    name: 'billing',
    tools: [handoff(boss)],
    model: scriptedModel([call('hand_off_to_boss'), call('hand_off_to_boss')]),
  };
  const desk = () => scriptedModel([call('hand_off_to_billing')]);

  test('need not be listed, nor those that they hand over to', async () => {
    const result = await runLoop({ model: desk(), tools: [handoff(billing)], input: 'go' });
    expect(result).toMatchObject({ handedTo: 'boss', text: 'yes' });
  });

  test('are found when a run is resumed', async () => {
    const model = scriptedModel([call('ask'), 'done']);
    const clerk: HandoffAgent = { name: 'clerk', tools: [ask], model };
    const run = { tools: [handoff(clerk)], journal: memoryJournal(), runId: 'r' };
    const { waiting } = await runLoop({ ...run, model: scriptedModel([call('hand_off_to_clerk')]), input: 'go' });
    const answers = [{ type: 'result', effect: waiting[0]!.effect, content: 'x' }] as const;
    expect((await runLoop({ ...run, model: scriptedModel([]), answers })).text).toBe('done');
  });

  test('are replaced by listed agents of the same name', async () => {
    const agents = [{ name: 'billing', model: scriptedModel(['listed']) }];
    expect((await runLoop({ model: desk(), tools: [handoff(billing)], agents, input: 'go' })).text).toBe('listed');
  });

  test('need prices for a cost limit', async () => {
    const model = { ...scriptedModel([]), id: 'cheap', priced: false };
    const options = { model: desk(), tools: [handoff({ ...billing, model })], input: 'go', limits: { cost: 1 } };
    await expect(runLoop(options)).rejects.toThrow('the run may call "cheap" without a known price');
  });
});

test('hands the same conversation over to other instructions, tools and another model, and back', async () => {
  const desk = scriptedModel([call('hand_off_to_billing', 'a'), call('a'), 'done']);
  const clerk = scriptedModel([call('b', 'a'), call('hand_off_to_desk')]);
  const tools = [named('a'), handoff({ name: 'billing', description: 'pays' })];
  const agents: HandoffAgent[] = [
    { name: 'desk', instructions: 'Be the desk.', tools },
    { name: 'billing', instructions: 'Bill.', model: clerk, tools: [named('b'), handoff({ name: 'desk' })] },
  ];
  const result = await runLoop({
    model: desk,
    instructions: 'Be the desk.',
    tools,
    agents,
    input: 'go',
    memory: { m: 1 },
  });
  expect(seenBy(desk)).toEqual([
    ['Be the desk.', 'a,hand_off_to_billing', 1],
    ['Be the desk.', 'a,hand_off_to_billing', 7],
    ['Be the desk.', 'a,hand_off_to_billing', 9],
  ]);
  expect(seenBy(clerk)).toEqual([
    ['Bill.', 'b,hand_off_to_desk', 3],
    ['Bill.', 'b,hand_off_to_desk', 5],
  ]);
  expect(result).toMatchObject({ handedTo: 'desk', text: 'done', turns: 5, memory: { m: 1 } });
  const results = result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  expect(results.map(({ name, isError }) => [name, isError])).toEqual([
    ['hand_off_to_billing', false],
    ['a', false],
    ['b', false],
    ['a', true],
    ['hand_off_to_desk', false],
    ['a', false],
  ]);
});

test('the last handoff of a reply counts, and an agent without instructions has none', async () => {
  const model = scriptedModel([call('hand_off_to_x', 'hand_off_to_y'), call('b'), 'done']);
  const agents = [
    { name: 'x', instructions: 'X', tools: [named('a')] },
    { name: 'y', tools: [named('b')] },
  ];
  const tools = agents.map((agent) => handoff(agent));
  const { handedTo, messages } = await runLoop({ model, instructions: 'first', tools, agents, input: 'go' });
  expect(handedTo).toBe('y');
  expect(seenBy(model)[1]).toEqual([undefined, 'b', 3]);
  expect(messages.at(-2)).toMatchObject({ role: 'tool', content: [{ name: 'b', isError: false }] });
});

test('the narrowing stays, so that a handoff cannot widen it', async () => {
  const model = scriptedModel([call('hand_off_to_x'), call('b'), 'done']);
  const agents = [{ name: 'x', tools: [named('a'), named('b')] }];
  const tools = [handoff(agents[0]!)];
  await runLoop({ model, tools, agents, input: 'go', narrow: { tools: ['hand_off_to_x', 'a'] } });
  expect(seenBy(model)[1]![1]).toBe('a');
});

test('changeTools after a handoff changes the tools of the new agent', async () => {
  const model = scriptedModel([call('hand_off_to_x'), call('change'), call('c'), 'done']);
  const change = tool({ name: 'change', description: '', execute: () => String(live.changeTools([named('c')])) });
  const agents = [{ name: 'x', instructions: 'X', tools: [change] }];
  const live: StartedRun = startLoop({ model, tools: [handoff(agents[0]!)], agents, input: 'go' });
  await live.result;
  expect(seenBy(model).map(([instructions, tools]) => [instructions, tools])).toEqual([
    [undefined, 'hand_off_to_x'],
    ['X', 'change'],
    ['X', 'c'],
    ['X', 'c'],
  ]);
});

test('a handoff touches nothing outside of the run', async () => {
  const touched: unknown[] = [];
  const policy: Policy = {
    judge: (calls) => calls.map(({ touches }) => (touched.push(touches), { type: 'allow' })),
  };
  const model = scriptedModel([call('hand_off_to_x'), 'done']);
  const result = await runLoop({
    model,
    tools: [handoff({ name: 'x' })],
    agents: [{ name: 'x' }],
    policy,
    input: 'go',
  });
  expect([result.handedTo, touched]).toEqual(['x', [[]]]);
});

test('allowedTools may name the tools of the other agent', async () => {
  const agents = [{ name: 'x', tools: [named('a'), named('b')] }];
  const options = { tools: [handoff(agents[0]!)], agents, input: 'go' };
  const model = scriptedModel([call('hand_off_to_x'), call('a', 'b'), 'done']);
  const { messages } = await runLoop({ ...options, model, allowedTools: ['hand_off_to_x', 'a'] });
  expect(messages.at(-2)).toMatchObject({ content: [{ isError: false }, { errorType: 'permission_denied' }] });
  await expect(runLoop({ ...options, model, allowedTools: ['c'] })).rejects.toThrow('there is no such tool');
  await expect(runLoop({ ...options, model, toolChoice: { tool: 'a' } })).rejects.toThrow('there is no such tool');
});

describe('while the result of a handoff waits for the ledger', () => {
  const agents = [{ name: 'x', tools: [named('b')] }];
  /** Settles the handoff after `meanwhile`. */
  const ledgerAfter = (meanwhile: () => unknown): Ledger => ({
    reserve: () => ({ type: 'reserved' }),
    settle: async (key) => void (key.endsWith('t1.tool.0') && (await meanwhile())),
    release() {},
  });

  test('changed tools do not replace those of the agent', async () => {
    const model = scriptedModel([call('hand_off_to_x'), call('b'), 'done']);
    const live: StartedRun = startLoop({
      model,
      tools: [handoff(agents[0]!)],
      agents,
      ledger: ledgerAfter(() => live.changeTools([named('c')])),
      input: 'go',
    });
    const { messages } = await live.result;
    expect(seenBy(model)[1]![1]).toBe('b');
    expect(messages.at(-2)).toMatchObject({ content: [{ name: 'b', isError: false }] });
  });

  test('the agent is offered read_result for a result that is cut meanwhile', async () => {
    const model = scriptedModel([call('hand_off_to_x', 'long'), 'done']);
    const cut = Promise.withResolvers<void>();
    const long = tool({ name: 'long', description: '', execute: () => 'x'.repeat(2_000) });
    await runLoop({
      model,
      tools: [handoff(agents[0]!), long],
      agents,
      ledger: ledgerAfter(() => cut.promise),
      journal: memoryJournal(),
      maxResultChars: 1_000,
      input: 'go',
      onItem: (item) => item.type === 'call-answered' && item.call.name === 'long' && cut.resolve(),
    });
    expect(seenBy(model)[1]![1]).toBe('b,read_result');
  });
});

describe('with a journal', () => {
  const agents = (model: ScriptedModel): HandoffAgent[] => [
    { name: 'x', instructions: 'X', model, tools: [ask, named('a')] },
  ];
  const tools = [handoff({ name: 'x' })];

  async function paused() {
    const journal = memoryJournal();
    const first = scriptedModel([call('hand_off_to_x')]);
    const second = scriptedModel([call('ask')]);
    const { waiting, handedTo } = await runLoop({
      model: first,
      tools,
      agents: agents(second),
      journal,
      runId: 'r',
      input: 'go',
    });
    expect(handedTo).toBe('x');
    const answers = waiting.map(({ effect }) => ({ type: 'result' as const, effect, content: 'yes' }));
    return { journal, runId: 'r', tools, answers, model: scriptedModel([]) };
  }

  test('a resumed run continues with the agent that it is with', async () => {
    const options = await paused();
    const model = scriptedModel([call('a'), 'done']);
    const { text } = await runLoop({ ...options, agents: agents(model) });
    expect(text).toBe('done');
    expect(seenBy(model)[0]).toEqual(['X', 'ask,a', 5]);
    expect(replay(await options.journal.read('r'))).toMatchObject({ type: 'replayed', state: { handedTo: 'x' } });
  });

  test('a run cannot be resumed without the agent that it is with', async () => {
    await expect(runLoop({ ...(await paused()), tools: [] })).rejects.toThrow(
      'is with the agent "x". Pass it in "agents"',
    );
  });

  test('the tools of the agent are compared with the recorded ones', async () => {
    const options = { ...(await paused()), agents: [{ name: 'x', tools: [ask] }] };
    await expect(runLoop(options)).rejects.toThrow('"a" is missing');
  });

  test('a fork is with the same agent', async () => {
    const { journal } = await paused();
    const at = (await journal.read('r')).findIndex(({ event }) => event.type === 'tool-settled');
    const runId = await forkRun({ journal, runId: 'r', at, changes: { instructions: 'other' } });
    const model = scriptedModel(['done']);
    await runLoop({ journal, runId, tools, agents: agents(model), model: scriptedModel([]) });
    expect(seenBy(model)[0]).toEqual(['other', 'ask,a', 3]);
  });
});

describe('rejects', () => {
  const model = scriptedModel(['done']);

  test.each<[string, { agents?: HandoffAgent[]; tools?: Tool[] }, string]>([
    [
      'a handoff to an agent that does not exist',
      { tools: [handoff({ name: 'x' })] },
      '"x", which is not in "agents" (none)',
    ],
    [
      'a handoff of an agent to one that does not exist',
      { agents: [{ name: 'x', tools: [handoff({ name: 'y' })] }] },
      '"y", which is not in "agents" (x)',
    ],
    ['two agents with one name', { agents: [{ name: 'x' }, { name: 'x' }] }, 'two agents named "x"'],
    ['an agent with two tools of one name', { agents: [{ name: 'x', tools: [ask, ask] }] }, 'two tools named "ask"'],
  ])('%s', async (_, options, problem) => {
    await expect(runLoop({ model, input: 'go', ...options })).rejects.toThrow(problem);
  });

  test('an agent without a price under a cost limit', async () => {
    const agents = [{ name: 'x', model: { ...scriptedModel([]), id: 'free', priced: false } as never }];
    const priced = { ...model, priced: true };
    const options = { model: priced, agents, input: 'go', limits: { cost: 1 } };
    await expect(runLoop(options)).rejects.toThrow('"free" without a known price');
  });

  test('a name that cannot be part of the name of a tool', () => {
    expect(() => handoff({ name: 'a b' })).toThrow('is not accepted by providers');
  });
});
