import { expect, test } from 'vitest';
import { manualClock } from './manual-clock.ts';

test('moves only when it is advanced', async () => {
  const clock = manualClock(1_000);
  expect(clock.now()).toBe(1_000);
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(clock.now()).toBe(1_000);
  await clock.advance(250);
  expect(clock.now()).toBe(1_250);
  expect(manualClock().now()).toBe(0);
});

test('fires due timers in order, each once and at its own time', async () => {
  const clock = manualClock(100);
  const fired: [string, number][] = [];
  const note = (name: string) => (): void => void fired.push([name, clock.now()]);
  clock.timer(30, note('c'));
  clock.timer(10, note('a'));
  clock.timer(10, note('b'));
  clock.timer(31, note('d'));
  expect(clock.pending).toBe(4);
  await clock.advance(30);
  expect(fired).toEqual([
    ['a', 110],
    ['b', 110],
    ['c', 130],
  ]);
  expect(clock.pending).toBe(1);
  await clock.advance(100);
  expect(fired.slice(3)).toEqual([['d', 131]]);
  expect(clock.now()).toBe(230);
  expect(clock.pending).toBe(0);
});

test('does not fire a cancelled timer', async () => {
  const clock = manualClock();
  let fired = 0;
  const cancel = clock.timer(10, () => fired++);
  cancel();
  cancel();
  expect(clock.pending).toBe(0);
  await clock.advance(20);
  expect(fired).toBe(0);
});

test('a timer can cancel another that is due at the same time', async () => {
  const clock = manualClock();
  let fired = 0;
  clock.timer(10, () => cancel());
  const cancel = clock.timer(10, () => fired++);
  await clock.advance(10);
  expect(fired).toBe(0);
});

test('fires due timers that were set by timers', async () => {
  const clock = manualClock();
  const at: number[] = [];
  const again = (): void => {
    at.push(clock.now());
    clock.timer(10, again);
  };
  clock.timer(10, again);
  await clock.advance(35);
  expect(at).toEqual([10, 20, 30]);
  expect(clock.pending).toBe(1);
});

test('a timer of 0 ms fires only when the clock is advanced', async () => {
  const clock = manualClock();
  let fired = false;
  clock.timer(0, () => (fired = true));
  await Promise.resolve();
  expect(fired).toBe(false);
  await clock.advance(0);
  expect(fired).toBe(true);
});

test('promise callbacks of a timer run before the next timer fires', async () => {
  const clock = manualClock();
  const log: string[] = [];
  clock.timer(10, async () => {
    for (let step = 0; step < 50; step++) await Promise.resolve();
    log.push('the first is done');
  });
  clock.timer(20, () => log.push('the second'));
  await clock.advance(20);
  expect(log).toEqual(['the first is done', 'the second']);
});

test('pending promise callbacks run before the clock is advanced', async () => {
  const clock = manualClock();
  const log: string[] = [];
  void (async () => {
    for (let step = 0; step < 50; step++) await Promise.resolve();
    clock.timer(5, () => log.push(`fired at ${clock.now()}`));
  })();
  await clock.advance(10);
  expect(log).toEqual(['fired at 5']);
});
