import { describe, expect, test } from 'vitest';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import type { GuardedContent, Guardrail, LoopOptions, StartedRun } from './options.ts';
import { runLoop, startLoop } from './run.ts';

const pass: Guardrail = () => ({ type: 'pass' });
const stop =
  (reason: string): Guardrail =>
  async () => ({ type: 'stop', reason });
const failed = (message: string) => ({ type: 'failed', error: { code: 'guardrail', message } });

test('a guardrail stops a run before the model is called', async () => {
  const model = scriptedModel(['never']);
  const guardrails = { input: [pass, stop('first'), stop('second')] };
  const result = await runLoop({ model, input: 'go', guardrails });
  expect(result.outcome).toEqual(failed('first'));
  expect(model.requests).toEqual([]);
  expect(result.turns).toBe(0);
});

test('a guardrail stops an answer', async () => {
  const result = await runLoop({ model: scriptedModel(['no']), input: 'go', guardrails: { output: [stop('bad')] } });
  expect(result).toMatchObject({ outcome: failed('bad'), text: 'no', turns: 1 });
});

test('a guardrail may return true, false or the reason to stop', async () => {
  const run = (...output: readonly Guardrail[]) =>
    runLoop({ model: scriptedModel(['The key is 1.']), input: 'go', guardrails: { output } });
  const noKeys: Guardrail = ({ text }) => !text.includes('key') || 'It contains a key.';
  expect((await run(() => true)).outcome).toEqual({ type: 'completed' });
  expect((await run(() => true, noKeys)).outcome).toEqual(failed('It contains a key.'));
  expect((await run(async () => false)).outcome).toEqual(failed('A guardrail stopped the run.'));
  expect((await run((() => undefined) as never)).outcome).toEqual(failed('A guardrail returned no verdict.'));
});

test('guardrails that let everything pass change nothing', async () => {
  const look = tool({ name: 'look', description: 'look', execute: () => 'saw' });
  const script = [{ calls: [{ name: 'look' }] }, 'done'];
  const options = { tools: [look], input: 'go' };
  const plain = await runLoop({ ...options, model: scriptedModel(script), runId: 'r' });
  const guardrails = { input: [pass], output: [pass, pass] };
  const guarded = await runLoop({ ...options, model: scriptedModel(script), runId: 'r', guardrails });
  expect({ ...guarded, durationMs: 0 }).toEqual({ ...plain, durationMs: 0 });
});

test('a guardrail gets the conversation, its last text, the validated output, and what tools get', async () => {
  const seen: GuardedContent[] = [];
  const look: Guardrail = (content) => {
    seen.push(content);
    return { type: 'pass' };
  };
  const principal = { subject: 'ann', tenant: 't', scopes: [] };
  await runLoop({
    model: scriptedModel(['{"a":1}']),
    input: 'go',
    output: { type: 'object' },
    guardrails: { input: [look], output: [look] },
    runId: 'r',
    context: 7,
    principal,
  });
  expect(seen).toMatchObject([
    { runId: 'r', text: 'go', messages: [{ role: 'user' }], context: 7, principal },
    { runId: 'r', text: '{"a":1}', output: { a: 1 }, messages: [{ role: 'user' }, { role: 'assistant' }] },
  ]);
  expect(seen[0]).not.toHaveProperty('output');
});

test('a stopped answer is not the output of the run', async () => {
  const guardrails = { output: [stop('bad')] };
  const options = { model: scriptedModel(['{}']), input: 'go', output: { type: 'object' }, guardrails };
  expect(await runLoop(options)).not.toHaveProperty('output');
});

test.each<[string, unknown, string]>([
  [
    'throws',
    () => {
      throw new Error('broken');
    },
    'A guardrail failed: broken',
  ],
  ['rejects', () => Promise.reject(new Error('broken')), 'A guardrail failed: broken'],
  ['returns nothing', () => {}, 'A guardrail returned no verdict.'],
  ['returns something else', () => ({ type: 'maybe' }), 'A guardrail returned no verdict.'],
  ['stops without a reason', () => ({ type: 'stop' }), 'A guardrail stopped the run.'],
])('a guardrail that %s stops the run', async (_, guardrail, message) => {
  const guardrails = { output: [pass, guardrail as Guardrail] };
  const { outcome } = await runLoop({ model: scriptedModel(['done']), input: 'go', guardrails });
  expect(outcome).toEqual(failed(message));
});

