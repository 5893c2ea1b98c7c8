import { expect, test } from 'vitest';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import { textOf, type Message } from '../messages.ts';
import { scriptedModel, type ScriptedModel } from '../testing/scripted-model.ts';
import { registry } from '../tools/registry.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

const call = (...names: readonly string[]) => ({ calls: names.map((name) => ({ name })) });
const named = (name: string, text = name): Tool => tool({ name, description: name, execute: () => text });
const offering = (name: string, ...tools: readonly Tool[]): Tool =>
  tool({
    name,
    description: name,
    effect: 'pure',
    execute: async (_, { offer }) => {
      await offer(tools);
      return 'offered';
    },
  });
const offeredTo = ({ requests }: ScriptedModel): readonly string[] =>
  requests.map(({ tools }) => tools.map(({ name }) => name).join(' '));
const results = (messages: readonly Message[]): readonly string[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => textOf(content)) : []));

test('tools that a call offers are added from the next turn on', async () => {
  const model = scriptedModel([call('find', 'a'), call('a', 'b'), 'done']);
  const { messages } = await runLoop({ model, tools: [offering('find', named('a'), named('b'))], input: 'go' });
  expect(offeredTo(model)).toEqual(['find', 'find a b', 'find a b']);
  expect(results(messages)).toEqual(['offered', expect.stringContaining('There is no tool "a"'), 'a', 'b']);
});

test('calls of one turn offer the tools of all of them', async () => {
  const tools = [offering('find', named('a'), named('b')), offering('more', named('c'), named('b', 'other'))];
  const model = scriptedModel([call('find', 'more'), call('b', 'c', 'find'), call('a'), 'done']);
  const { messages } = await runLoop({ model, tools, input: 'go' });
  expect(offeredTo(model).slice(1)).toEqual(Array(3).fill('find more a b c'));
  expect(results(messages)).toEqual(['offered', 'offered', 'b', 'c', 'offered', 'a']);
});

test('tools that the run has stay as they are', async () => {
  const model = scriptedModel([call('find'), call('own'), 'done']);
  const tools = [offering('find', named('own', 'replaced'), named('read_result')), named('own')];
  const { messages } = await runLoop({ model, tools, input: 'go', journal: memoryJournal(), runId: 'r' });
  expect(results(messages)).toEqual([expect.stringContaining('two tools named "read_result"'), 'own']);
});

test('a resumed run has the tools that were offered, and can be offered more', async () => {
  const journal = memoryJournal();
  const find = offering('find', named('a'), named('b'));
  const wait = tool({ name: 'wait', description: 'wait' });
  const first = scriptedModel([call('find'), call('wait')]);
  const paused = await runLoop({
    model: first,
    tools: [offering('find', named('a')), wait],
    input: 'go',
    journal,
    runId: 'r',
  });
  expect(paused.outcome).toBeUndefined();

  const model = scriptedModel([call('a'), call('find'), call('b'), 'done']);
  const answers = [{ type: 'result' as const, effect: paused.waiting[0]!.effect, content: 'waited' }];
  const resumed = await runLoop({ model, tools: [find, wait, named('a'), named('b')], journal, runId: 'r', answers });
  expect(resumed.outcome).toEqual({ type: 'completed' });
  expect(offeredTo(model)).toEqual(['find wait a', 'find wait a', 'find wait a b', 'find wait a b']);
  expect(results(resumed.messages)).toEqual(['offered', 'waited', 'a', 'offered', 'b']);
  expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
});

test('a tool that is not called by a run cannot offer tools', async () => {
  const tools = registry();
  tools.register(offering('find', named('a')), 'test');
  expect(await tools.execute('find', {})).toMatchObject({ isError: true });
});
