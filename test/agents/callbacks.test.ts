import { executeAgent, type AgentError, type AgentPrompts } from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { broken, even, look, reflecting, summing, total, type Total } from './agents.ts';
import { calling, callingAll, checkHistories, fail, recorder, run, succeed, type CallbackEntry } from './run.ts';

const input = '1, 2';
const odd = { validator: 'even', problems: ['3 is odd'], message: '"even" rejected the output: 3 is odd' };

const thrown = (message: string): never => {
  throw new Error(message);
};

/** The callbacks of an execution that ends in the first iteration. */
const stopped = (error: AgentError, how = 'stopped'): readonly CallbackEntry[] => [
  ['onAttemptStart', '1/2 1/15'],
  ['onAttemptComplete', '1/2 1/15', how],
  ['onFailure', '1/2 1/15', error],
];

describe('order and arguments', () => {
  test('success without reflection: onToolCall is not called for the output', async () => {
    const { log } = await succeed(
      summing({ helpers: [look] }),
      [callingAll(['look', { at: 'a' }], ['answer', { total: 3 }])],
      { input },
    );
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onToolCall', '1/2 1/15', 'look', { at: 'a' }],
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onAttemptComplete', '1/2 1/15', 'accepted'],
      ['onSuccess', '1/2 1/15', { total: 3 }],
    ]);
  });

  test('a rejection, then success, with reflection', async () => {
    const { log } = await succeed(
      reflecting({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 }), calling('submit'), callingAll(['answer', { total: 4 }], ['submit'])],
      { input },
    );
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onToolCall', '1/2 1/15', 'answer', { total: 3 }],
      ['onToolResult', '1/2 1/15', 'answer', 'The total would be 3.'],
      ['onToolCall', '1/2 2/15', 'submit', {}],
      ['onValidationFailure', '1/2 2/15', { ...odd, output: { total: 3 } }],
      ['onToolResult', '1/2 2/15', 'submit', 'Rejected by "even": 3 is odd'],
      ['onAttemptComplete', '1/2 2/15', 'rejected'],
      ['onAttemptStart', '2/2 1/15'],
      ['onToolCall', '2/2 1/15', 'answer', { total: 4 }],
      ['onToolResult', '2/2 1/15', 'answer', 'The total would be 4.'],
      ['onToolCall', '2/2 1/15', 'submit', {}],
      ['onToolResult', '2/2 1/15', 'submit', 'Accepted.'],
      ['onAttemptComplete', '2/2 1/15', 'accepted'],
      ['onSuccess', '2/2 1/15', { total: 4 }],
    ]);
  });

  test('a tool that throws, an unknown tool, invalid arguments, and arguments that are not JSON', async () => {
    const { log } = await succeed(
      summing({ helpers: [broken, look] }),
      [
        callingAll(['broken', { a: 1 }], ['nothing'], ['look', { at: 1 }], ['look', '{"at":']),
        calling('answer', { total: 3 }),
      ],
      { input },
    );
    const calls = log.filter(([name]) => name === 'onToolCall').map(([, , ...args]) => args);
    expect(calls).toEqual(
      expect.arrayContaining([
        ['broken', { a: 1 }],
        ['nothing', {}],
        ['look', { at: 1 }],
        ['look', '{"at":'],
      ]),
    );
    const results = log.filter(([name]) => name === 'onToolResult').map(([, , ...args]) => args);
    expect(results).toHaveLength(4);
    expect(results).toContainEqual(['broken', 'The tool "broken" failed: it is broken']);
    expect(results).toContainEqual(['look', expect.stringMatching(/^The tool "look" was not called\. .*JSON/s)]);
  });

  test('MAX_ITERATIONS', async () => {
    const { log, error } = await fail(
      summing({ helpers: [look], validation: { maxIterationsPerAttempt: 1 } }),
      [calling('look', { at: 'a' })],
      { input },
    );
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/1'],
      ['onToolCall', '1/2 1/1', 'look', { at: 'a' }],
      ['onToolResult', '1/2 1/1', 'look', 'seen a'],
      ['onAttemptComplete', '1/2 1/1', 'stopped'],
      ['onFailure', '1/2 1/1', error],
    ]);
    expect(error.code).toBe('MAX_ITERATIONS');
  });

  test('MAX_ATTEMPTS_EXCEEDED', async () => {
    const { log, error } = await fail(
      summing({ validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 }), calling('answer', { total: 3 })],
      { input },
    );
    expect(error.code).toBe('MAX_ATTEMPTS_EXCEEDED');
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onValidationFailure', '1/2 1/15', { ...odd, output: { total: 3 } }],
      ['onAttemptComplete', '1/2 1/15', 'rejected'],
      ['onAttemptStart', '2/2 1/15'],
      ['onValidationFailure', '2/2 1/15', { ...odd, output: { total: 3 } }],
      ['onAttemptComplete', '2/2 1/15', 'rejected'],
      ['onFailure', '2/2 1/15', error],
    ]);
  });

  test('SUBMIT_BEFORE_OUTPUT', async () => {
    const { log, error } = await fail(reflecting(), [calling('submit')], { input });
    const message = 'There is nothing to submit yet. Call "answer" with your output first.';
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onToolCall', '1/2 1/15', 'submit', {}],
      ['onToolResult', '1/2 1/15', 'submit', message],
      ['onAttemptComplete', '1/2 1/15', 'stopped'],
      ['onFailure', '1/2 1/15', error],
    ]);
    expect(error.code).toBe('SUBMIT_BEFORE_OUTPUT');
  });

  test('INVALID_RESPONSE', async () => {
    const { log, error } = await fail(summing(), ['It is 3.'], { input });
    expect(log).toEqual(stopped(error));
    expect(error.code).toBe('INVALID_RESPONSE');
  });

  test.for([
    ['tokens', { tokens: 15 }],
    ['cost', { cost: 0 }],
  ] as const)('LIMIT_EXCEEDED of %s, between iterations', async ([limit, limits]) => {
    const script = limit === 'cost' ? [] : [calling('look', { at: 'a' })];
    const { log, error } = await fail(summing({ helpers: [look], limits }), script, { input });
    const names = log.map(([name]) => name);
    expect(error).toMatchObject({ code: 'LIMIT_EXCEEDED', context: { attempt: 1, limit } });
    expect(names).toEqual(
      limit === 'cost'
        ? ['onFailure']
        : ['onAttemptStart', 'onToolCall', 'onToolResult', 'onAttemptComplete', 'onFailure'],
    );
    expect(log.at(-1)).toEqual(['onFailure', limit === 'cost' ? '1/2 0/15' : '1/2 1/15', error]);
  });

  test('LIMIT_EXCEEDED of tokens, between attempts: the next attempt is not started', async () => {
    const { log, error, result } = await fail(
      summing({ limits: { tokens: 15 }, validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 })],
      { input },
    );
    expect(error).toMatchObject({ code: 'LIMIT_EXCEEDED', context: { attempt: 2, iteration: 0, limit: 'tokens' } });
    expect(result.metadata).toMatchObject({ attempts: 1, iterations: 1 });
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onValidationFailure', '1/2 1/15', { ...odd, output: { total: 3 } }],
      ['onAttemptComplete', '1/2 1/15', 'rejected'],
      ['onFailure', '2/2 0/15', error],
    ]);
  });

  test('LIMIT_EXCEEDED of calls: the first reply over the limit gets error results, the second ends the run', async () => {
    const { log, error } = await fail(
      summing({ helpers: [look], limits: { calls: 1 } }),
      [calling('look', { at: 'a' }), calling('look', { at: 'b' }), calling('look', { at: 'c' })],
      { input },
    );
    const message = 'Not executed: all 1 tool calls of this run are used up. Give your output with what you have.';
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onToolCall', '1/2 1/15', 'look', { at: 'a' }],
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onToolCall', '1/2 2/15', 'look', { at: 'b' }],
      ['onToolResult', '1/2 2/15', 'look', message],
      ['onToolCall', '1/2 3/15', 'look', { at: 'c' }],
      ['onToolResult', '1/2 3/15', 'look', message],
      ['onAttemptComplete', '1/2 3/15', 'stopped'],
      ['onFailure', '1/2 3/15', error],
    ]);
    expect(error).toMatchObject({ code: 'LIMIT_EXCEEDED', context: { attempt: 1, iteration: 3, limit: 'calls' } });
  });

  test.for(['model', 'tool', 'validation'] as const)('LIMIT_EXCEEDED of duration, during the %s', async (where) => {
    const clock = manualClock();
    const late = (): Promise<never> => (setImmediate(() => void clock.advance(1_000)), new Promise(() => {}));
    const slow = { definition: look.definition, handler: late };
    const validation = where === 'validation' ? { customValidators: [{ name: 'slow', validate: late }] } : {};
    const reply = { model: late, tool: calling('look', { at: 'a' }), validation: calling('answer', { total: 3 }) };
    const { log, error, result } = await fail(
      summing({ helpers: [slow], validation, limits: { durationMs: 500 } }),
      [reply[where]],
      { input, clock },
    );
    expect(error).toEqual({
      code: 'LIMIT_EXCEEDED',
      message: 'The run reached its limit of duration.',
      context: { attempt: 1, iteration: 1, limit: 'duration' },
    });
    expect(log.slice(-2)).toEqual([
      ['onAttemptComplete', '1/2 1/15', 'stopped'],
      ['onFailure', '1/2 1/15', error],
    ]);
    expect(result.metadata.latencyMs).toBe(500);
  });

  test('API_ERROR', async () => {
    const failure = { code: 'rate-limit', message: 'Too many', retryable: true } as const;
    const { log, error } = await fail(summing(), [{ type: 'failure', error: failure }], { input });
    expect(log).toEqual(stopped(error));
    expect(error).toMatchObject({ code: 'API_ERROR', context: { attempt: 1, iteration: 1, code: 'rate-limit' } });
  });

  test('API_ERROR by a content filter', async () => {
    const { log, error } = await fail(summing(), [{ text: 'No', finish: 'content-filter' }], { input });
    expect(log).toEqual(stopped(error));
    expect(error).toMatchObject({ code: 'API_ERROR', context: { code: 'content-filter' } });
  });

  const prompting: readonly (readonly ['system' | 'user', string, AgentPrompts<string>, string])[] = [
    [
      'system',
      'throws',
      {
        user: 'Go',
        system: () => thrown('unavailable'),
      },
      'prompts.system failed: unavailable',
    ],
    ['system', 'returns a number', { user: 'Go', system: () => 1 as never }, 'prompts.system returned no text.'],
    ['user', 'rejects', { user: async () => thrown('unavailable') }, 'prompts.user failed: unavailable'],
    [
      'user',
      'returns undefined',
      { user: () => undefined as never },
      'prompts.user returned neither a text nor content blocks.',
    ],
    ['user', 'returns no blocks', { user: () => [] }, 'prompts.user returned neither a text nor content blocks.'],
    ['user', 'returns an empty text', { user: () => '' }, 'prompts.user returned neither a text nor content blocks.'],
  ];
  test.for(prompting)('PROMPT_FAILED: %s %s', async ([prompt, , prompts, message]) => {
    const { log, error } = await fail(summing({ prompts }), [], { input });
    expect(error).toEqual({ code: 'PROMPT_FAILED', message, context: { prompt } });
    expect(log).toEqual([['onFailure', '1/2 0/15', error]]);
  });

  const writing: readonly (readonly [string, () => string | Promise<string>, string])[] = [
    ['throws', () => thrown('unavailable'), 'prompts.error failed: unavailable'],
    ['rejects', async () => thrown('unavailable'), 'prompts.error failed: unavailable'],
    ['returns white space', () => ' ', 'prompts.error returned no text.'],
  ];
  test.for(writing)('PROMPT_FAILED: error %s', async ([, write, message]) => {
    const { log, error } = await fail(
      summing({ prompts: { user: 'Go', error: write }, validation: { customValidators: [even] } }),
      [calling('answer', { total: 3 })],
      { input },
    );
    expect(error).toEqual({ code: 'PROMPT_FAILED', message, context: { prompt: 'error' } });
    expect(log).toEqual([
      ['onAttemptStart', '1/2 1/15'],
      ['onValidationFailure', '1/2 1/15', { ...odd, output: { total: 3 } }],
      ['onAttemptComplete', '1/2 1/15', 'rejected'],
      ['onFailure', '1/2 1/15', error],
    ]);
  });

  test('the error prompt is not called after the last attempt', async () => {
    const { error } = await fail(
      summing({ prompts: { user: 'Go', error: () => expect.fail('called') }, validation: { maxAttempts: 1 } }),
      [calling('answer')],
      { input },
    );
    expect(error.code).toBe('MAX_ATTEMPTS_EXCEEDED');
  });

  test.for([
    ['throws', () => thrown('no state')],
    ['rejects', async () => thrown('no state')],
  ] as const)(
    'STATE_PROJECTION_FAILED: projectFinalState %s; the attempt was accepted',
    async ([, projectFinalState]) => {
      const { log, error } = await fail(summing({ projectFinalState }), [calling('answer', { total: 3 })], { input });
      expect(error).toEqual({
        code: 'STATE_PROJECTION_FAILED',
        message: 'projectFinalState failed: no state',
        context: { attempt: 1, iteration: 1 },
      });
      expect(log).toEqual(stopped(error, 'accepted'));
    },
  );

  test('cancellation', async () => {
    const controller = new AbortController();
    const { log, error } = await fail(summing(), [() => (controller.abort(), 'late')], {
      input,
      signal: controller.signal,
    });
    expect(log).toEqual(stopped(error));
    expect(error.code).toBe('EXECUTION_CANCELLED');
  });
});

