import { executeAgent, runLoop, streamAgent, TreadleError, type Item, type Policy } from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { look, reflecting, resultsIn, summing } from './agents.ts';
import { calling, callingAll, checkHistories, fail, recorder, succeed } from './run.ts';

const input = '1, 2';
const script = [calling('look', { at: 'a' }), { text: 'Here it is', ...calling('answer', { total: 3 }) }];
const agent = summing({ helpers: [look] });

describe('streamAgent', () => {
  test('returns the same result as executeAgent and yields the items of the run', async () => {
    const clock = manualClock();
    const { result } = await succeed(agent, script, { input, runId: 'r', clock });
    const model = scriptedModel(script);
    const received: Item[] = [];
    const live = streamAgent(agent, { input, runId: 'r', clock, model, onItem: (item) => received.push(item) });
    const items: Item[] = [];
    for await (const item of live) items.push(item);
    expect(live.runId).toBe('r');
    expect(await live.result).toEqual(result);
    expect(received).toEqual(items);
    expect(items.map((item) => (item.type === 'fact' ? item.event.type : item.type))).toEqual([
      'run-started',
      'turn-started',
      'call-delta',
      'model-replied',
      'call-started',
      'tool-settled',
      'call-answered',
      'turn-started',
      'text-delta',
      'text-delta',
      'text-delta',
      'call-delta',
      'model-replied',
      'call-started',
      'output-checked',
      'call-answered',
    ]);
    expect(items.filter(({ type }) => type === 'turn-started')).toEqual([
      { type: 'turn-started', turn: 1, attempt: 1 },
      { type: 'turn-started', turn: 2, attempt: 1 },
    ]);
    await checkHistories(model.requests, result);
  });

  test('ignores errors thrown by onItem', async () => {
    const onItem = (): never => {
      throw new Error('no');
    };
    const { result } = await succeed(agent, script, { input, onItem });
    expect(result.metadata.callbackErrors).toEqual([]);
  });

  test('reports a failed prompt in the result', async () => {
    const live = streamAgent(summing({ prompts: { user: () => Promise.reject(new Error('no')) } }), {
      input,
      model: scriptedModel([]),
    });
    const items: Item[] = [];
    for await (const item of live) items.push(item);
    expect(items).toEqual([]);
    expect(await live.result).toMatchObject({ type: 'failure', error: { code: 'PROMPT_FAILED' } });
  });
});

describe('policies', () => {
  const asking: Policy = { judge: (calls) => calls.map(() => ({ type: 'ask' })) };

  test('a call that needs approval pauses the run, and answers resume it', async () => {
    const journal = memoryJournal();
    const clock = manualClock();
    const options = { input, journal, runId: 'r', clock, policy: asking };
    const { error, result: paused, log } = await fail(agent, script.slice(0, 1), options);
    if (error.code !== 'EXECUTION_PAUSED') expect.fail(error.code);
    expect(log.map(([name]) => name)).toEqual(['onAttemptStart', 'onAttemptComplete', 'onFailure']);
    expect(error.context).toMatchObject({
      attempt: 1,
      iteration: 1,
      waiting: [{ type: 'approval', call: { name: 'look' } }],
    });
    expect(paused.metadata).toMatchObject({ attempts: 1, iterations: 1, tokens: { input: 10, output: 5 } });

    const [wait] = error.context.waiting;
    if (wait?.type !== 'approval') expect.fail('not waiting for an approval');
    const { effect, digest } = wait;
    const model = scriptedModel(script.slice(1));
    const { callbacks, log: later } = recorder<{ total: number }>();
    const result = await executeAgent(agent, {
      ...options,
      model,
      callbacks,
      answers: [{ type: 'approval', effect, digest, approved: true }],
    });
    expect(result).toMatchObject({ type: 'success', output: { total: 3 }, metadata: { attempts: 1, iterations: 2 } });
    expect(resultsIn(result.messages)).toEqual([['look: seen a'], ['answer: Accepted.']]);
    expect(later).toEqual([
      ['onToolCall', '1/2 1/15', 'look', { at: 'a' }],
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onAttemptComplete', '1/2 2/15', 'accepted'],
      ['onSuccess', '1/2 2/15', { total: 3 }],
    ]);
    await checkHistories(model.requests, result);
  });

  test('a denied call gets an error result, and the execution continues', async () => {
    const denying: Policy = { judge: (calls) => calls.map(() => ({ type: 'deny', reason: 'not today' })) };
    const { result } = await succeed(agent, script, { input, policy: denying });
    expect(resultsIn(result.messages)[0]).toEqual(['look!: The call of "look" was denied: not today']);
  });

  test('the call that ends an attempt is not judged', async () => {
    const judged: string[] = [];
    const policy: Policy = {
      judge: (calls) => calls.map(({ name }) => (judged.push(name), { type: 'allow' })),
    };
    await succeed(reflecting(), [callingAll(['answer', { total: 3 }], ['submit'])], { input, policy });
    await succeed(summing(), [calling('answer', { total: 3 })], { input, policy });
    expect(judged).toEqual(['answer']);
  });
});

