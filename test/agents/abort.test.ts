import { executeAgent, streamAgent, type AgentError, type ExecuteFailure, type Policy } from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { even, look, reflecting, resultsIn, rolesIn, summing, type Total } from './agents.ts';
import { calling, callingAll, checkHistories, fail, succeed } from './run.ts';

const input = '1, 2';

type Cancelled = Extract<AgentError, { code: 'EXECUTION_CANCELLED' }>;

function cancelled(context: Cancelled['context']): Cancelled {
  return { code: 'EXECUTION_CANCELLED', message: 'The execution was cancelled.', context };
}

/** Waits for nothing that ever comes. */
const forever = (): Promise<never> => new Promise(() => {});

describe('before anything', () => {
  test('nothing is built, asked or started', async () => {
    const { result, told } = await fail(summing({ prompts: { user: () => expect.fail('built') } }), [], {
      input,
      signal: AbortSignal.abort(),
    });
    expect(result).toEqual({
      type: 'failure',
      error: cancelled({ attempt: 1, iteration: 0, phase: 'prompt' }),
      metadata: {
        runId: result.metadata.runId,
        attempts: 0,
        iterations: 0,
        tokens: { input: 0, output: 0 },
        cost: 0,
        latencyMs: 0,
        tools: {},
        callbackErrors: [],
      },
      messages: [],
    } satisfies ExecuteFailure);
    expect(told).toEqual([['onFailure', '1/2 0/15', result.error]]);
  });

  test('the journal has no run of it, so it can be started later', async () => {
    const journal = memoryJournal();
    await fail(summing(), [], { input, journal, runId: 'r', signal: AbortSignal.abort() });
    expect(await journal.read('r')).toEqual([]);
    const { result } = await succeed(summing(), [calling('answer', { total: 3 })], { input, journal, runId: 'r' });
    expect(result.output).toEqual({ total: 3 });
  });
});

describe('while a prompt is being built', () => {
  test.for(['system', 'user'] as const)('%s', async (which) => {
    const controller = new AbortController();
    const slow = (): Promise<never> => {
      controller.abort();
      return forever();
    };
    const { error, told } = await fail(summing({ prompts: { user: 'Go', [which]: slow } }), [], {
      input,
      signal: controller.signal,
    });
    expect(error).toEqual(cancelled({ attempt: 1, iteration: 0, phase: 'prompt' }));
    expect(told).toEqual([['onFailure', '1/2 0/15', error]]);
  });

  test('one that fails because of it is a cancellation too', async () => {
    const controller = new AbortController();
    const user = (): never => {
      controller.abort();
      throw new Error('aborted');
    };
    const { error } = await fail(summing({ prompts: { user } }), [], { input, signal: controller.signal });
    expect(error.code).toBe('EXECUTION_CANCELLED');
  });
});

describe('while the model call is in flight', () => {
  const failure = { type: 'failure', error: { code: 'cancelled', message: 'Aborted', retryable: false } } as const;
  const untilAborted = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  const ways: readonly (readonly [string, (inner: AbortSignal, outer: AbortSignal) => Promise<ScriptStep>])[] = [
    ['never answers', forever],
    ['answers all the same', (inner) => untilAborted(inner).then(() => calling('answer', { total: 3 }))],
    ['answers with the failure "cancelled"', (inner) => untilAborted(inner).then(() => failure)],
    [
      'knows the signal itself and answers with the failure "cancelled"',
      (_, outer) => untilAborted(outer).then(() => failure),
    ],
    [
      'rejects with AbortError',
      (inner) =>
        untilAborted(inner).then(() => {
          throw new DOMException('This operation was aborted', 'AbortError');
        }),
    ],
  ];

  test.for(ways)('a model that %s: a cancellation, not an API error', async ([, answer]) => {
    const controller = new AbortController();
    const { result, told } = await fail(
      summing({ helpers: [look] }),
      [
        calling('look', { at: 'a' }),
        (_, signal) => {
          queueMicrotask(() => controller.abort());
          return answer(signal, controller.signal);
        },
      ],
      { input, signal: controller.signal, clock: manualClock() },
    );
    expect(result.error).toEqual(cancelled({ attempt: 1, iteration: 2, phase: 'iteration', during: 'model' }));
    expect(result.metadata).toEqual({
      runId: result.metadata.runId,
      attempts: 1,
      iterations: 2,
      tokens: { input: 10, output: 5 },
      cost: 0,
      latencyMs: 0,
      tools: { look: { calls: 1, errors: 0 } },
      callbackErrors: [],
    });
    expect(told.map(([name, at]) => `${name} ${at}`)).toEqual([
      'onAttemptStart 1/2 1/15',
      'onToolCall 1/2 1/15',
      'onToolResult 1/2 1/15',
      'onAttemptComplete 1/2 2/15',
      'onFailure 1/2 2/15',
    ]);
    expect(rolesIn(result.messages)).toEqual(['user', 'assistant', 'tool']);
  });

  test('a model that hears of it before the run does', async () => {
    // Where a signal is aborted from outside JavaScript, promises go on between its listeners.
    const { signal } = new AbortController();
    let aborted = false;
    Object.defineProperty(signal, 'aborted', { get: () => aborted });
    const { error } = await fail(summing(), [() => ((aborted = true), failure)], { input, signal });
    expect(error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'model' }));
  });

  test('that failure without a cancellation is an API error', async () => {
    const { error } = await fail(summing(), [failure], { input });
    expect(error).toEqual({
      code: 'API_ERROR',
      message: 'Aborted',
      context: { attempt: 1, iteration: 1, code: 'cancelled' },
    });
  });

  test('a model that rejects without a cancellation is one too', async () => {
    const rejecting = (): never => {
      throw new DOMException('This operation was aborted', 'AbortError');
    };
    const { error } = await fail(summing(), [rejecting], { input });
    expect(error).toMatchObject({ code: 'API_ERROR', context: { code: 'protocol' } });
  });
});