describe('failing callbacks', () => {
  const names = [
    'onAttemptStart',
    'onAttemptComplete',
    'onToolCall',
    'onToolResult',
    'onValidationFailure',
    'onSuccess',
  ] as const;
  const agent = reflecting({ helpers: [look], validation: { customValidators: [even] } });
  const script = [
    calling('look', { at: 'a' }),
    callingAll(['answer', { total: 3 }], ['submit']),
    callingAll(['answer', { total: 4 }], ['submit']),
  ];
  const expectedLog = async (): Promise<readonly CallbackEntry[]> => (await succeed(agent, script, { input })).log;

  test.for(names)('an error thrown by %s is collected and changes nothing', async (name) => {
    const callback = (): never => {
      throw new Error(`${name} threw`);
    };
    const { result, log } = await succeed(agent, script, { input, callbacks: { [name]: callback } });
    expect(result.output).toEqual({ total: 4 });
    expect(log).toEqual(await expectedLog());
    const times = log.filter(([one]) => one === name).length;
    expect(result.metadata.callbackErrors).toEqual(
      Array.from({ length: times }, () => ({ callback: name, message: `${name} threw` })),
    );
  });

  test.for(names)('a rejection of %s is collected and changes nothing', async (name) => {
    const callback = (): Promise<never> => Promise.reject(new Error(`${name} rejected`));
    const { result, log } = await succeed(agent, script, { input, callbacks: { [name]: callback } });
    expect(log).toEqual(await expectedLog());
    const times = log.filter(([one]) => one === name).length;
    expect(result.metadata.callbackErrors).toEqual(
      Array.from({ length: times }, () => ({ callback: name, message: `${name} rejected` })),
    );
  });

  test.for(['onToolCall', 'onSuccess', 'onFailure'] as const)(
    'the result waits at most 5 seconds for %s',
    async (name) => {
      const clock = manualClock();
      const { callbacks, log } = recorder<Total>({ [name]: () => new Promise(() => {}) });
      const model = scriptedModel(
        name === 'onFailure' ? ['text'] : [calling('look', { at: 'a' }), calling('answer', { total: 4 })],
      );
      const executing = executeAgent(summing({ helpers: [look] }), { input, model, clock, callbacks });
      let done = false;
      void executing.then(() => (done = true));
      await clock.advance(4_999);
      expect(done).toBe(false);
      expect(log.map(([one]) => one)).toContain(name);
      await clock.advance(1);
      const result = await executing;
      expect(result.metadata.callbackErrors).toEqual([
        { callback: name, message: 'Its promise was not settled after 5000 ms.' },
      ]);
      expect(result.metadata.latencyMs).toBe(0);
      expect(clock.pending).toBe(0);
    },
  );

  test('a rejection after the result does not change the result', async () => {
    const clock = manualClock();
    const { promise, reject } = Promise.withResolvers<void>();
    const model = scriptedModel([calling('answer', { total: 4 })]);
    const executing = executeAgent(summing(), { input, model, clock, callbacks: { onSuccess: () => promise } });
    await clock.advance(5_000);
    const { metadata } = await executing;
    const before = structuredClone(metadata);
    reject(new Error('too late'));
    await clock.advance(0);
    expect(metadata).toEqual(before);
  });

  test('promises are awaited at the end, not during the run', async () => {
    const order: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const { result } = await succeed(
      summing({ helpers: [look] }),
      [calling('look', { at: 'a' }), calling('answer', { total: 4 })],
      {
        input,
        clock: manualClock(),
        callbacks: {
          onToolCall: () => promise.then(() => void order.push('call logged')),
          onSuccess: () => {
            order.push('success');
            resolve();
          },
        },
      },
    );
    expect(order).toEqual(['success', 'call logged']);
    expect(result.metadata.callbackErrors).toEqual([]);
  });

  test('collects thrown values of any type', async () => {
    const thrown = ['text', { odd: true }, null, new Error('')];
    const { result } = await run(summing(), ['text'], {
      input,
      callbacks: {
        onAttemptStart: () => {
          throw thrown[0];
        },
        onAttemptComplete: () => {
          throw thrown[1];
        },
        onFailure: () => Promise.reject(thrown[3] as Error),
      },
    });
    expect(result).toMatchObject({
      error: { code: 'INVALID_RESPONSE' },
      metadata: {
        callbackErrors: [
          { callback: 'onAttemptStart', message: 'text' },
          { callback: 'onAttemptComplete', message: '{"odd":true}' },
          { callback: 'onFailure', message: 'Error' },
        ],
      },
    });
  });

  test('are called as methods of their object', async () => {
    class Log {
      readonly lines: string[] = [];
      onSuccess(): void {
        this.lines.push('done');
      }
    }
    const log = new Log();
    const model = scriptedModel([calling('answer', { total: 4 })]);
    const result = await executeAgent(summing(), { input, model, callbacks: log });
    expect(log.lines).toEqual(['done']);
    expect(result.metadata.callbackErrors).toEqual([]);
  });
});

