import type { ModelErrorCode, ModelReply } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { breaker, type Breaker } from './breaker.ts';

const OK: ModelReply = {
  type: 'reply',
  content: [],
  finish: 'stop',
  usage: { inputTokens: 1, outputTokens: 1 },
  model: 'm',
};

function failureOf(code: ModelErrorCode, fields: { retryable?: boolean; retryAfterMs?: number } = {}): ModelReply {
  return { type: 'failure', error: { code, message: '', retryable: true, ...fields } };
}

function request(guard: Breaker, reply: ModelReply): string {
  const passed = guard.pass();
  if (passed.type === 'open') return `open ${passed.ms}`;
  passed.report(reply);
  return 'passed';
}

const DOWN = failureOf('overloaded');

test('consecutive failures open it, then one probe closes it or opens it again', async () => {
  const clock = manualClock();
  const guard = breaker({ failures: 2, cooldownMs: 1_000 }, clock);
  expect([request(guard, DOWN), request(guard, OK), request(guard, DOWN), request(guard, DOWN)]).toEqual(
    Array(4).fill('passed'),
  );
  expect(request(guard, OK)).toBe('open 1000');
  await clock.advance(999);
  expect(guard.admits(clock.now())).toBe(false);
  expect(guard.admits(1_000)).toBe(true);
  expect(request(guard, OK)).toBe('open 1');

  await clock.advance(1);
  const probe = guard.pass();
  expect(probe.type).toBe('passed');
  expect(request(guard, OK)).toBe('open 0');
  expect(guard.admits(clock.now())).toBe(false);
  if (probe.type === 'passed') probe.report(DOWN);
  expect(request(guard, OK)).toBe('open 1000');

  await clock.advance(1_000);
  expect([request(guard, OK), request(guard, DOWN), request(guard, DOWN), request(guard, OK)]).toEqual([
    'passed',
    'passed',
    'passed',
    'open 1000',
  ]);
});

test('a cancelled probe does not count, and the next request is the probe', async () => {
  const clock = manualClock();
  const guard = breaker({ failures: 1, cooldownMs: 1_000 }, clock);
  request(guard, DOWN);
  await clock.advance(1_000);
  expect([request(guard, failureOf('cancelled')), request(guard, OK), request(guard, OK)]).toEqual([
    'passed',
    'passed',
    'passed',
  ]);
});

test('ignores replies to requests from before it opened', async () => {
  const clock = manualClock();
  const guard = breaker({ failures: 1, cooldownMs: 1_000 }, clock);
  const early = [guard.pass(), guard.pass()];
  request(guard, DOWN);
  for (const passed of early) if (passed.type === 'passed') passed.report(OK);
  expect(request(guard, OK)).toBe('open 1000');
});

test.each([
  ['network', {}, true],
  ['timeout', {}, true],
  ['overloaded', {}, true],
  ['protocol', {}, true],
  ['rate-limit', {}, true],
  ['rate-limit', { retryAfterMs: 10 }, false],
  ['rate-limit', { retryable: false }, false],
  ['auth', { retryable: false }, false],
  ['invalid-request', { retryable: false }, false],
  ['context-length', { retryable: false }, false],
  ['content-filter', { retryable: false }, false],
  ['cancelled', { retryable: false }, false],
] as const)('%s %j counts as a failure: %s', (code, fields, counts) => {
  const guard = breaker({ failures: 1 }, manualClock());
  request(guard, failureOf(code, fields));
  expect(request(guard, OK)).toBe(counts ? 'open 30000' : 'passed');
});
