import { executeAgent, type AgentErrorCode, type ExecuteResult } from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel } from '@treadle/core/testing';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { broken, even, look, reflecting, summing, type Total } from './agents.ts';
import { expectedOf, isOutput, tokensOf, type Expected } from './reference.ts';
import { CALLS, scriptOf, worlds, type Reply, type World } from './replies.ts';
import { run } from './run.ts';

const SEED = Number(process.env['AGENTS_SEED'] ?? 20_251_026);

function agentOf(world: World, stop: () => void): ReturnType<typeof summing> {
  const stopping = { definition: { name: 'stop', description: 'Cancels' }, handler: stop };
  const { maxAttempts, maxIterations: maxIterationsPerAttempt, textOnly, earlySubmit, limits } = world;
  const validation = { maxAttempts, maxIterationsPerAttempt, textOnly, earlySubmit, customValidators: [even] };
  return (world.reflection ? reflecting : summing)({ helpers: [look, broken, stopping], validation, limits });
}

/** The replies that are in the conversation. */
function repliesIn(world: World, { modelCalls }: Expected): readonly Exclude<Reply, { type: 'failure' | 'abort' }>[] {
  return world.replies
    .slice(0, modelCalls)
    .filter(
      (reply): reply is Exclude<Reply, { type: 'failure' | 'abort' }> =>
        reply.type === 'calls' || reply.type === 'text',
    );
}

function contextOf(world: World, expected: Expected): object | undefined {
  const { end, attempt, iteration, limit, during } = expected;
  switch (end) {
    case 'success':
      return undefined;
    case 'MAX_ITERATIONS':
      return { attempt, iterationCount: iteration, maxIterations: world.maxIterations };
    case 'MAX_ATTEMPTS_EXCEEDED':
      return { attempts: world.maxAttempts, lastError: expect.objectContaining({ problems: [expect.any(String)] }) };
    case 'LIMIT_EXCEEDED':
      return { attempt, iteration, limit };
    case 'EXECUTION_CANCELLED':
      return { attempt, iteration, phase: 'iteration', during };
    case 'API_ERROR':
      return { attempt, iteration, code: 'overloaded' };
    case 'INVALID_RESPONSE':
      return { attempt, iteration, text: textOf(world.replies[expected.modelCalls - 1]!) };
    default:
      return { attempt, iteration };
  }
}

function textOf(reply: Reply): string {
  return 'text' in reply ? (reply.text ?? '').trim() : '';
}

function countsOf(world: World, expected: Expected): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const reply of repliesIn(world, expected)) {
    if (reply.type !== 'calls') continue;
    for (const call of reply.calls) counts[CALLS[call][0]] = (counts[CALLS[call][0]] ?? 0) + 1;
  }
  return counts;
}

function endOf(result: ExecuteResult<unknown>): 'success' | AgentErrorCode {
  return result.type === 'success' ? 'success' : result.error.code;
}

/** `run` also checks the histories and the order of the callbacks. */
async function check(world: World): Promise<void> {
  const expected = expectedOf(world);
  const controller = new AbortController();
  const stop = (): void => controller.abort();
  const { result, log } = await run(agentOf(world, stop), scriptOf(world.replies.slice(0, expected.modelCalls), stop), {
    input: '1, 2',
    signal: controller.signal,
    clock: manualClock(),
  });

  expect(endOf(result)).toBe(expected.end);
  if (result.type === 'failure') expect(result.error.context).toEqual(contextOf(world, expected));
  else expect(result.output).toEqual({ total: 2 } satisfies Total);

  const replies = repliesIn(world, expected);
  const { tokens, cost, tools, attempts, iterations } = result.metadata;
  expect({ attempts, iterations }).toEqual({ attempts: expected.attempts, iterations: expected.modelCalls });
  expect(tokens!.input + tokens!.output).toBe(replies.reduce((sum, reply) => sum + tokensOf(reply), 0));
  expect(cost).toBe(replies.reduce((sum, reply) => sum + reply.tokens / 4, 0));
  const counts = countsOf(world, expected);
  expect(Object.fromEntries(Object.entries(tools).map(([name, { calls }]) => [name, calls]))).toEqual(counts);

  const times = (name: string): number => log.filter(([one]) => one === name).length;
  const calls = replies.flatMap((reply) => (reply.type === 'calls' ? reply.calls : []));
  expect(times('onToolCall')).toBe(calls.filter((call) => world.reflection || !isOutput(call)).length);
  expect(times('onValidationFailure')).toBe(expected.rejections);
  for (const [name, at] of log)
    if (name !== 'onFailure') expect(at).toMatch(new RegExp(`^[1-3]/${world.maxAttempts} [1-5]/`));
}

/** Checks executions of agents with any replies of the model. */
export function testProperties(numRuns: number): void {
  const parameters = { seed: SEED, numRuns };

  describe('for any replies of the model', () => {
    test('the execution ends as the reference does, with a valid history and correct metadata', async () => {
      await fc.assert(fc.asyncProperty(worlds, check), parameters);
    });

    test('MAX_ITERATIONS is reported only if one more iteration would succeed', async () => {
      const limited = worlds.filter(
        (world) => expectedOf(world).end === 'MAX_ITERATIONS' && Object.keys(world.limits).length === 0,
      );
      await fc.assert(
        fc.asyncProperty(limited, async (world) => {
          const { modelCalls } = expectedOf(world);
          const maxIterations = world.maxIterations + 1;
          const good: Reply = { type: 'calls', calls: ['good', 'submit'], tokens: 1 };
          const longer: World = { ...world, maxIterations, replies: [...world.replies.slice(0, modelCalls), good] };
          expect(expectedOf(longer)).toMatchObject({ end: 'success', modelCalls: modelCalls + 1 });
          await check(world);
          await check(longer);
        }),
        { ...parameters, numRuns: Math.ceil(numRuns / 4) },
      );
    });

    test('executing an ended run again returns the same result without a model call', async () => {
      const ended = worlds.filter((world) => expectedOf(world).end !== 'API_ERROR');
      await fc.assert(
        fc.asyncProperty(ended, async (world) => {
          const { modelCalls } = expectedOf(world);
          const controller = new AbortController();
          const stop = (): void => controller.abort();
          const agent = agentOf(world, stop);
          const options = { input: '1, 2', journal: memoryJournal(), runId: 'r', clock: manualClock() };
          const { result } = await run(agent, scriptOf(world.replies.slice(0, modelCalls), stop), {
            ...options,
            signal: controller.signal,
          });
          expect(await executeAgent(agent, { ...options, model: scriptedModel([]) })).toEqual(result);
        }),
        { ...parameters, numRuns: Math.ceil(numRuns / 4) },
      );
    });

    test('the generated cases reach every kind of end', () => {
      const ends = new Set(fc.sample(worlds, parameters).map((world) => expectedOf(world).end));
      expect([...ends].toSorted()).toEqual([
        'API_ERROR',
        'EXECUTION_CANCELLED',
        'INVALID_RESPONSE',
        'LIMIT_EXCEEDED',
        'MAX_ATTEMPTS_EXCEEDED',
        'MAX_ITERATIONS',
        'SUBMIT_BEFORE_OUTPUT',
        'success',
      ]);
    });
  });
}
