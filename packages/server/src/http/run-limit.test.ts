import { expect, test } from 'vitest';
import { runLimit } from './run-limit.ts';

const refused = (message: string): Error =>
  expect.objectContaining({
    status: 429,
    type: 'rate_limit_error',
    code: 'too_many_runs',
    headers: { 'Retry-After': '2' },
    message: expect.stringContaining(message),
  }) as Error;

test('runs over the limit are refused until one ends', () => {
  const limit = runLimit({ runs: 2 });
  const leave = limit.enter('a');
  limit.enter('b');
  expect(() => limit.enter('c')).toThrow(refused('The server has as many runs'));
  leave();
  expect(limit.running).toBe(1);
  limit.enter('c');
});

test('a tenant leaves room for others', () => {
  const limit = runLimit({ runs: 3, runsPerTenant: 1 });
  const leave = limit.enter('a');
  expect(() => limit.enter('a')).toThrow(refused('You have 1 runs under way'));
  limit.enter('b');
  leave();
  limit.enter('a');
  expect(limit.running).toBe(2);
});

test('a place is given back once, however often', () => {
  const limit = runLimit({ runs: 3, runsPerTenant: 2 });
  const leave = limit.enter('a');
  limit.enter('a');
  leave();
  leave();
  expect(limit.running).toBe(1);
  limit.enter('a');
  expect(() => limit.enter('a')).toThrow('2 runs');
});
