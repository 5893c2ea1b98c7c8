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

function failed(code: ModelErrorCode, given: { retryable?: boolean; retryAfterMs?: number } = {}): ModelReply {
  return { type: 'failure', error: { code, message: '', retryable: true, ...given } };
}

function go(guard: Breaker, reply: ModelReply): string {
  const passed = guard.pass();
  if (passed.type === 'open') return `open ${passed.ms}`;
  passed.told(reply);
  return 'passed';
}

const DOWN = failed('overloaded');

test('failures in a row open it, then one may try it, and how that goes decides', async () => {
  const clock = manualClock();
  const guard = breaker({ failures: 2, cooldownMs: 1_000 }, clock);
  expect([go(guard, DOWN), go(guard, OK), go(guard, DOWN), go(guard, DOWN)]).toEqual(Array(4).fill('passed'));
  expect(go(guard, OK)).toBe('open 1000');
  await clock.advance(999);
  expect(guard.admits(clock.now())).toBe(false);
  expect(guard.admits(1_000)).toBe(true);
  expect(go(guard, OK)).toBe('open 1');

  await clock.advance(1);
  const probe = guard.pass();
  expect(probe.type).toBe('passed');
  expect(go(guard, OK)).toBe('open 0');
  expect(guard.admits(clock.now())).toBe(false);
  if (probe.type === 'passed') probe.told(DOWN);
  expect(go(guard, OK)).toBe('open 1000');

  await clock.advance(1_000);
  expect([go(guard, OK), go(guard, DOWN), go(guard, DOWN), go(guard, OK)]).toEqual([
    'passed',
    'passed',
    'passed',
    'open 1000',
  ]);
});

test('a probe that was cancelled tells nothing, and the next one tries', async () => {
  const clock = manualClock();
  const guard = breaker({ failures: 1, cooldownMs: 1_000 }, clock);
  go(guard, DOWN);
  await clock.advance(1_000);
  expect([go(guard, failed('cancelled')), go(guard, OK), go(guard, OK)]).toEqual(['passed', 'passed', 'passed']);
});

test('what began before it opened says nothing about now', async () => {
  const clock = manualClock();
  const guard = breaker({ failures: 1, cooldownMs: 1_000 }, clock);
  const early = [guard.pass(), guard.pass()];
  go(guard, DOWN);
  for (const passed of early) if (passed.type === 'passed') passed.told(OK);
  expect(go(guard, OK)).toBe('open 1000');
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
] as const)('%s %j counts as a failure: %s', (code, given, counts) => {
  const guard = breaker({ failures: 1 }, manualClock());
  go(guard, failed(code, given));
  expect(go(guard, OK)).toBe(counts ? 'open 30000' : 'passed');
});
