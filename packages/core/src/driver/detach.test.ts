import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import type { Journal } from '../journal/port.ts';
import { memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { LiveRun } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const calling: ScriptStep = { calls: [{ name: 'act' }] };

/** A tool that the first time runs until it is told to stop. */
function endless(definition: Partial<ToolDefinition> = {}): {
  readonly act: Tool;
  readonly begun: Promise<AbortSignal>;
  readonly keys: readonly string[];
} {
  const { promise: begun, resolve } = Promise.withResolvers<AbortSignal>();
  const keys: string[] = [];
  const act = tool({
    name: 'act',
    description: 'Acts',
    ...definition,
    execute: (_, { signal, key }) => {
      resolve(signal);
      return keys.push(key) > 1 ? 'acted' : new Promise(() => {});
    },
  });
  return { act, begun, keys };
}

const typesOf = async (journal: Journal, runId = 'run'): Promise<readonly string[]> =>
  (await journal.read(runId)).map(({ event }) => event.type);

test('while the model is asked: nothing is recorded of it, and it is asked again', async () => {
  const journal = memoryJournal();
  const { promise: asked, resolve } = Promise.withResolvers<AbortSignal>();
  using model = scriptedModel([
    (_, signal) => {
      resolve(signal);
      return new Promise((reply) => signal.addEventListener('abort', () => reply('too late')));
    },
  ]);
  const live = streamLoop({ model, input: 'Go.', journal, runId: 'run' });
  const signal = await asked;
  await live.detach();
  expect(signal.aborted).toBe(true);
  expect(await live.result).toMatchObject({ runId: 'run', detached: true, waiting: [], text: '', turns: 1, calls: 0 });
  expect(await live.result).not.toHaveProperty('outcome');
  expect(live.send('more')).toBe(false);
  expect(await typesOf(journal)).toEqual(['run-started']);
  expect((await journal.list())[0]).toMatchObject({ status: 'running' });
  expect(await journal.isDriven('run')).toBe(false);

  using again = scriptedModel(['Done.']);
  const result = await runLoop({ model: again, journal, runId: 'run' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  expect(result).not.toHaveProperty('detached');
  expect(await typesOf(journal)).toEqual(['run-started', 'effect-lost', 'model-replied']);
});

test.each([
  ['pure', 'acted', ['run/t1.tool.0', 'run/t1.tool.0']],
  ['once', 'interrupted', ['run/t1.tool.0']],
] as const)('while a %s tool runs: it is recovered like after a crash', async (effect, result, ran) => {
  const journal = memoryJournal();
  const { act, begun, keys } = endless({ effect });
  const live = streamLoop({ model: scriptedModel([calling]), tools: [act], input: 'Go.', journal, runId: 'run' });
  const signal = await begun;
  await live.detach();
  expect(signal.aborted).toBe(true);
  expect(await typesOf(journal)).toEqual(['run-started', 'model-replied']);
  const { messages } = await runLoop({ model: scriptedModel(['Done.']), tools: [act], journal, runId: 'run' });
  expect(JSON.stringify(messages[2])).toContain(result);
  expect(keys).toEqual(ran);
});

test('a run that works for it is left too, not cancelled, and goes on with it', async () => {
  const journal = memoryJournal();
  const { act, begun } = endless({ effect: 'idempotent' });
  const helper = agentTool({
    name: 'helper',
    description: 'Helps',
    model: scriptedModel([calling, 'Helped.']),
    tools: [act],
  });
  const options = { tools: [helper], journal, runId: 'run' };
  const asking = { calls: [{ name: 'helper', arguments: { task: 'help' } }] };
  const live = streamLoop({ ...options, model: scriptedModel([asking]), input: 'Go.' });
  await begun;
  await live.detach();
  expect(await journal.isDriven('run.t1.tool.0')).toBe(false);
  expect(await typesOf(journal, 'run.t1.tool.0')).toEqual(['run-started', 'model-replied']);
  const result = await runLoop({ ...options, model: scriptedModel(['Done.']) });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  expect(JSON.stringify(result.messages)).toContain('Helped.');
});

describe('has nothing to do', () => {
  test('with a run that is paused', async () => {
    const policy = { judge: () => [{ type: 'ask' as const }] };
    const live = streamLoop({ model: scriptedModel([calling]), tools: [endless().act], policy, input: 'Go.' });
    const paused = await live.result;
    await live.detach();
    expect(paused).toMatchObject({ waiting: [{ type: 'approval' }] });
    expect(paused).not.toHaveProperty('detached');
  });

  test('with a run that has ended', async () => {
    const live = streamLoop({ model: scriptedModel(['Done.']), input: 'Go.' });
    await live.result;
    await live.detach();
    expect(await live.result).toMatchObject({ outcome: { type: 'completed' } });
  });

  test('with one that has not begun, which then never does', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([]);
    const live = streamLoop({ model, input: 'Go.', journal, runId: 'run' });
    await live.detach();
    expect(await live.result).toMatchObject({ runId: 'run', detached: true, turns: 0, messages: [] });
    expect(await typesOf(journal)).toEqual([]);
    expect(await journal.isDriven('run')).toBe(false);
  });
});

test('by a listener, in the middle of what it hears: the facts so far are told, and nothing is begun after', async () => {
  const heard: string[] = [];
  const { act, keys } = endless();
  const live: LiveRun = streamLoop({
    model: scriptedModel([calling]),
    tools: [act],
    input: 'Go.',
    onItem: (item) => {
      if (item.type !== 'fact') return;
      heard.push(item.event.type);
      if (item.event.type === 'model-replied') void live.detach();
    },
  });
  expect(await live.result).toMatchObject({ detached: true, turns: 1, calls: 1 });
  expect(heard).toEqual(['run-started', 'model-replied']);
  expect(keys).toEqual([]);
});

test('waits for what is on its way into the journal, and the result says if that fails', async () => {
  const memory = memoryJournal();
  const { promise: durable, reject } = Promise.withResolvers<void>();
  const { promise: appended, resolve } = Promise.withResolvers<void>();
  const append = async (): Promise<void> => {
    resolve();
    await durable;
  };
  const live = streamLoop({ model: scriptedModel([]), input: 'Go.', journal: { ...memory, append }, runId: 'run' });
  await appended;
  const detached = live.detach();
  expect(await memory.isDriven('run')).toBe(true);
  reject(new Error('disk gone'));
  await detached;
  await expect(live.result).rejects.toMatchObject({ code: 'journal-failed' });
  expect(await memory.isDriven('run')).toBe(false);
});
