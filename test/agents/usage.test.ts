import { executeAgent, type Usage } from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { even, look, reflecting, summing } from './agents.ts';
import { calling, callingAll, checkHistories, fail, succeed } from './run.ts';

const input = '1, 2';

const first: Usage = {
  inputTokens: 100,
  outputTokens: 10,
  cachedTokens: 50,
  cacheWriteTokens: 30,
  reasoningTokens: 4,
  cost: 0.5,
};
const second: Usage = { inputTokens: 200, outputTokens: 20, cachedTokens: 150, reasoningTokens: 8, cost: 0.25 };
const third: Usage = { inputTokens: 400, outputTokens: 40, cacheWriteTokens: 100, cost: 0.125 };
const all = { input: 700, output: 70, cacheRead: 200, cacheWrite: 130, reasoning: 12 };

const script: readonly ScriptStep[] = [
  { ...calling('look', { at: 'a' }), usage: first },
  { ...callingAll(['answer', { total: 3 }], ['submit']), usage: second },
  { ...callingAll(['answer', { total: 4 }], ['submit']), usage: third },
];
const agent = reflecting({ helpers: [look], validation: { customValidators: [even] } });

describe('tokens and cost', () => {
  test('are summed over iterations and attempts, on success', async () => {
    const { result } = await succeed(agent, script, { input });
    expect(result.metadata.tokens).toEqual(all);
    expect(result.metadata.cost).toBe(0.875);
  });

  test('are summed over iterations and attempts, on failure', async () => {
    const { result } = await fail(
      reflecting({ helpers: [look], validation: { customValidators: [{ name: 'never', validate: () => false }] } }),
      script,
      { input },
    );
    expect(result.error).toMatchObject({
      code: 'MAX_ATTEMPTS_EXCEEDED',
      context: { lastError: { problems: ['it is not accepted'] } },
    });
    expect(result.metadata.tokens).toEqual(all);
    expect(result.metadata.cost).toBe(0.875);
  });

  test('are absent if the model does not report them', async () => {
    const usage = { inputTokens: 1, outputTokens: 2 };
    const { result } = await succeed(summing(), [{ ...calling('answer', { total: 3 }), usage }], { input });
    expect(result.metadata.tokens).toEqual({ input: 1, output: 2 });
    expect(result.metadata).not.toHaveProperty('cost');
  });

  test('have no cost if the price of one model call is unknown', async () => {
    const { result } = await succeed(
      summing({ helpers: [look] }),
      [
        { ...calling('look', { at: 'a' }), usage: first },
        { ...calling('answer', { total: 3 }), usage: { inputTokens: 1, outputTokens: 1 } },
      ],
      { input },
    );
    expect(result.metadata).not.toHaveProperty('cost');
    expect(result.metadata.tokens).toMatchObject({ input: 101, output: 11 });
  });

  test('are not changed by a failed model call', async () => {
    const failure = { type: 'failure', error: { code: 'network', message: 'Unreachable', retryable: true } } as const;
    const { result } = await fail(agent, [script[0]!, failure], { input });
    expect(result.metadata).toMatchObject({ iterations: 2, tokens: { input: 100, output: 10 }, cost: 0.5 });
  });
});

describe('after a resume', () => {
  test.for([0, 1, 2] as const)(
    'nothing is counted twice if the model call after iteration %i failed',
    async (failedAt) => {
      const journal = memoryJournal();
      const clock = manualClock();
      const failure = { type: 'failure', error: { code: 'network', message: 'Unreachable', retryable: true } } as const;
      await fail(agent, [...script.slice(0, failedAt), failure], { input, journal, runId: 'r', clock });
      await clock.advance(1_000_000);
      const model = scriptedModel(script.slice(failedAt));
      const result = await executeAgent(agent, { input, journal, runId: 'r', model, clock });
      await checkHistories(model.requests, result);
      const uninterrupted = await succeed(agent, script, { input, runId: 'r', clock });
      expect(result.metadata).toEqual(uninterrupted.result.metadata);
      expect(result.metadata.tokens).toEqual(all);
      expect(result.messages.length).toBe(uninterrupted.result.messages.length);
    },
  );

  test('an ended run returns the same result without a model call', async () => {
    const journal = memoryJournal();
    const clock = manualClock();
    const { result } = await succeed(agent, script, { input, journal, runId: 'r', clock });
    await clock.advance(60_000);
    const model = scriptedModel([]);
    const again = await executeAgent(agent, { input, journal, runId: 'r', model, clock });
    expect(again).toEqual(result);
    expect(model.requests).toEqual([]);
  });
});