describe('while a helper runs', () => {
  const behaviours: readonly (readonly [string, (signal: AbortSignal) => Promise<unknown>])[] = [
    ['ignores the signal', forever],
    [
      'heeds the signal',
      (signal) =>
        new Promise((_, reject) =>
          signal.addEventListener('abort', () => reject(new Error('stopped')), { once: true }),
        ),
    ],
  ];

  test.for(behaviours)('one that %s: its call is answered, as are those that had not begun', async ([, behave]) => {
    const controller = new AbortController();
    const slow = {
      definition: { name: 'slow', description: 'Takes its time' },
      handler: (_: unknown, { signal }: { signal: AbortSignal }) => {
        setImmediate(() => controller.abort());
        return behave(signal);
      },
    };
    const { result, told } = await fail(
      summing({ helpers: [look, slow], parallel: false }),
      [callingAll(['look', { at: 'a' }], ['slow'], ['look', { at: 'b' }], ['answer', { total: 3 }])],
      { input, signal: controller.signal },
    );
    expect(result.error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'tool' }));
    const words = 'Not finished: the run was cancelled.';
    expect(resultsIn(result.messages)).toEqual([
      ['look: seen a', `slow!: ${words}`, `look!: ${words}`, `answer!: ${words}`],
    ]);
    expect(result.metadata.tools).toEqual({
      look: { calls: 2, errors: 1 },
      slow: { calls: 1, errors: 1 },
      answer: { calls: 1, errors: 0 },
    });
    expect(told).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onToolCall', '1/2 1/15', 'look', { at: 'a' }],
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onToolCall', '1/2 1/15', 'slow', {}],
      ['onToolResult', '1/2 1/15', 'slow', words],
      ['onToolCall', '1/2 1/15', 'look', { at: 'b' }],
      ['onToolResult', '1/2 1/15', 'look', words],
      ['onAttemptComplete', '1/2 1/15', 'stopped'],
      ['onFailure', '1/2 1/15', result.error],
    ]);
  });

  test('the handler is told', async () => {
    const controller = new AbortController();
    let told: AbortSignal | undefined;
    const slow = {
      definition: { name: 'slow', description: 'Takes its time' },
      handler: (_: unknown, { signal }: { signal: AbortSignal }) => {
        told = signal;
        setImmediate(() => controller.abort());
        return forever();
      },
    };
    await fail(summing({ helpers: [slow] }), [calling('slow')], { input, signal: controller.signal });
    expect(told?.aborted).toBe(true);
  });

  test('what it wrote into the state is not kept', async () => {
    const controller = new AbortController();
    const journal = memoryJournal();
    const slow = {
      definition: { name: 'slow', description: 'Takes its time' },
      handler: (_: unknown, { state }: { state: { run: { n: number } } }) => {
        state.run.n = 9;
        setImmediate(() => controller.abort());
        return forever();
      },
    };
    await fail(summing<{ n: number }>({ helpers: [slow], state: { run: { n: 1 } } }), [calling('slow')], {
      input,
      journal,
      runId: 'r',
      signal: controller.signal,
    });
    expect(JSON.stringify(await journal.read('r'))).not.toContain('"n":9');
  });
});

