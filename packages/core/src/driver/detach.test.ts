import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import type { Journal } from '../journal/port.ts';
import { memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { LiveRun } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const callAct: ScriptStep = { calls: [{ name: 'act' }] };

/** A tool whose first call never returns, and the keys of its calls. */
function hangingTool(definition: Partial<ToolDefinition> = {}): {
  readonly act: Tool;
  readonly started: Promise<AbortSignal>;
  readonly keys: readonly string[];
} {
  const { promise: started, resolve } = Promise.withResolvers<AbortSignal>();
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
  return { act, started, keys };
}

const typesOf = async (journal: Journal, runId = 'run'): Promise<readonly string[]> =>
  (await journal.read(runId)).map(({ event }) => event.type);

test('detach during a model call records nothing, and resuming calls the model again', async () => {
  const journal = memoryJournal();
  const { promise: called, resolve } = Promise.withResolvers<AbortSignal>();
  using model = scriptedModel([
    (_, signal) => {
      resolve(signal);
      return new Promise((reply) => signal.addEventListener('abort', () => reply('too late')));
    },
  ]);
  const live = streamLoop({ model, input: 'Go.', journal, runId: 'run' });
  const signal = await called;
  await live.detach();
  expect(signal.aborted).toBe(true);
  expect(await live.result).toMatchObject({ runId: 'run', detached: true, waiting: [], text: '', turns: 1, calls: 0 });
  expect(await live.result).not.toHaveProperty('outcome');
  expect(await live.send('more')).toBe(false);
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
] as const)('detach while a %s tool runs: resuming recovers the call as after a crash', async (effect, result, ran) => {
  const journal = memoryJournal();
  const { act, started, keys } = hangingTool({ effect });
  const live = streamLoop({ model: scriptedModel([callAct]), tools: [act], input: 'Go.', journal, runId: 'run' });
  const signal = await started;
  await live.detach();
  expect(signal.aborted).toBe(true);
  expect(await typesOf(journal)).toEqual(['run-started', 'model-replied']);
  const { messages } = await runLoop({ model: scriptedModel(['Done.']), tools: [act], journal, runId: 'run' });
  expect(JSON.stringify(messages[2])).toContain(result);
  expect(keys).toEqual(ran);
});

test('detach detaches child runs too, and resuming resumes them', async () => {
  const journal = memoryJournal();
  const { act, started } = hangingTool({ effect: 'idempotent' });
  const helper = agentTool({
    name: 'helper',
    description: 'Helps',
    model: scriptedModel([callAct, 'Helped.']),
    tools: [act],
  });
  const options = { tools: [helper], journal, runId: 'run' };
  const callHelper = { calls: [{ name: 'helper', arguments: { task: 'help' } }] };
  const live = streamLoop({ ...options, model: scriptedModel([callHelper]), input: 'Go.' });
  await started;
  await live.detach();
  expect(await journal.isDriven('run.t1.tool.0')).toBe(false);
  expect(await typesOf(journal, 'run.t1.tool.0')).toEqual(['run-started', 'model-replied']);
  const result = await runLoop({ ...options, model: scriptedModel(['Done.']) });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
  expect(JSON.stringify(result.messages)).toContain('Helped.');
});

describe('detach changes nothing', () => {
  test('if the run is paused', async () => {
    const policy = { judge: () => [{ type: 'ask' as const }] };
    const live = streamLoop({ model: scriptedModel([callAct]), tools: [hangingTool().act], policy, input: 'Go.' });
    const paused = await live.result;
    await live.detach();
    expect(paused).toMatchObject({ waiting: [{ type: 'approval' }] });
    expect(paused).not.toHaveProperty('detached');
  });

  test('if the run has ended', async () => {
    const live = streamLoop({ model: scriptedModel(['Done.']), input: 'Go.' });
    await live.result;
    await live.detach();
    expect(await live.result).toMatchObject({ outcome: { type: 'completed' } });
  });

  test('if the run has not started; it then never starts', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([]);
    const live = streamLoop({ model, input: 'Go.', journal, runId: 'run' });
    await live.detach();
    expect(await live.result).toMatchObject({ runId: 'run', detached: true, turns: 0, messages: [] });
    expect(await typesOf(journal)).toEqual([]);
    expect(await journal.isDriven('run')).toBe(false);
  });
});

test('detach by a listener: no effects start after it, and the listener receives the facts so far', async () => {
  const received: string[] = [];
  const { act, keys } = hangingTool();
  const live: LiveRun = streamLoop({
    model: scriptedModel([callAct]),
    tools: [act],
    input: 'Go.',
    onItem: (item) => {
      if (item.type !== 'fact') return;
      received.push(item.event.type);
      if (item.event.type === 'model-replied') void live.detach();
    },
  });
  expect(await live.result).toMatchObject({ detached: true, turns: 1, calls: 1 });
  expect(received).toEqual(['run-started', 'model-replied']);
  expect(keys).toEqual([]);
});

test('detach waits for a pending append, and the result rejects if that fails', async () => {
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
  reject(new Error('disk full'));
  await detached;
  await expect(live.result).rejects.toMatchObject({ code: 'journal-failed' });
  expect(await memory.isDriven('run')).toBe(false);
});
