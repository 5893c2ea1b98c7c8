import { getEventListeners } from 'node:events';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { turnstile, type Entry, type Turnstile } from './turnstile.ts';

const never = new AbortController().signal;

/** Enters requests by name and records the result of each. */
function requestsTo(limiter: Turnstile): {
  enter: (name: string, signal?: AbortSignal, deadline?: number) => Promise<Entry>;
  leave: (name: string) => void;
  readonly results: string[];
} {
  const results: string[] = [];
  const slots = new Map<string, () => void>();
  return {
    results,
    async enter(name, signal = never, deadline = Infinity) {
      const entry = await limiter.enter(signal, deadline);
      results.push(`${name} ${entry.type}`);
      if (entry.type === 'in') slots.set(name, entry.leave);
      return entry;
    },
    leave: (name) => slots.get(name)!(),
  };
}

const settled = (clock: ManualClock): Promise<void> => clock.advance(0);

test('limits concurrent requests and admits the others in order', async () => {
  const clock = manualClock();
  const { enter, leave, results } = requestsTo(turnstile({ concurrency: 2 }, clock));
  for (const name of 'abcde') void enter(name);
  await settled(clock);
  expect(results).toEqual(['a in', 'b in']);
  leave('b');
  leave('b');
  await settled(clock);
  expect(results).toEqual(['a in', 'b in', 'c in']);
  leave('a');
  leave('c');
  await settled(clock);
  expect(results.slice(3)).toEqual(['d in', 'e in']);
  expect(clock.pending).toBe(0);
});

test('limits the requests that start within any minute', async () => {
  const clock = manualClock(5);
  const { enter, leave, results } = requestsTo(turnstile({ requestsPerMinute: 2 }, clock));
  void enter('a');
  await clock.advance(10_000);
  for (const name of 'bcde') void enter(name);
  await settled(clock);
  leave('a');
  await clock.advance(49_999);
  void enter('f');
  await settled(clock);
  expect(results).toEqual(['a in', 'b in']);
  await clock.advance(1);
  expect(results).toEqual(['a in', 'b in', 'c in']);
  await clock.advance(10_000);
  expect(results).toEqual(['a in', 'b in', 'c in', 'd in']);
  await clock.advance(50_000);
  expect(results.at(-1)).toBe('e in');
  await clock.advance(10_000);
  expect(results.at(-1)).toBe('f in');
  expect(clock.pending).toBe(0);
});

test('removes a cancelled request from the queue at once, with its timer and listener', async () => {
  const clock = manualClock();
  const { enter, leave, results } = requestsTo(turnstile({ concurrency: 1 }, clock));
  const controller = new AbortController();
  void enter('a');
  void enter('b', controller.signal, 500);
  void enter('c');
  await settled(clock);
  controller.abort();
  await settled(clock);
  expect(results).toEqual(['a in', 'b cancelled']);
  expect(clock.pending).toBe(0);
  expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
  leave('a');
  await settled(clock);
  expect(results.at(-1)).toBe('c in');
  await enter('d', controller.signal);
  expect(results.at(-1)).toBe('d cancelled');
});

test('stops its timer when the last waiting request is cancelled', async () => {
  const clock = manualClock();
  const { enter } = requestsTo(turnstile({ requestsPerMinute: 1 }, clock));
  const controller = new AbortController();
  await enter('a');
  void enter('b', controller.signal);
  await settled(clock);
  expect(clock.pending).toBe(1);
  controller.abort();
  await settled(clock);
  expect(clock.pending).toBe(0);
});

test('is late at the deadline, or at once if the deadline cannot be met', async () => {
  const clock = manualClock();
  const busy = requestsTo(turnstile({ concurrency: 1 }, clock));
  void busy.enter('a');
  void busy.enter('b', never, 1_000);
  await clock.advance(999);
  expect(busy.results).toEqual(['a in']);
  await clock.advance(1);
  expect(busy.results).toEqual(['a in', 'b late']);

  const slow = requestsTo(turnstile({ requestsPerMinute: 1 }, clock));
  void slow.enter('a');
  void slow.enter('b', never, clock.now() + 60_000);
  void slow.enter('c', never, clock.now() + 60_001);
  await settled(clock);
  expect(slow.results).toEqual(['a in', 'b late']);
  await clock.advance(60_000);
  expect(slow.results.at(-1)).toBe('c in');
  expect(clock.pending).toBe(0);
});