test('the answer of a closing turn is checked', async () => {
  const look = tool({ name: 'look', description: 'look', execute: () => 'saw' });
  const options: LoopOptions = {
    model: scriptedModel([{ calls: [{ name: 'look' }] }, 'so far']),
    tools: [look],
    maxTurns: 1,
    closingTurn: true,
    input: 'go',
  };
  expect((await runLoop({ ...options, guardrails: { output: [stop('bad')] } })).outcome).toEqual(failed('bad'));
  const model = scriptedModel([{ calls: [{ name: 'look' }] }, 'so far']);
  const { outcome } = await runLoop({ ...options, model, guardrails: { output: [pass] } });
  expect(outcome).toEqual({ type: 'exhausted', limit: 'turns' });
});

test('a cancel aborts a guardrail that does not return', async () => {
  let signal: AbortSignal | undefined;
  const endless: Guardrail = (content) => {
    ({ signal } = content);
    queueMicrotask(() => live.cancel());
    return new Promise(() => {});
  };
  const live = startLoop({ model: scriptedModel(['done']), input: 'go', guardrails: { input: [endless] } });
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'validation' });
  expect(signal!.aborted).toBe(true);
});

test('an answer whose check was cancelled is not the output of the run', async () => {
  const endless: Guardrail = () => {
    queueMicrotask(() => live.cancel());
    return new Promise(() => {});
  };
  const guardrails = { output: [endless] };
  const live = startLoop({ model: scriptedModel(['{}']), input: 'go', output: { type: 'object' }, guardrails });
  const result = await live.result;
  expect(result.outcome).toEqual({ type: 'cancelled', phase: 'validation' });
  expect(result).not.toHaveProperty('output');
});

describe('with a journal', () => {
  const ask = tool({ name: 'ask', description: 'ask' });

  test('a recorded verdict is not asked for again', async () => {
    const journal = memoryJournal();
    const asked: string[] = [];
    const guardrail =
      (name: string): Guardrail =>
      () => {
        asked.push(name);
        return { type: 'pass' };
      };
    const guardrails = { input: [guardrail('input')], output: [guardrail('output')] };
    const shared = { journal, runId: 'r', tools: [ask], guardrails };
    const model = scriptedModel([{ calls: [{ name: 'ask' }] }]);
    const { waiting } = await runLoop({ ...shared, model, input: 'go' });
    const answers = waiting.map(({ effect }) => ({ type: 'result' as const, effect, content: 'yes' }));
    const { outcome } = await runLoop({ ...shared, model: scriptedModel(['done']), answers });
    expect(outcome).toEqual({ type: 'completed' });
    expect(asked).toEqual(['input', 'output']);
    expect(replay(await journal.read('r')).type).toBe('replayed');
    await runLoop({ ...shared, model: scriptedModel([]) });
    expect(asked).toHaveLength(2);
  });

  test('a run that was started with guardrails cannot be resumed without them', async () => {
    const journal = memoryJournal();
    const model = scriptedModel([{ calls: [{ name: 'ask' }] }]);
    const shared = { journal, runId: 'r', tools: [ask], model };
    await runLoop({ ...shared, input: 'go', guardrails: { output: [pass] } });
    await expect(runLoop(shared)).rejects.toThrow('was started with guardrails for its output');
    await expect(runLoop({ ...shared, guardrails: { input: [pass] } })).rejects.toThrow('guardrails for its output');
  });
});

test('rejects guardrails that are not lists of functions', async () => {
  const options = { model: scriptedModel(['done']), input: 'go' };
  for (const guardrails of [
    { input: ['x'] },
    { outputs: [pass] },
    { input: 'x' },
    { input: () => ({ type: 'stop' }) },
  ]) {
    await expect(runLoop({ ...options, guardrails: guardrails as never })).rejects.toThrow('"guardrails" has');
  }
  expect((await runLoop({ ...options, guardrails: { input: [] } })).outcome).toEqual({ type: 'completed' });
});

test('input that arrives while an answer is checked is answered too', async () => {
  const model = scriptedModel(['one', 'two']);
  const checked: string[] = [];
  const live: StartedRun = startLoop({
    model,
    input: 'go',
    guardrails: {
      output: [
        async ({ text }) => {
          if (checked.push(text) === 1) await live.send('and more');
          return { type: 'pass' };
        },
      ],
    },
  });
  const { text, outcome, turns } = await live.result;
  expect([text, outcome, turns, checked]).toEqual(['two', { type: 'completed' }, 2, ['one', 'two']]);
});
