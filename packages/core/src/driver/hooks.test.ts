import { expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const look = tool({ name: 'look', description: 'Looks', execute: () => 'saw it' });
const script = [{ calls: [{ name: 'look' }, { name: 'unknown' }] }, 'Done.'] as const;

type Hooks = Pick<LoopOptions, 'onTurnStart' | 'onToolCall' | 'onToolResult' | 'onFinish'>;

function recording(log: unknown[]): Required<Hooks> {
  return {
    onTurnStart: ({ turn }) => log.push(`turn ${turn}`),
    onToolCall: ({ call }) => log.push(`call ${call.name}`),
    onToolResult: ({ call, result }) => log.push(`${result.isError ? 'error' : 'result'} of ${call.name}`),
    onFinish: ({ outcome, text }) => log.push([outcome?.type, text]),
  };
}

const EXPECTED = ['turn 1', 'error of unknown', 'call look', 'result of look', 'turn 2', ['completed', 'Done.']];

test('hooks are called in order, beside onItem', async () => {
  const log: unknown[] = [];
  let items = 0;
  const onItem = (): unknown => items++;
  await runLoop({ model: scriptedModel([...script]), tools: [look], input: 'Go.', onItem, ...recording(log) });
  expect(log).toEqual(EXPECTED);
  expect(items).toBeGreaterThan(log.length);
});

test('a stream calls them too', async () => {
  const log: unknown[] = [];
  const live = streamLoop({ model: scriptedModel([...script]), tools: [look], input: 'Go.', ...recording(log) });
  await Array.fromAsync(live);
  await live.result;
  expect(log).toEqual(EXPECTED);
});

test('a child run has hooks of its own', async () => {
  const log: unknown[] = [];
  const child = { name: 'ask', description: 'Asks', model: scriptedModel([...script]), tools: [look] };
  const model = scriptedModel([{ calls: [{ name: 'ask', arguments: { task: 'Go.' } }] }, 'All done.']);
  await runLoop({ model, tools: [agentTool({ ...child, ...recording(log) })], input: 'Go.' });
  expect(log).toEqual(EXPECTED);
});

test('errors of hooks change nothing, and do not end the process', async () => {
  const fail = (): never => {
    throw new Error('ouch');
  };
  const reject = (): Promise<never> => Promise.reject(new Error('ouch'));
  for (const hook of [fail, reject]) {
    const hooks: Hooks = { onTurnStart: hook, onToolCall: hook, onToolResult: hook, onFinish: hook };
    const result = await runLoop({ model: scriptedModel([...script]), tools: [look], input: 'Go.', ...hooks });
    expect(result.orThrow().text).toBe('Done.');
  }
});

test('the result waits for onFinish, also of a run that failed or paused', async () => {
  const finished: unknown[] = [];
  const onFinish: Hooks['onFinish'] = async ({ outcome }) => {
    await Promise.resolve();
    finished.push(outcome?.type);
  };
  const error = { code: 'auth', message: 'No.', retryable: false } as const;
  await runLoop({ model: scriptedModel([{ type: 'failure', error }]), input: 'Go.', onFinish });
  const pick = tool({ name: 'pick', description: 'The client picks' });
  await runLoop({ model: scriptedModel([{ calls: [{ name: 'pick' }] }]), tools: [pick], input: 'Go.', onFinish });
  expect(finished).toEqual(['failed', undefined]);
});