describe('rejects misuse', () => {
  const journal = memoryJournal();

  test('a runId of a run with another input, of another agent, or of runLoop', async () => {
    await succeed(agent, script, { input, journal, runId: 'r' });
    const again = { input, journal, runId: 'r', model: scriptedModel([]) };
    await expect(executeAgent(agent, { ...again, input: 'other' })).rejects.toThrow(
      new TreadleError(
        'run-exists',
        'There is already a run "r" that was started with another input. Give another runId.',
      ),
    );
    await expect(executeAgent(reflecting(), again)).rejects.toThrow(
      new TreadleError('run-exists', 'There is already a run "r" of the agent "summing". Give another runId.'),
    );
    await runLoop({ model: scriptedModel(['Done']), input: 'Go', journal, runId: 'plain' });
    await expect(executeAgent(agent, { ...again, runId: 'plain' })).rejects.toThrow(
      new TreadleError(
        'run-exists',
        'There is already a run "plain" that is not a run of an agent. Give another runId.',
      ),
    );
  });

  test('an ended run whose output the schema now rejects', async () => {
    const changed = summing({ helpers: [look], validation: { outputSchema: { type: 'object', required: ['sum'] } } });
    await expect(executeAgent(changed, { input, journal, runId: 'r', model: scriptedModel([]) })).rejects.toThrow(
      'Run "r" ended with an output that the schema of the agent now rejects. Give the agent that it was executed with.',
    );
  });

  test('a missing model', async () => {
    await expect(executeAgent(agent, { input, model: 'gpt' as never })).rejects.toThrow(
      'The model is the text "gpt". Pass a model, such as openaiChat({ model: "gpt" }) of @treadle/models.',
    );
  });
});

test('merges the settings of the execution over those of the agent', async () => {
  const { requests } = await succeed(summing({ settings: { temperature: 1 } }), [calling('answer', { total: 3 })], {
    input,
    settings: { maxOutputTokens: 5 },
    principal: { subject: 'me', tenant: 't', scopes: [] },
  });
  expect(requests[0]).toMatchObject({
    instructions: 'You add up.',
    settings: { temperature: 1, maxOutputTokens: 5 },
    parallel: true,
    toolChoice: 'required',
  });
});

test('accepts an input that has no JSON form', async () => {
  const round: { self?: unknown } = {};
  round.self = round;
  const { result } = await succeed(summing(), [calling('answer', { total: 3 })], { input: round as unknown as string });
  expect(result.output).toEqual({ total: 3 });
});

test.each([
  ['a missing agent', [undefined, { input: '1' }], 'The agent is missing. Give one that defineAgent returned.'],
  ['missing options', [summing()], 'The options are missing. Give { input }.'],
  ['a signal that is not an AbortSignal', [summing(), { input: '1', signal: {} }], 'The signal is not an AbortSignal.'],
])('rejects %s', async (_, args, message) => {
  await expect(executeAgent(...(args as Parameters<typeof executeAgent>))).rejects.toThrow(message);
  expect(() => streamAgent(...(args as Parameters<typeof streamAgent>))).toThrow(message);
});
