import { describe, expect, test } from 'vitest';
import type { Event } from '../machine/events.ts';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import type { ModelRequest } from '../model.ts';
import { scriptedModel, type ScriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { StartedRun } from './options.ts';
import { runLoop, startLoop } from './run.ts';

const call = (...names: readonly string[]) => ({ calls: names.map((name) => ({ name })) });

function named(name: string, execute: () => unknown = () => name, description = name): Tool {
  return tool({ name, description, execute });
}

const offeredTo = ({ requests }: ScriptedModel): readonly (readonly string[])[] =>
  requests.map(({ tools }: ModelRequest) => tools.map(({ name }) => name));

const results = (messages: readonly { role: string; content: readonly unknown[] }[]): readonly string[] =>
  messages.flatMap(({ role, content }) =>
    role === 'tool' ? content.map((one) => (one as { content: { text: string }[] }).content[0]!.text) : [],
  );

/** A run whose tool `change` changes the tools. */
function changing(model: ScriptedModel, to: readonly Tool[], others: readonly Tool[], more = {}): StartedRun {
  const change = named('change', async () => String(await live.changeTools(to)));
  const live: StartedRun = startLoop({ model, tools: [change, ...others], input: 'go', parallel: false, ...more });
  return live;
}

test('added and removed tools apply from the next turn on', async () => {
  const model = scriptedModel([call('change', 'old', 'new'), call('old', 'new'), 'done']);
  const { messages } = await changing(model, [named('new')], [named('old')]).result;
  expect(offeredTo(model)).toEqual([['change', 'old'], ['new'], ['new']]);
  expect(results(messages)).toEqual([
    'true',
    'old',
    'There is no tool "new". Available tools: change, old. Use one of them, or answer without a tool.',
    'There is no tool "old". Available tools: new. Use one of them, or answer without a tool.',
    'new',
  ]);
});

test('a changed tool has its old executor and schema for the calls of the current turn', async () => {
  const input = { type: 'object', properties: { a: {} }, required: ['a'] };
  const strict = tool({ name: 'same', description: 'same', input, execute: () => 'second' });
  const model = scriptedModel([call('change', 'same'), call('same'), 'done']);
  const { messages } = await changing(model, [strict], [named('same', () => 'first')]).result;
  expect(results(messages)).toEqual(['true', 'first', expect.stringContaining('Required: a.')]);
});

test('the last of several changes applies, also if no tool was called in between', async () => {
  const model = scriptedModel(['one', 'two', call('c'), 'done']);
  const live: StartedRun = startLoop({
    model,
    tools: [named('a')],
    input: 'go',
    finish: 'confirm',
    onItem(item) {
      if (item.type !== 'turn-started') return;
      if (item.turn === 1) void live.changeTools([named('b')]);
      if (item.turn === 2) {
        void live.changeTools([named('x')]);
        void live.changeTools([named('c')]);
        void live.send('more');
      }
    },
  });
  const { messages } = await live.result;
  expect(offeredTo(model)).toEqual([['a'], ['b'], ['c'], ['c']]);
  expect(results(messages)).toEqual(['c']);
});

test('a change before the run has started applies from its second turn on', async () => {
  const model = scriptedModel([call('a'), call('b'), 'done']);
  const live = startLoop({ model, tools: [named('a')], input: 'go' });
  expect(await live.changeTools([named('b')])).toBe(true);
  expect(results((await live.result).messages)).toEqual(['a', 'b']);
  expect(offeredTo(model)).toEqual([['a'], ['b'], ['b']]);
  expect(await live.changeTools([])).toBe(false);
});

test('a change is in the journal, and replays without code', async () => {
  const journal = memoryJournal();
  const model = scriptedModel([call('change'), 'done']);
  const to = named('new');
  await changing(model, [to], [], { journal, runId: 'r' }).result;
  const entries = await journal.read('r');
  const changed = entries.map(({ event }) => event).find((event) => event.type === 'tools-changed');
  expect(changed).toMatchObject({ from: 'next-turn', tools: [{ name: 'new' }] } satisfies Partial<Event> | object);
  expect(replay(entries)).toMatchObject({ type: 'replayed', state: { tools: [{ name: 'new' }] } });
});

test('a change keeps the tool that pages through long results, also if that is offered afterwards', async () => {
  const long = named('long', () => 'x'.repeat(500));
  const model = scriptedModel([call('change', 'long'), call('long'), 'done']);
  const options = { journal: memoryJournal(), runId: 'r', maxResultChars: 100 };
  await changing(model, [long], [long], options).result;
  expect(offeredTo(model)).toEqual([
    ['change', 'long'],
    ['long', 'read_result'],
    ['long', 'read_result'],
  ]);
  const again = scriptedModel([call('long'), call('change'), 'done']);
  await changing(again, [long], [long], { ...options, runId: 's' }).result;
  expect(offeredTo(again).at(-1)).toEqual(['long', 'read_result']);
});

describe('rejects', () => {
  const live = () => startLoop({ model: scriptedModel(['done']), tools: [named('a')], input: 'go' });

  test('two tools with one name, and values that are not tools', async () => {
    await expect(live().changeTools([named('a'), named('a')])).rejects.toThrow('two tools named "a"');
    await expect(live().changeTools(['a' as never])).rejects.toThrow('tools[0] is not a tool');
  });

  test('a change that removes the tool that must be called', async () => {
    const model = scriptedModel(['no', call('a'), 'done']);
    const thrown: unknown[] = [];
    const run: StartedRun = startLoop({
      model,
      tools: [named('a')],
      toolChoice: { tool: 'a' },
      input: 'go',
      onItem(item) {
        if (item.type !== 'turn-started' || item.turn > 1) return;
        run.changeTools([]).catch((error: unknown) => thrown.push(error));
      },
    });
    expect((await run.result).outcome).toEqual({ type: 'completed' });
    expect(thrown).toMatchObject([{ code: 'invalid-options', message: expect.stringContaining('{"tool":"a"}') }]);
  });
});

describe('a resumed run', () => {
  const ask = tool({ name: 'ask', description: 'ask' });

  async function paused() {
    const journal = memoryJournal();
    const model = scriptedModel([call('ask', 'away')]);
    const tools = [ask, named('away'), named('here')];
    const { waiting } = await runLoop({ model, tools, journal, runId: 'r', input: 'go' });
    const answers = waiting.map(({ effect }) => ({ type: 'result' as const, effect, content: 'yes' }));
    return { journal, runId: 'r', answers };
  }

  test('rejects missing tools, and says how to keep them', async () => {
    const options = { ...(await paused()), model: scriptedModel(['done']), tools: [ask, named('here')] };
    await expect(runLoop(options)).rejects.toThrow(/"away" is missing.*keepMissingTools/);
  });

  test('keeps the facts of missing tools, and their calls fail', async () => {
    const model = scriptedModel([call('away', 'here'), 'done']);
    const tools = [ask, named('here')];
    const { messages } = await runLoop({ ...(await paused()), model, tools, keepMissingTools: true });
    expect(offeredTo(model)).toEqual([
      ['ask', 'away', 'here'],
      ['ask', 'away', 'here'],
    ]);
    expect(results(messages).slice(2)).toEqual([
      'The tool "away" was not called. It is not available in this process.',
      'here',
    ]);
    expect(messages.at(-2)).toMatchObject({ content: [{ errorType: 'not_found' }, { isError: false }] });
  });

  test('may keep missing tools and accept changed ones', async () => {
    const input = { type: 'object', properties: { a: {} } };
    const changed = tool({ name: 'here', description: 'changed', input, execute: () => 'changed' });
    const options = { ...(await paused()), model: scriptedModel(['done']), tools: [ask, changed] };
    await expect(runLoop({ ...options, keepMissingTools: true })).rejects.toThrow('"here" has a different parameters');
    const model = scriptedModel([call('here'), 'done']);
    const accepting = { ...options, model, keepMissingTools: true, acceptChangedTools: true };
    expect(results((await runLoop(accepting)).messages).at(-1)).toBe('changed');
    expect(offeredTo(model)[0]).toEqual(['ask', 'here', 'away']);
  });

  test('compares its tools with those of a change that waits for the next turn', async () => {
    const journal = memoryJournal();
    const model = scriptedModel([call('change', 'ask')]);
    const pausing = changing(model, [ask, named('new')], [ask], { journal, runId: 'r' });
    const { waiting } = await pausing.result;
    const answers = waiting.map(({ effect }) => ({ type: 'result' as const, effect, content: 'yes' }));
    const next = scriptedModel([call('new'), 'done']);
    const options = { journal, runId: 'r', answers, model: next };
    await expect(runLoop({ ...options, tools: [ask] })).rejects.toThrow('"new" is missing');
    const { messages } = await runLoop({ ...options, tools: [ask, named('new')] });
    expect(results(messages)).toEqual(['true', 'yes', 'new']);
    expect(offeredTo(next)[0]).toEqual(['ask', 'new']);
  });
});