test('while a policy judges', async () => {
  const controller = new AbortController();
  const policy: Policy = {
    judge: () => {
      setImmediate(() => controller.abort());
      return forever();
    },
  };
  const { error } = await fail(summing({ helpers: [look] }), [calling('look', { at: 'a' })], {
    input,
    policy,
    signal: controller.signal,
  });
  expect(error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'tool' }));
});

test('while the reflection runs', async () => {
  const controller = new AbortController();
  let told: AbortSignal | undefined;
  const agent = reflecting();
  const { result, told: callbacks } = await fail(
    {
      ...agent,
      tools: {
        output: {
          name: 'answer',
          description: 'Answers',
          reflectionHandler: (_: Total, { signal }) => {
            told = signal;
            setImmediate(() => controller.abort());
            return forever();
          },
        },
      },
    },
    [callingAll(['answer', { total: 3 }], ['submit'])],
    { input, signal: controller.signal },
  );
  expect(result.error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'tool' }));
  expect(told?.aborted).toBe(true);
  const words = 'Not finished: the run was cancelled.';
  expect(resultsIn(result.messages)).toEqual([[`answer!: ${words}`, `submit!: ${words}`]]);
  expect(callbacks.map(([name, , what]) => [name, what])).toEqual([
    ['onAttemptStart', undefined],
    ['onToolCall', 'answer'],
    ['onToolResult', 'answer'],
    ['onToolCall', 'submit'],
    ['onToolResult', 'submit'],
    ['onAttemptComplete', 'stopped'],
    ['onFailure', result.error],
  ]);
});

describe('while the output is validated', () => {
  const inValidation = cancelled({ attempt: 1, iteration: 1, phase: 'validation' });
  const words = 'Not finished: the run was cancelled.';

  test('by a custom validator, which is told', async () => {
    const controller = new AbortController();
    let told: AbortSignal | undefined;
    const slow = {
      name: 'slow',
      validate: (_: Total, { signal }: { signal: AbortSignal }) => {
        told = signal;
        setImmediate(() => controller.abort());
        return forever();
      },
    };
    const { result, told: callbacks } = await fail(
      summing({ helpers: [look], validation: { customValidators: [slow] } }),
      [callingAll(['look', { at: 'a' }], ['answer', { total: 3 }])],
      { input, signal: controller.signal },
    );
    expect(result.error).toEqual(inValidation);
    expect(told?.aborted).toBe(true);
    expect(resultsIn(result.messages)).toEqual([['look: seen a', `answer!: ${words}`]]);
    expect(callbacks.slice(-2)).toEqual([
      ['onAttemptComplete', '1/2 1/15', 'stopped'],
      ['onFailure', '1/2 1/15', inValidation],
    ]);
    expect(result.metadata).toMatchObject({ attempts: 1, iterations: 1, tokens: { input: 10, output: 5 } });
  });

  test.for([
    ['refuses', 'stopped'],
    ['accepts', undefined],
  ] as const)(
    'by one that heeds the signal and %s: that counts no more, and nobody else is asked',
    async ([, verdict]) => {
      const controller = new AbortController();
      const asked: string[] = [];
      const heeding = {
        name: 'heeding',
        validate: (_: Total, { signal }: { signal: AbortSignal }) => {
          setImmediate(() => controller.abort());
          return new Promise<typeof verdict>((resolve) => signal.addEventListener('abort', () => resolve(verdict)));
        },
      };
      const next = { name: 'next', validate: () => void asked.push('next') };
      const prompts = { user: 'Go', error: () => (asked.push('error'), 'Again') };
      const { error, told } = await fail(
        summing({ prompts, validation: { customValidators: [heeding, next] } }),
        [calling('answer', { total: 3 })],
        { input, signal: controller.signal },
      );
      await new Promise(setImmediate);
      expect(error).toEqual(inValidation);
      expect(asked).toEqual([]);
      expect(told.map(([name]) => name)).toEqual(['onAttemptStart', 'onAttemptComplete', 'onFailure']);
    },
  );

  test('by a schema that takes its time', async () => {
    const controller = new AbortController();
    const outputSchema = z.object({
      total: z.number().refine(async () => (setImmediate(() => controller.abort()), forever())),
    });
    const { error } = await fail(summing({ validation: { outputSchema } }), [calling('answer', { total: 3 })], {
      input,
      signal: controller.signal,
    });
    expect(error).toEqual(inValidation);
  });

  test('while the error prompt is being built', async () => {
    const controller = new AbortController();
    const slow = (): Promise<never> => {
      setImmediate(() => controller.abort());
      return forever();
    };
    const { result } = await fail(
      reflecting({ prompts: { user: 'Go', error: slow }, validation: { customValidators: [even] } }),
      [callingAll(['answer', { total: 3 }], ['submit'])],
      { input, signal: controller.signal },
    );
    expect(result.error).toEqual(inValidation);
    expect(resultsIn(result.messages)).toEqual([['answer: The total would be 3.', `submit!: ${words}`]]);
  });
});

