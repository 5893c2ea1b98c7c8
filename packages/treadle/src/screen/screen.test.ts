import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { openScreen, type Screen } from './screen.ts';
import { lineOf } from './spans.ts';

let frames: number;
let text: string;
let screen: Screen;

beforeEach(() => {
  vi.useFakeTimers();
  frames = 0;
  text = 'first';
  const stdout = Object.assign(new PassThrough().setEncoding('utf8'), { isTTY: true, columns: 80, rows: 24 });
  stdout.on('data', () => frames++);
  screen = openScreen({ stdout }, { palette: () => undefined, live: () => ({ lines: [lineOf(text)] }) });
  screen.refresh();
  vi.advanceTimersByTime(1);
});
afterEach(() => {
  screen.close();
  vi.useRealTimers();
});

/** How many frames are drawn until then. */
function framesAfter(ms: number): number {
  vi.advanceTimersByTime(ms);
  return frames;
}

test('draws at most one frame in 16 ms', () => {
  expect(frames).toBe(1);
  for (const next of ['second', 'third']) {
    text = next;
    screen.refresh();
  }
  expect([framesAfter(10), framesAfter(10), framesAfter(100)]).toEqual([1, 2, 2]);
});

test('draws the echo of a key sooner, also while a frame is due', () => {
  text = 'second';
  screen.refresh();
  screen.echo();
  expect([framesAfter(4), framesAfter(100)]).toEqual([2, 2]);
  for (const next of ['a', 'ab']) {
    text = next;
    screen.echo();
    expect(framesAfter(1)).toBe(3);
  }
  expect([framesAfter(4), framesAfter(100)]).toEqual([4, 4]);
});