describe('latency', () => {
  const slow =
    (clock: ReturnType<typeof manualClock>, ms: number, step: ScriptStep): ScriptStep =>
    async () => {
      await clock.advance(ms);
      return step;
    };

  test('includes model calls, helpers and validators', async () => {
    const clock = manualClock();
    const helper = {
      definition: look.definition,
      handler: async () => {
        await clock.advance(70);
        return 'seen';
      },
    };
    const slowValidator = {
      name: 'slow',
      validate: async () => {
        await clock.advance(7);
      },
    };
    const { result } = await succeed(
      summing({ helpers: [helper], validation: { customValidators: [slowValidator] } }),
      [slow(clock, 500, calling('look', { at: 'a' })), slow(clock, 600, calling('answer', { total: 3 }))],
      { input, clock },
    );
    expect(result.metadata.latencyMs).toBe(1_177);
  });

  test('is reported on failure', async () => {
    const clock = manualClock();
    const { result } = await fail(summing(), [slow(clock, 500, 'text')], { input, clock });
    expect(result.metadata.latencyMs).toBe(500);
  });

  test('excludes the time between a crash and a resume', async () => {
    const clock = manualClock();
    const journal = memoryJournal();
    const failure = { type: 'failure', error: { code: 'network', message: 'Unreachable', retryable: true } } as const;
    await fail(summing(), [slow(clock, 500, failure)], { input, clock, journal, runId: 'r' });
    await clock.advance(1_000_000);
    const model = scriptedModel([slow(clock, 30, calling('answer', { total: 3 }))]);
    const result = await executeAgent(summing(), { input, clock, journal, runId: 'r', model });
    expect(result.metadata.latencyMs).toBe(530);
    await checkHistories(model.requests, result);
  });
});

describe('observability', () => {
  const keys = async (
    observability: { trackTokens?: boolean; trackLatency?: boolean },
    fails: boolean,
  ): Promise<readonly string[]> => {
    const steps = fails ? ['text'] : [calling('answer', { total: 3 })];
    const { metadata } = fails
      ? (await fail(summing({ observability }), steps, { input })).result
      : (await succeed(summing({ observability }), steps, { input })).result;
    return Object.keys(metadata).filter((key) => ['tokens', 'cost', 'latencyMs'].includes(key));
  };

  test.for([false, true])('can omit tokens and latency (failure: %s)', async (fails) => {
    expect(await keys({}, fails)).toEqual(['tokens', 'cost', 'latencyMs']);
    expect(await keys({ trackTokens: true, trackLatency: true }, fails)).toEqual(['tokens', 'cost', 'latencyMs']);
    expect(await keys({ trackTokens: false }, fails)).toEqual(['latencyMs']);
    expect(await keys({ trackLatency: false }, fails)).toEqual(['tokens', 'cost']);
    expect(await keys({ trackTokens: false, trackLatency: false }, fails)).toEqual([]);
  });

  test('enforces limits even if tokens are not tracked', async () => {
    const { error } = await fail(
      summing({ helpers: [look], limits: { tokens: 15 }, observability: { trackTokens: false } }),
      [calling('look', { at: 'a' })],
      { input },
    );
    expect(error).toMatchObject({ code: 'LIMIT_EXCEEDED', context: { limit: 'tokens' } });
  });
});

describe('budgets', () => {
  test.for(['tokens', 'cost'] as const)('fails if limits.%s is set but the model does not report it', async (limit) => {
    const usage =
      limit === 'tokens' ? { inputTokens: 0, outputTokens: 0, cost: 0 } : { inputTokens: 1, outputTokens: 1 };
    const { error } = await fail(
      summing({ helpers: [look], limits: { [limit]: 100 } }),
      [{ ...calling('look', { at: 'a' }), usage }],
      { input },
    );
    expect(error).toMatchObject({ code: 'LIMIT_EXCEEDED', context: { attempt: 1, iteration: 1, limit } });
    expect(error.message).toContain(`limits.${limit} is set`);
  });

  test('the limits of the execution override those of the agent', async () => {
    const { error } = await fail(
      summing({ helpers: [look], limits: { tokens: 1_000 } }),
      [calling('look', { at: 'a' })],
      {
        input,
        limits: { tokens: 15 },
      },
    );
    expect(error).toMatchObject({ code: 'LIMIT_EXCEEDED', context: { limit: 'tokens' } });
  });

  test('an output in the turn that reaches the token limit is accepted', async () => {
    const { result } = await succeed(summing({ limits: { tokens: 1 } }), [calling('answer', { total: 3 })], { input });
    expect(result.output).toEqual({ total: 3 });
  });

  test('outputs, reflections and submits do not count as calls', async () => {
    const { result } = await succeed(
      reflecting({ helpers: [look], limits: { calls: 1 } }),
      [
        calling('answer', { total: 1 }),
        calling('look', { at: 'a' }),
        calling('answer', { total: 3 }),
        calling('submit'),
      ],
      { input },
    );
    expect(result.output).toEqual({ total: 3 });
  });
});
