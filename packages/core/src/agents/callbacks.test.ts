import { describe, expect, test } from 'vitest';
import { manualClock } from '../testing/index.ts';
import type { Clock } from '../platform.ts';
import { callbackDispatcher, type DispatcherOptions, type ExecuteCallbacks } from './callbacks.ts';
import { defineAgent, type AnyAgent } from './define.ts';
import { agentError } from './result.ts';

const agent: AnyAgent = defineAgent<unknown, unknown>({
  name: 'a',
  description: 'An agent',
  model: { id: 'm', reply: () => Promise.reject(new Error('unexpected model call')) },
  prompts: { user: 'Go' },
  tools: { output: { name: 'answer', description: 'Answers' } },
  validation: { outputSchema: { type: 'object' }, maxAttempts: 3 },
});

const error = agentError('SUBMIT_BEFORE_OUTPUT', 'no', { attempt: 1, iteration: 1 });
const position = { attempt: 2, iteration: 4 };

const optionsWith = (clock: Clock): DispatcherOptions => ({ clock, maxAttempts: 3, maxIterations: 15 });

test('a run without items has only an onFailure callback', () => {
  const calls: unknown[] = [];
  const callbacks: ExecuteCallbacks<unknown> = {
    onAttemptComplete: () => calls.push('complete'),
    onFailure: (...args) => calls.push(args),
  };
  callbackDispatcher(agent, callbacks, optionsWith(manualClock())).fail(position, error);
  expect(calls).toEqual([[{ ...position, maxAttempts: 3, maxIterations: 15 }, error]]);
});

test('items without states invoke no callback', () => {
  const calls: unknown[] = [];
  const { onItem, state } = callbackDispatcher(
    agent,
    { onToolCall: () => calls.push('call') },
    optionsWith(manualClock()),
  );
  onItem({ type: 'call-started', index: 0, call: { type: 'tool-call', id: 'c', name: 'look', arguments: '{}' } });
  expect(calls).toEqual([]);
  expect(state()).toEqual({ attempt: 1, maxAttempts: 3, iteration: 0, maxIterations: 15 });
});

describe('return values of callbacks', () => {
  test('a value that is not a promise is not awaited', async () => {
    const clock = manualClock();
    const { succeed, errors } = callbackDispatcher(agent, { onSuccess: () => 5 }, optionsWith(clock));
    succeed(position, {});
    expect(await errors()).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  test('promises are awaited, and the timer is cancelled', async () => {
    const clock = manualClock();
    const { promise, resolve } = Promise.withResolvers<void>();
    const { succeed, errors } = callbackDispatcher(agent, { onSuccess: () => promise }, optionsWith(clock));
    succeed(position, {});
    const collected = errors();
    expect(clock.pending).toBe(1);
    resolve();
    expect(await collected).toEqual([]);
    expect(clock.pending).toBe(0);
  });

  test('a promise that is not settled in time is an error', async () => {
    const clock = manualClock();
    const never = new Promise(() => {});
    const { fail, errors } = callbackDispatcher(agent, { onFailure: () => never }, optionsWith(clock));
    fail(position, error);
    const collected = errors();
    await clock.advance(5_000);
    expect(await collected).toEqual([{ callback: 'onFailure', message: 'Its promise was not settled after 5000 ms.' }]);
  });

  test('a rejection after the deadline does not change the collected errors', async () => {
    const clock = manualClock();
    const { promise, reject } = Promise.withResolvers<void>();
    const { succeed, errors } = callbackDispatcher(agent, { onSuccess: () => promise }, optionsWith(clock));
    succeed(position, {});
    const collecting = errors();
    await clock.advance(5_000);
    const collected = await collecting;
    reject(new Error('too late'));
    await clock.advance(0);
    expect(collected).toHaveLength(1);
  });
});
