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

/** A promise that never settles. */
const forever = (): Promise<never> => new Promise(() => {});

describe('before the start', () => {
  test('calls no prompt and no model', async () => {
    const { result, log } = await fail(summing({ prompts: { user: () => expect.fail('built') } }), [], {
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
    } satisfies Omit<ExecuteFailure, 'orThrow'>);
    expect(log).toEqual([['onFailure', '1/2 0/15', result.error]]);
  });

  test('leaves no run in the journal, so it can be started later', async () => {
    const journal = memoryJournal();
    await fail(summing(), [], { input, journal, runId: 'r', signal: AbortSignal.abort() });
    expect(await journal.read('r')).toEqual([]);
    const { result } = await succeed(summing(), [calling('answer', { total: 3 })], { input, journal, runId: 'r' });
    expect(result.output).toEqual({ total: 3 });
  });
});

describe('during a prompt', () => {
  test.for(['system', 'user'] as const)('%s', async (which) => {
    const controller = new AbortController();
    const slow = (): Promise<never> => {
      controller.abort();
      return forever();
    };
    const { error, log } = await fail(summing({ prompts: { user: 'Go', [which]: slow } }), [], {
      input,
      signal: controller.signal,
    });
    expect(error).toEqual(cancelled({ attempt: 1, iteration: 0, phase: 'prompt' }));
    expect(log).toEqual([['onFailure', '1/2 0/15', error]]);
  });

  test('a prompt that throws because of the abort is a cancellation', async () => {
    const controller = new AbortController();
    const user = (): never => {
      controller.abort();
      throw new Error('aborted');
    };
    const { error } = await fail(summing({ prompts: { user } }), [], { input, signal: controller.signal });
    expect(error.code).toBe('EXECUTION_CANCELLED');
  });
});

