import { describe, expect, test } from 'vitest';
import { approve } from '../driver/make-answer.ts';
import { memoryBudgets } from '../ledger/budgets.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { ModelReply } from '../model.ts';
import { policy } from '../policy/policy.ts';
import { manualClock, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { agentRegistry, agentResult, agentRuntime, type AgentRuntime, type AgentRuntimeOptions } from './index.ts';

const look = tool({ name: 'look', description: 'Looks', effect: 'pure', touches: () => [], execute: () => 'seen' });
const asked = tool({
  name: 'act',
  description: 'Acts',
  touches: () => [],
  needsApproval: true,
  execute: () => 'acted',
});

const LOOKER = { name: 'looker', description: 'Looks.', tools: ['look'] };

function runtimeOf(
  definitions: readonly object[],
  script: readonly ScriptStep[],
  options: Partial<AgentRuntimeOptions> = {},
): AgentRuntime & { readonly model: ReturnType<typeof scriptedModel> } {
  const model = scriptedModel(script);
  const registry = agentRegistry(definitions, { default: 'looker' });
  return { ...agentRuntime({ registry, model: () => model, tools: [look, asked], ...options }), model };
}

const failing = (retryable: boolean, code: 'network' | 'auth' = 'network'): ModelReply => ({
  type: 'failure',
  error: { code, message: 'It failed.', retryable },
});

test('case 31: invoke is one model call with exactly a system and a user message', async () => {
  const greeter = { ...LOOKER, name: 'greeter', inputs: { who: { type: 'string', required: true } } };
  const runtime = runtimeOf([greeter], ['Hello.']);
  expect(await runtime.invoke('greeter', { who: 'Ada' })).toEqual({
    output: { result: 'Hello.' },
    raw_response: 'Hello.',
    tokens_used: 15,
    model: 'scripted',
  });
  expect(runtime.model.requests).toMatchObject([
    {
      instructions: expect.stringContaining('You are "greeter".'),
      messages: [{ role: 'user', content: [{ type: 'text', text: '{"who":"Ada"}' }] }],
      tools: [],
      settings: { temperature: 0.7 },
    },
  ]);
  expect(runtime.model.requests[0]!.messages).toHaveLength(1);
});

test('invokeIterative is the loop, and the model is asked once whether everything is done', async () => {
  const runtime = runtimeOf([LOOKER], [{ calls: [{ name: 'look' }] }, 'Seen.', 'Seen, in full.']);
  const result = await runtime.invokeIterative('looker', {}, { runId: 'r' });
  expect(result).toEqual({
    output: { result: 'Seen, in full.' },
    raw_response: 'Seen, in full.',
    tokens_used: 45,
    model: 'scripted',
    iterations: 3,
    tool_calls_made: 1,
    tools_used: ['look'],
    termination_reason: 'completed',
    run_id: 'r',
    waiting: [],
  });
  expect(agentResult(result)).toEqual({
    output: { result: 'Seen, in full.' },
    raw_response: 'Seen, in full.',
    tokens_used: 45,
    model: 'scripted',
  });
});

test('without tools it is a single call, and asks for no confirmation', async () => {
  const runtime = runtimeOf([{ ...LOOKER, tools: [] }], ['Hello.']);
  expect(await runtime.invokeIterative('looker', {})).toMatchObject({ iterations: 1, termination_reason: 'completed' });
});

test('without double confirmation the first text is the answer', async () => {
  const runtime = runtimeOf([LOOKER], ['Hello.']);
  const result = await runtime.invokeIterative('looker', {}, { enable_double_confirmation: false });
  expect(result.iterations).toBe(1);
});

test('__default__ is the agent that is used where none is named', async () => {
  expect(await runtimeOf([LOOKER], ['Hi.', 'Hi.']).invokeIterative('__default__', {})).toMatchObject({ iterations: 2 });
  const none = runtimeOf([{ ...LOOKER, name: 'other' }], []);
  await expect(none.invoke('__default__', {})).rejects.toMatchObject({ code: 'unknown-agent' });
});

test('an unknown agent is an error with the nearest name', async () => {
  await expect(runtimeOf([LOOKER], []).invoke('loker', {})).rejects.toThrow(
    'There is no agent "loker". Did you mean "looker"? The agents are looker.',
  );
});

test('invalid inputs are refused before the model is called', async () => {
  const runtime = runtimeOf([{ ...LOOKER, inputs: { n: { type: 'integer', required: true } } }], []);
  await expect(runtime.invokeIterative('looker', { m: 1 })).rejects.toMatchObject({
    code: 'invalid-input',
    message: expect.stringContaining('n: It is missing'),
    cause: [{ input: 'm' }, { input: 'n' }],
  });
  expect(runtime.model.requests).toEqual([]);
});

describe('max_retries', () => {
  const retrying = { ...LOOKER, constraints: { max_retries: 2 } };

  test('repeats model calls that failed, and no others', async () => {
    const runtime = runtimeOf([retrying], [failing(true), failing(true), 'Hello.']);
    expect(await runtime.invoke('looker', {})).toMatchObject({ raw_response: 'Hello.' });
  });

  test.each([
    ['are used up', [failing(true), failing(true), failing(true)]],
    ['would not help', [failing(false, 'auth')]],
  ])('fails when they %s', async (_, script) => {
    const runtime = runtimeOf([retrying], script);
    await expect(runtime.invoke('looker', {})).rejects.toMatchObject({ name: 'RunError' });
    runtime.model.assertDone();
  });

  test('does not repeat the task', async () => {
    const runtime = runtimeOf([retrying], ['I cannot do that.']);
    expect(await runtime.invoke('looker', {})).toMatchObject({ raw_response: 'I cannot do that.' });
  });

  test('nor a reply of which a part was seen', async () => {
    const runtime = runtimeOf([retrying], []);
    const model = {
      ...runtime.model,
      calls: 0,
      async reply(_: unknown, emit: (delta: { type: 'text-delta'; text: string }) => unknown): Promise<ModelReply> {
        this.calls++;
        emit({ type: 'text-delta', text: 'Hel' });
        return failing(true);
      },
    };
    const { invokeIterative } = runtimeOf([retrying], [], { model: () => model });
    expect(await invokeIterative('looker', {})).toMatchObject({ termination_reason: 'error' });
    expect(model.calls).toBe(1);
  });
});

describe('the output', () => {
  const scoring = { ...LOOKER, tools: [], outputs: { score: { type: 'integer', required: true } } };

  test('is validated', async () => {
    const runtime = runtimeOf([scoring], ['```json\n{"score": 3}\n```']);
    expect(await runtime.invoke('looker', {})).toMatchObject({ output: { score: 3 } });
  });

  test.each(['invoke', 'invokeIterative'] as const)(
    'of %s goes back to the model once if it does not match',
    async (way) => {
      const runtime = runtimeOf([scoring], ['Good.', '{"score": 3}']);
      expect(await runtime[way]('looker', {})).toMatchObject({ output: { score: 3 }, raw_response: '{"score": 3}' });
      expect(JSON.stringify(runtime.model.requests[1]!.messages.at(-1))).toContain('score: ');
    },
  );

  test('that does not match twice is an error', async () => {
    const script = ['Good.', '{"score": "good"}'];
    expect(await runtimeOf([scoring], script).invokeIterative('looker', {})).toMatchObject({
      termination_reason: 'error',
      error: { code: 'output-invalid' },
      output: { score: 'good' },
    });
    await expect(runtimeOf([scoring], script).invoke('looker', {})).rejects.toMatchObject({ code: 'output-invalid' });
  });

  test('is checked after the confirmation', async () => {
    const runtime = runtimeOf([{ ...scoring, tools: ['look'] }], ['{"score": 1}', '{"score": "x"}', '{"score": 2}']);
    expect(await runtime.invokeIterative('looker', {})).toMatchObject({ output: { score: 2 }, iterations: 3 });
  });

  test('of a text is the value of the first output, if that fits', async () => {
    const summing = { ...LOOKER, tools: [], outputs: { summary: { type: 'string', required: true } } };
    expect(await runtimeOf([summing], ['All is well.']).invoke('looker', {})).toMatchObject({
      output: { summary: 'All is well.' },
    });
  });
});

describe('how it ended', () => {
  const call = { calls: [{ name: 'look', arguments: '{}' }] };
  const other = (n: number): ScriptStep => ({ calls: [{ name: 'look', arguments: { n } }] });

  test.each<[string, object, readonly ScriptStep[], object]>([
    ['max_iterations', { max_iterations: 2 }, [other(1), other(2)], {}],
    ['error', { error_threshold: 1 }, [{ calls: [{ name: 'none' }] }], {}],
    ['error', { loop_detection_threshold: 1 }, [call, call, call], {}],
    ['error', {}, [failing(false, 'auth')], {}],
    ['budget_exceeded', {}, [call], { bounds: { limits: { tokens: 1 } } }],
    ['cancelled', { signal: AbortSignal.abort() }, [], {}],
  ])('%s: %j', async (reason, options, script, host) => {
    const result = await runtimeOf([LOOKER], script, host).invokeIterative('looker', {}, options);
    expect(result).toMatchObject({ termination_reason: reason, error: { message: expect.any(String) } });
  });

  test('case 5: budget_exceeded, when the autonomy level or a budget allows no more', async () => {
    const calls = (n: number): ScriptStep => ({ calls: [1, 2].map((m) => ({ name: 'look', arguments: { n, m } })) });
    const reading = { ...LOOKER, autonomy_level: 'read-only' };
    const leveled = { policy: policy({ autonomy: 3, rate: { second: 1_000, minute: 1_000 } }) };
    const turns = await runtimeOf([reading], [1, 2, 3, 4, 5].map(other), leveled).invokeIterative('looker', {});
    expect(turns).toMatchObject({ termination_reason: 'budget_exceeded', iterations: 5 });
    const spent = await runtimeOf([reading], [1, 2, 3, 4, 5].map(calls), leveled).invokeIterative('looker', {});
    expect(spent).toMatchObject({ termination_reason: 'budget_exceeded', tool_calls_made: 10 });
    const own = await runtimeOf([reading], [1, 2].map(other), leveled).invokeIterative(
      'looker',
      {},
      { max_iterations: 2 },
    );
    expect(own).toMatchObject({ termination_reason: 'max_iterations', iterations: 2 });
    const ledger = memoryBudgets({ all: { calls: 1 } }).ledger(['all']);
    const budgeted = runtimeOf([LOOKER], [calls(1), calls(2)], { environment: { ledger } });
    expect(await budgeted.invokeIterative('looker', {})).toMatchObject({ termination_reason: 'budget_exceeded' });
  });

  test('duration_exceeded', async () => {
    const clock = manualClock();
    const slow = async (): Promise<string> => (await clock.advance(5_000), 'late');
    const runtime = runtimeOf([{ ...LOOKER, constraints: { timeout_seconds: 1 } }], [slow], { environment: { clock } });
    expect(await runtime.invokeIterative('looker', {})).toMatchObject({ termination_reason: 'duration_exceeded' });
  });
});

test('a run that waits has no reason, and is resumed by the definition that it was started with', async () => {
  const journal = memoryJournal();
  const acting = { ...LOOKER, tools: ['act'], outputs: { done: { type: 'string' } } };
  const first = runtimeOf([acting], [{ calls: [{ name: 'act' }] }], { environment: { journal } });
  const paused = await first.invokeIterative('looker', {}, { runId: 'r' });
  expect(paused).toMatchObject({ run_id: 'r', waiting: [{ type: 'approval' }] });
  expect(paused.termination_reason).toBeUndefined();
  const changed = { ...LOOKER, tools: ['look'], outputs: { other: { type: 'string' } } };
  const second = runtimeOf([changed], ['Acted.', 'Acted.'], { environment: { journal } });
  const [waiting] = paused.waiting;
  const answers = [approve(waiting!)];
  expect(await second.resume('r', { answers })).toMatchObject({
    output: { done: 'Acted.' },
    tools_used: ['act'],
    termination_reason: 'completed',
  });
  await expect(second.resume('none', {})).rejects.toMatchObject({ code: 'unknown-run' });
});