test('validators and handlers are called as methods of their object', async () => {
  class AtMost {
    readonly name = 'at most';
    readonly most: number;
    constructor(most: number) {
      this.most = most;
    }
    validate(output: { total: number }): string | undefined {
      return output.total > this.most ? `more than ${this.most}` : undefined;
    }
  }
  class Shelf {
    readonly definition = look.definition;
    readonly things = ['a cup'];
    handler(): readonly string[] {
      return this.things;
    }
  }
  const { result, log } = await succeed(
    summing({ helpers: [new Shelf()], validation: { outputSchema: total, customValidators: [new AtMost(5)] } }),
    [calling('look', { at: 'a' }), calling('answer', { total: 9 }), calling('answer', { total: 4 })],
    { input },
  );
  expect(log).toContainEqual(['onToolResult', '1/2 1/15', 'look', '["a cup"]']);
  expect(log.find(([name]) => name === 'onValidationFailure')?.[2]).toMatchObject({ problems: ['more than 5'] });
  expect(result.output).toEqual({ total: 4 });
});

describe('a resumed run reports only new events', () => {
  const failure = { type: 'failure', error: { code: 'network', message: 'Unreachable', retryable: true } } as const;
  const agent = summing({ helpers: [look] });

  test('no onAttemptStart for the resumed attempt', async () => {
    const options = { input, journal: memoryJournal(), runId: 'r' };
    await fail(agent, [failure], options);
    const { callbacks, log } = recorder<Total>();
    const model = scriptedModel([calling('look', { at: 'a' }), calling('answer', { total: 4 })]);
    const result = await executeAgent(agent, { ...options, model, callbacks });
    await checkHistories(model.requests, result);
    expect(log).toEqual([
      ['onToolCall', '1/2 1/15', 'look', { at: 'a' }],
      ['onToolResult', '1/2 1/15', 'look', 'seen a'],
      ['onAttemptComplete', '1/2 2/15', 'accepted'],
      ['onSuccess', '1/2 2/15', { total: 4 }],
    ]);
  });

  test('only onSuccess for an ended run', async () => {
    const options = { input, journal: memoryJournal(), runId: 'r' };
    await succeed(agent, [calling('answer', { total: 4 })], options);
    const { callbacks, log } = recorder<Total>();
    await executeAgent(agent, { ...options, model: scriptedModel([]), callbacks });
    expect(log).toEqual([['onSuccess', '1/2 1/15', { total: 4 }]]);
  });
});
