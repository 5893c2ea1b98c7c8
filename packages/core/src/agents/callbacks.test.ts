import { describe, expect, test } from 'vitest';
import { manualClock } from '../testing/index.ts';
import type { Clock } from '../platform.ts';
import { follower, type ExecuteCallbacks, type FollowerOptions } from './callbacks.ts';
import { defineAgent } from './define.ts';
import { agentError } from './result.ts';
import type { AnyAgent } from './tools.ts';

const agent: AnyAgent = defineAgent<unknown, unknown>({
  name: 'a',
  description: 'An agent',
  model: { id: 'm', reply: () => Promise.reject(new Error('not asked')) },
  prompts: { user: 'Go' },
  tools: { output: { name: 'answer', description: 'Answers' } },
  validation: { outputSchema: { type: 'object' }, maxAttempts: 3 },
});

const error = agentError('SUBMIT_BEFORE_OUTPUT', 'no', { attempt: 1, iteration: 1 });
const at = { attempt: 2, iteration: 4 };

const around = (clock: Clock): FollowerOptions => ({ clock, maxAttempts: 3, maxIterations: 15 });

test('a run of which nothing was heard has only its end', () => {
  const told: unknown[] = [];
  const callbacks: ExecuteCallbacks<unknown> = {
    onAttemptComplete: () => told.push('complete'),
    onFailure: (...given) => told.push(given),
  };
  follower(agent, callbacks, around(manualClock())).fail(at, error);
  expect(told).toEqual([[{ ...at, maxAttempts: 3, maxIterations: 15 }, error]]);
});

test('signals, which come between no states, tell nothing', () => {
  const told: unknown[] = [];
  const { follow, state } = follower(agent, { onToolCall: () => told.push('call') }, around(manualClock()));
  follow({ type: 'call-started', index: 0, call: { type: 'tool-call', id: 'c', name: 'look', arguments: '{}' } });
  expect(told).toEqual([]);
  expect(state()).toEqual({ attempt: 1, maxAttempts: 3, iteration: 0, maxIterations: 15 });
});

describe('what callbacks return', () => {
  test('no promise: nothing is waited for', async () => {
    const clock = manualClock();
    const { succeed, errors } = follower(agent, { onSuccess: () => 5 }, around(clock));
    succeed(at, {});
    expect(await errors()).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  test('promises that settle are waited for, and the timer is called off', async () => {
    const clock = manualClock();
    const { promise, resolve } = Promise.withResolvers<void>();
    const { succeed, errors } = follower(agent, { onSuccess: () => promise }, around(clock));
    succeed(at, {});
    const collected = errors();
    expect(clock.pending).toBe(1);
    resolve();
    expect(await collected).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  test('a promise that never settles is told when it is late', async () => {
    const clock = manualClock();
    const never = new Promise(() => {});
    const { fail, errors } = follower(agent, { onFailure: () => never }, around(clock));
    fail(at, error);
    const collected = errors();
    await clock.advance(5_000);
    expect(await collected).toEqual([{ callback: 'onFailure', message: 'It had not ended after 5000 ms.' }]);
  });

  test('what is collected does not change any more', async () => {
    const clock = manualClock();
    const { promise, reject } = Promise.withResolvers<void>();
    const { succeed, errors } = follower(agent, { onSuccess: () => promise }, around(clock));
    succeed(at, {});
    const collecting = errors();
    await clock.advance(5_000);
    const collected = await collecting;
    reject(new Error('too late'));
    await clock.advance(0);
    expect(collected).toHaveLength(1);
  });
});
