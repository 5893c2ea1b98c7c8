import { getEventListeners } from 'node:events';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { turnstile, type Entry, type Turnstile } from './turnstile.ts';

const never = new AbortController().signal;

/** Enters one after the other, and notes how each of them fares. */
function crowd(gate: Turnstile): {
  enter: (name: string, signal?: AbortSignal, deadline?: number) => Promise<Entry>;
  leave: (name: string) => void;
  readonly heard: string[];
} {
  const heard: string[] = [];
  const inside = new Map<string, () => void>();
  return {
    heard,
    async enter(name, signal = never, deadline = Infinity) {
      const entry = await gate.enter(signal, deadline);
      heard.push(`${name} ${entry.type}`);
      if (entry.type === 'in') inside.set(name, entry.leave);
      return entry;
    },
    leave: (name) => inside.get(name)!(),
  };
}

const settled = (clock: ManualClock): Promise<void> => clock.advance(0);

test('so many at once, the others in the order in which they came', async () => {
  const clock = manualClock();
  const { enter, leave, heard } = crowd(turnstile({ concurrency: 2 }, clock));
  for (const name of 'abcde') void enter(name);
  await settled(clock);
  expect(heard).toEqual(['a in', 'b in']);
  leave('b');
  leave('b');
  await settled(clock);
  expect(heard).toEqual(['a in', 'b in', 'c in']);
  leave('a');
  leave('c');
  await settled(clock);
  expect(heard.slice(3)).toEqual(['d in', 'e in']);
  expect(clock.pending).toBe(0);
});

test('so many begin within any minute', async () => {
  const clock = manualClock(5);
  const { enter, leave, heard } = crowd(turnstile({ requestsPerMinute: 2 }, clock));
  void enter('a');
  await clock.advance(10_000);
  for (const name of 'bcde') void enter(name);
  await settled(clock);
  leave('a');
  await clock.advance(49_999);
  void enter('f');
  await settled(clock);
  expect(heard).toEqual(['a in', 'b in']);
  await clock.advance(1);
  expect(heard).toEqual(['a in', 'b in', 'c in']);
  await clock.advance(10_000);
  expect(heard).toEqual(['a in', 'b in', 'c in', 'd in']);
  await clock.advance(50_000);
  expect(heard.at(-1)).toBe('e in');
  await clock.advance(10_000);
  expect(heard.at(-1)).toBe('f in');
  expect(clock.pending).toBe(0);
});

test('whoever is cancelled leaves the queue at once, and nothing stays behind', async () => {
  const clock = manualClock();
  const { enter, leave, heard } = crowd(turnstile({ concurrency: 1 }, clock));
  const controller = new AbortController();
  void enter('a');
  void enter('b', controller.signal, 500);
  void enter('c');
  await settled(clock);
  controller.abort();
  await settled(clock);
  expect(heard).toEqual(['a in', 'b cancelled']);
  expect(clock.pending).toBe(0);
  expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
  leave('a');
  await settled(clock);
  expect(heard.at(-1)).toBe('c in');
  await enter('d', controller.signal);
  expect(heard.at(-1)).toBe('d cancelled');
});

test('the last one who waits for the minute leaves no timer behind', async () => {
  const clock = manualClock();
  const { enter } = crowd(turnstile({ requestsPerMinute: 1 }, clock));
  const controller = new AbortController();
  await enter('a');
  void enter('b', controller.signal);
  await settled(clock);
  expect(clock.pending).toBe(1);
  controller.abort();
  await settled(clock);
  expect(clock.pending).toBe(0);
});

test('nobody waits beyond the deadline, and nobody waits at all if it is known to be in vain', async () => {
  const clock = manualClock();
  const busy = crowd(turnstile({ concurrency: 1 }, clock));
  void busy.enter('a');
  void busy.enter('b', never, 1_000);
  await clock.advance(999);
  expect(busy.heard).toEqual(['a in']);
  await clock.advance(1);
  expect(busy.heard).toEqual(['a in', 'b late']);

  const slow = crowd(turnstile({ requestsPerMinute: 1 }, clock));
  void slow.enter('a');
  void slow.enter('b', never, clock.now() + 60_000);
  void slow.enter('c', never, clock.now() + 60_001);
  await settled(clock);
  expect(slow.heard).toEqual(['a in', 'b late']);
  await clock.advance(60_000);
  expect(slow.heard.at(-1)).toBe('c in');
  expect(clock.pending).toBe(0);
});
