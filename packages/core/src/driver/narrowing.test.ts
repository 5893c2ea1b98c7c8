import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import { narrower, READ_RESULT_DESCRIPTION, type Narrowing } from '../machine/narrowing.ts';
import type { Policy } from '../policy/port.ts';
import { scriptedModel, type ScriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { LoopOptions, LoopResult, StartedRun } from './options.ts';
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

test('"question", "read_result" and the tools of the loop stay callable', async () => {
  const long = tool({
    name: 'long',
    description: 'long',
    execute: () => ({ content: 'x'.repeat(500), narrow: { tools: [] } }),
  });
  const model = scriptedModel([call('long'), call('question', 'read_result', 'long'), 'done']);
  const more = { journal: memoryJournal(), maxResultChars: 100 };
  const result = await run(model, [long, named('question')], more);
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
  expect(resultsOf(result)).toEqual(['The run is narrowed, and may not call "read_result_x".']);
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

test.each([{ tools: 'a' }, { tools: [1] }, { autonomy: 4 }, { autonomy: '1' }, { tool: ['a'] }, 'all'])(
  'rejects %j as a narrowing',
  async (bad) => {
    const narrow = bad as Narrowing;
    await expect(run(scriptedModel(['done']), [], { narrow })).rejects.toThrow('"narrow" is');
    const result = await run(scriptedModel([call('skill'), 'done']), [narrowing('skill', narrow)]);
    expect(resultsOf(result)).toEqual([expect.stringContaining('returned a "narrow" that is not valid')]);
    const model = scriptedModel(['done']);
    expect(() => agentTool({ name: 'child', description: '', model, narrow })).toThrow('"narrow" is');
  },
);

test('the order of narrowings makes no difference', () => {
  const one: Narrowing = { tools: ['c', 'a', 'b'], autonomy: 2 };
  const two: Narrowing = { tools: ['b', 'c', 'c', 'd'] };
  expect(narrower(one, two)).toEqual({ tools: ['b', 'c'], autonomy: 2 });
  expect(JSON.stringify(narrower(one, two))).toBe(JSON.stringify(narrower(two, one)));
  expect(narrower(undefined, {})).toBeUndefined();
});