describe('during a model call', () => {
  const failure = { type: 'failure', error: { code: 'cancelled', message: 'Aborted', retryable: false } } as const;
  const untilAborted = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  const ways: readonly (readonly [string, (inner: AbortSignal, outer: AbortSignal) => Promise<ScriptStep>])[] = [
    ['never answers', forever],
    ['replies after the abort', (inner) => untilAborted(inner).then(() => calling('answer', { total: 3 }))],
    ['returns the failure "cancelled"', (inner) => untilAborted(inner).then(() => failure)],
    [
      'listens to the signal of the execution and returns the failure "cancelled"',
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

  test.for(ways)('a model that %s: EXECUTION_CANCELLED, not API_ERROR', async ([, answer]) => {
    const controller = new AbortController();
    const { result, log } = await fail(
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
    expect(log.map(([name, at]) => `${name} ${at}`)).toEqual([
      'onAttemptStart 1/2 1/15',
      'onToolCall 1/2 1/15',
      'onToolResult 1/2 1/15',
      'onAttemptComplete 1/2 2/15',
      'onFailure 1/2 2/15',
    ]);
    expect(rolesIn(result.messages)).toEqual(['user', 'assistant', 'tool']);
  });

  test('a model that notices the abort before the run does', async () => {
    // If native code aborts a signal, promise callbacks run between its listeners.
    const { signal } = new AbortController();
    let aborted = false;
    Object.defineProperty(signal, 'aborted', { get: () => aborted });
    const { error } = await fail(summing(), [() => ((aborted = true), failure)], { input, signal });
    expect(error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'model' }));
  });

  test('the failure "cancelled" without an abort is API_ERROR', async () => {
    const { error } = await fail(summing(), [failure], { input });
    expect(error).toEqual({
      code: 'API_ERROR',
      message: 'Aborted',
      context: { attempt: 1, iteration: 1, code: 'cancelled' },
    });
  });

  test('a model that rejects without an abort is API_ERROR', async () => {
    const rejecting = (): never => {
      throw new DOMException('This operation was aborted', 'AbortError');
    };
    const { error } = await fail(summing(), [rejecting], { input });
    expect(error).toMatchObject({ code: 'API_ERROR', context: { code: 'protocol' } });
  });
});

describe('during a helper', () => {
  const behaviours: readonly (readonly [string, (signal: AbortSignal) => Promise<unknown>])[] = [
    ['ignores the signal', forever],
    [
      'respects the signal',
      (signal) =>
        new Promise((_, reject) =>
          signal.addEventListener('abort', () => reject(new Error('stopped')), { once: true }),
        ),
    ],
  ];

  test.for(behaviours)(
    'a helper that %s: its call and the calls not started get an error result',
    async ([, behave]) => {
      const controller = new AbortController();
      const slow = {
        definition: { name: 'slow', description: 'Is slow' },
        handler: (_: unknown, { signal }: { signal: AbortSignal }) => {
          setImmediate(() => controller.abort());
          return behave(signal);
        },
      };
      const { result, log } = await fail(
        summing({ helpers: [look, slow], parallel: false }),
        [callingAll(['look', { at: 'a' }], ['slow'], ['look', { at: 'b' }], ['answer', { total: 3 }])],
        { input, signal: controller.signal },
      );
      expect(result.error).toEqual(cancelled({ attempt: 1, iteration: 1, phase: 'iteration', during: 'tool' }));
      const message = 'Not finished: the run was cancelled.';
      expect(resultsIn(result.messages)).toEqual([
        ['look: seen a', `slow!: ${message}`, `look!: ${message}`, `answer!: ${message}`],
      ]);
      expect(result.metadata.tools).toEqual({
        look: { calls: 2, errors: 1 },
        slow: { calls: 1, errors: 1 },
        answer: { calls: 1, errors: 0 },
      });
      expect(log).toEqual([
        ['onAttemptStart', '1/2 1/15'],
        ['onToolCall', '1/2 1/15', 'look', { at: 'a' }],
        ['onToolResult', '1/2 1/15', 'look', 'seen a'],
        ['onToolCall', '1/2 1/15', 'slow', {}],
        ['onToolResult', '1/2 1/15', 'slow', message],
        ['onToolCall', '1/2 1/15', 'look', { at: 'b' }],
        ['onToolResult', '1/2 1/15', 'look', message],
        ['onAttemptComplete', '1/2 1/15', 'stopped'],
        ['onFailure', '1/2 1/15', result.error],
      ]);
    },
  );

  test('aborts the signal of the handler', async () => {
    const controller = new AbortController();
    let received: AbortSignal | undefined;
    const slow = {
      definition: { name: 'slow', description: 'Is slow' },
      handler: (_: unknown, { signal }: { signal: AbortSignal }) => {
        received = signal;
        setImmediate(() => controller.abort());
        return forever();
      },
    };
    await fail(summing({ helpers: [slow] }), [calling('slow')], { input, signal: controller.signal });
    expect(received?.aborted).toBe(true);
  });

  test('discards the changes of the handler to the state', async () => {
    const controller = new AbortController();
    const journal = memoryJournal();
    const slow = {
      definition: { name: 'slow', description: 'Is slow' },
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

test('during a policy', async () => {
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

test('during the reflection', async () => {
  const controller = new AbortController();
  let received: AbortSignal | undefined;
  const agent = reflecting();
  const { result, log: callbacks } = await fail(
    {
      ...agent,
      tools: {
        output: {
          name: 'answer',
          description: 'Answers',
          reflectionHandler: (_: Total, { signal }) => {
            received = signal;
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
  expect(received?.aborted).toBe(true);
  const message = 'Not finished: the run was cancelled.';
  expect(resultsIn(result.messages)).toEqual([[`answer!: ${message}`, `submit!: ${message}`]]);
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

describe('during the validation', () => {
  const inValidation = cancelled({ attempt: 1, iteration: 1, phase: 'validation' });
  const message = 'Not finished: the run was cancelled.';

  test('in a custom validator: aborts its signal', async () => {
    const controller = new AbortController();
    let received: AbortSignal | undefined;
    const slow = {
      name: 'slow',
      validate: (_: Total, { signal }: { signal: AbortSignal }) => {
        received = signal;
        setImmediate(() => controller.abort());
        return forever();
      },
    };
    const { result, log: callbacks } = await fail(
      summing({ helpers: [look], validation: { customValidators: [slow] } }),
      [callingAll(['look', { at: 'a' }], ['answer', { total: 3 }])],
      { input, signal: controller.signal },
    );
    expect(result.error).toEqual(inValidation);
    expect(received?.aborted).toBe(true);
    expect(resultsIn(result.messages)).toEqual([['look: seen a', `answer!: ${message}`]]);
    expect(callbacks.slice(-2)).toEqual([
      ['onAttemptComplete', '1/2 1/15', 'stopped'],
      ['onFailure', '1/2 1/15', inValidation],
    ]);
    expect(result.metadata).toMatchObject({ attempts: 1, iterations: 1, tokens: { input: 10, output: 5 } });
  });

  test.for([
    ['rejects', 'stopped'],
    ['accepts', undefined],
  ] as const)('in a custom validator that then %s: ignores the verdict and calls nothing else', async ([, verdict]) => {
    const controller = new AbortController();
    const called: string[] = [];
    const first = {
      name: 'first',
      validate: (_: Total, { signal }: { signal: AbortSignal }) => {
        setImmediate(() => controller.abort());
        return new Promise<typeof verdict>((resolve) => signal.addEventListener('abort', () => resolve(verdict)));
      },
    };
    const next = { name: 'next', validate: () => void called.push('next') };
    const prompts = { user: 'Go', error: () => (called.push('error'), 'Again') };
    const { error, log } = await fail(
      summing({ prompts, validation: { customValidators: [first, next] } }),
      [calling('answer', { total: 3 })],
      { input, signal: controller.signal },
    );
    await new Promise(setImmediate);
    expect(error).toEqual(inValidation);
    expect(called).toEqual([]);
    expect(log.map(([name]) => name)).toEqual(['onAttemptStart', 'onAttemptComplete', 'onFailure']);
  });

  test('in an asynchronous schema', async () => {
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

  test('in the error prompt', async () => {
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
    expect(resultsIn(result.messages)).toEqual([['answer: The total would be 3.', `submit!: ${message}`]]);
  });
});

describe('between turns', () => {
  test('prevents the next model call', async () => {
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

  test('between attempts, ends the next attempt', async () => {
    const controller = new AbortController();
    const { result, requests, log } = await fail(
      summing({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 })],
      { input, signal: controller.signal, callbacks: { onValidationFailure: () => controller.abort() } },
    );
    expect(requests).toHaveLength(1);
    expect(result.error).toEqual(cancelled({ attempt: 2, iteration: 1, phase: 'iteration', during: 'model' }));
    expect(rolesIn(result.messages)).toEqual(['user', 'assistant', 'tool', 'user']);
    expect(log.map(([name, at, how]) => [name, at, typeof how === 'string' ? how : ''])).toEqual([
      ['onAttemptStart', '1/2 1/15', ''],
      ['onValidationFailure', '1/2 1/15', ''],
      ['onAttemptComplete', '1/2 1/15', 'rejected'],
      ['onAttemptStart', '2/2 1/15', ''],
      ['onAttemptComplete', '2/2 1/15', 'stopped'],
      ['onFailure', '2/2 1/15', ''],
    ]);
  });

  test('in onAttemptStart, prevents the first model call', async () => {
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

test('an abort after the output was accepted has no effect', async () => {
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

  test('the signal cancels', async () => {
    const controller = new AbortController();
    const model = scriptedModel([() => (controller.abort(), forever())]);
    const result = await streamAgent(summing(), { input, model, signal: controller.signal }).result;
    expect(result).toMatchObject({ type: 'failure', error: { code: 'EXECUTION_CANCELLED' } });
    await checkHistories(model.requests, result);
  });
});

test('a cancelled run returns the same failure when it is executed again', async () => {
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
  const log: unknown[] = [];
  const again = await executeAgent(summing({ helpers: [stop] }), {
    input,
    journal,
    runId: 'r',
    model,
    clock: manualClock(),
    callbacks: { onFailure: (_, error) => void log.push(error), onAttemptStart: () => void log.push('started') },
  });
  expect(again).toEqual(result);
  expect(log).toEqual([result.error]);
});