describe('between turns', () => {
  test('the model is not asked again', async () => {
    const controller = new AbortController();
    const { result, requests } = await fail(summing({ helpers: [look] }), [calling('look', { at: 'a' })], {
      input,
      signal: controller.signal,
      callbacks: { onToolResult: () => controller.abort() },
    });
    expect(requests).toHaveLength(1);
    expect(result.error).toEqual(cancelled({ attempt: 1, iteration: 2, phase: 'iteration', during: 'model' }));
    expect(rolesIn(result.messages)).toEqual(['user', 'assistant', 'tool']);
  });

  test('between attempts', async () => {
    const controller = new AbortController();
    const { result, requests, told } = await fail(
      summing({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 })],
      { input, signal: controller.signal, callbacks: { onValidationFailure: () => controller.abort() } },
    );
    expect(requests).toHaveLength(1);
    expect(result.error).toEqual(cancelled({ attempt: 2, iteration: 1, phase: 'iteration', during: 'model' }));
    expect(rolesIn(result.messages)).toEqual(['user', 'assistant', 'tool', 'user']);
    expect(told.map(([name, at, how]) => [name, at, typeof how === 'string' ? how : ''])).toEqual([
      ['onAttemptStart', '1/2 1/15', ''],
      ['onValidationFailure', '1/2 1/15', ''],
      ['onAttemptComplete', '1/2 1/15', 'rejected'],
      ['onAttemptStart', '2/2 1/15', ''],
      ['onAttemptComplete', '2/2 1/15', 'stopped'],
      ['onFailure', '2/2 1/15', ''],
    ]);
  });

  test('as the first attempt starts', async () => {
    const controller = new AbortController();
    const { error, requests } = await fail(summing(), [], {
      input,
      signal: controller.signal,
      callbacks: { onAttemptStart: () => controller.abort() },
    });
    expect(requests).toEqual([]);
    expect(error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'model' }));
  });
});

test('too late to change anything: a success stays one', async () => {
  const controller = new AbortController();
  const { result } = await succeed(
    summing({ projectFinalState: () => controller.abort() }),
    [calling('answer', { total: 3 })],
    { input, signal: controller.signal, callbacks: { onAttemptComplete: () => controller.abort() } },
  );
  expect(result.output).toEqual({ total: 3 });
});

describe('streamAgent', () => {
  test('cancel() cancels', async () => {
    const model = scriptedModel([
      () => {
        setImmediate(() => live.cancel());
        return forever();
      },
    ]);
    const live = streamAgent(summing(), { input, model });
    const result = await live.result;
    expect(result).toMatchObject({
      type: 'failure',
      error: cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'model' }),
    });
    await checkHistories(model.requests, result);
  });

  test('leaving the iteration cancels', async () => {
    const model = scriptedModel([calling('look', { at: 'a' }), forever]);
    const live = streamAgent(summing({ helpers: [look] }), { input, model });
    for await (const item of live) if (item.type === 'call-answered') break;
    const result = await live.result;
    expect(result).toMatchObject({ type: 'failure', error: { code: 'EXECUTION_CANCELLED' } });
    await checkHistories(model.requests, result);
  });

  test('the given signal cancels', async () => {
    const controller = new AbortController();
    const model = scriptedModel([() => (controller.abort(), forever())]);
    const result = await streamAgent(summing(), { input, model, signal: controller.signal }).result;
    expect(result).toMatchObject({ type: 'failure', error: { code: 'EXECUTION_CANCELLED' } });
    await checkHistories(model.requests, result);
  });
});

test('a cancelled run stays so when it is executed again', async () => {
  const journal = memoryJournal();
  const controller = new AbortController();
  const stop = { definition: look.definition, handler: () => controller.abort() };
  const { result } = await fail(summing({ helpers: [stop] }), [calling('look', { at: 'a' })], {
    input,
    journal,
    runId: 'r',
    signal: controller.signal,
    clock: manualClock(),
  });
  const model = scriptedModel([]);
  const told: unknown[] = [];
  const again = await executeAgent(summing({ helpers: [stop] }), {
    input,
    journal,
    runId: 'r',
    model,
    clock: manualClock(),
    callbacks: { onFailure: (_, error) => void told.push(error), onAttemptStart: () => void told.push('started') },
  });
  expect(again).toEqual(result);
  expect(told).toEqual([result.error]);
});
