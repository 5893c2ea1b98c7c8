import { expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Narrowing } from '../machine/narrowing.ts';
import { textOf } from '../messages.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool, type NewRun, type StartingCall, type StartRun, type Tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

const calling = { calls: [{ name: 'spawn' }] };

/** A host that starts each run once for its key. */
function host(): { readonly startRun: StartRun; readonly calls: [object, StartingCall][] } {
  const calls: [object, StartingCall][] = [];
  return {
    calls,
    async startRun(run, call) {
      calls.push([run, call]);
      return { runId: `started by ${call.key}` };
    },
  };
}

function spawnTool(...runs: readonly NewRun[]): Tool {
  return tool({
    name: 'spawn',
    description: 'Starts runs',
    effect: 'idempotent',
    async execute(_, { startRun }) {
      if (!startRun) return 'No runs can be started here.';
      const started = await Promise.all(runs.map((run) => startRun(run)));
      return started.map(({ runId }) => runId).join(', ');
    },
  });
}

const resultOf = async (options: object, spawn: Tool): Promise<string> => {
  const model = scriptedModel([calling, 'Done.']);
  const { messages } = await runLoop({ model, tools: [spawn], runId: 'run', input: 'Go.', ...options });
  const message = messages.find((one) => one.role === 'tool')!;
  return textOf(message.content[0]!.content);
};

test('the host starts a run under the key of the call, and several of one call by their ids', async () => {
  const { startRun, calls } = host();
  const principal = { subject: 'ann', tenant: 't', scopes: [] };
  const spawn = spawnTool({ input: 'One.', model: 'm', maxCalls: 3 }, { input: 'Two.', id: 'two' });
  expect(await resultOf({ startRun, principal }, spawn)).toBe('started by run/t1.tool.0, started by run/t1.tool.0#two');
  expect(calls).toEqual([
    [
      { input: 'One.', model: 'm', maxCalls: 3 },
      { key: 'run/t1.tool.0', runId: 'run', principal },
    ],
    [{ input: 'Two.' }, { key: 'run/t1.tool.0#two', runId: 'run', principal }],
  ]);
});

test('a host without runs says so, and child runs use the host of their parent', async () => {
  expect(await resultOf({}, spawnTool({ input: 'One.' }))).toBe('No runs can be started here.');
  const { startRun, calls } = host();
  const inner = scriptedModel([calling, 'Done.']);
  const helper = agentTool({ name: 'spawn', description: '', model: inner, tools: [spawnTool({ input: 'One.' })] });
  await runLoop({
    model: scriptedModel([{ calls: [{ name: 'spawn', arguments: { task: 'Go.' } }] }, 'Done.']),
    tools: [helper],
    journal: memoryJournal(),
    runId: 'run',
    input: 'Go.',
    startRun,
  });
  expect(calls.map(([, { key }]) => key)).toEqual(['run.t1.tool.0/t1.tool.0']);
});

test('the host learns what the calling run has seen, and where', async () => {
  const { startRun, calls } = host();
  const spawn = spawnTool({ input: 'One.' });
  const fetch = tool({ name: 'fetch', description: 'Fetches', exposes: 'outside', execute: () => 'A page.' });
  await runLoop({
    model: scriptedModel([{ calls: [{ name: 'fetch' }] }, calling, 'Done.']),
    tools: [fetch, spawn],
    runId: 'run',
    input: 'Go.',
    startRun,
  });
  const [[, { exposure }]] = calls as [[object, StartingCall]];
  expect(exposure).toEqual({ outside: { tool: 'fetch', what: 'its result', from: 'run/t1.tool.0' } });
});

test('a narrowed run starts none, because another run would not be narrowed', async () => {
  const { startRun, calls } = host();
  const narrow: Narrowing = { without: ['other'] };
  expect(await resultOf({ startRun, carried: { narrow: [narrow] } }, spawnTool({ input: 'One.' }))).toContain(
    'The run is narrowed',
  );
  expect(calls).toEqual([]);
});

test.each<[string, object, string]>([
  ['no input', {}, 'wrong "input"'],
  ['an empty input', { input: '' }, '"input"'],
  ['an unknown option', { input: 'One.', tools: [] }, '"tools"'],
  ['a limit of 0', { input: 'One.', maxCalls: 0 }, 'wrong "maxCalls"'],
])('rejects %s', async (_, run, message) => {
  const { startRun, calls } = host();
  expect(await resultOf({ startRun }, spawnTool(run as NewRun))).toContain(message);
  expect(calls).toEqual([]);
});
