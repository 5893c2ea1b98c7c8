import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { statusLine, type StatusLine } from './status-line.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const ERASE = '\r\u001b[2K';

function open(
  env: Record<string, string> = {},
  terminal: object = { isTTY: true, columns: 30 },
): StatusLine & { take(): string } {
  const stderr = Object.assign(new PassThrough().setEncoding('utf8'), terminal);
  return { ...statusLine({ stderr, env }), take: () => (stderr.read() as string | null) ?? '' };
}

test('shows what is waited for and for how long, and goes without a trace', () => {
  const { show, hide, take } = open();
  show('model');
  expect(take()).toBe('');
  vi.advanceTimersByTime(100);
  expect(take()).toBe(`${ERASE}⠋ model 0 s`);
  vi.advanceTimersByTime(900);
  show('model');
  vi.advanceTimersByTime(100);
  expect(take()).toMatch(/⠋ model 1 s$/);
  show('bash');
  vi.advanceTimersByTime(100);
  expect(take()).toMatch(/ bash 0 s$/);
  vi.advanceTimersByTime(65_000);
  expect(take()).toMatch(/ bash 1 min 5 s$/);
  hide();
  expect(take()).toBe(ERASE);
  vi.advanceTimersByTime(1_000);
  hide();
  expect(take()).toBe('');
  expect(vi.getTimerCount()).toBe(0);
});

test('is removed for other lines, and drawn again', () => {
  const { show, clear, hide, take } = open();
  show('model');
  clear();
  vi.advanceTimersByTime(100);
  take();
  clear();
  clear();
  expect(take()).toBe(ERASE);
  vi.advanceTimersByTime(100);
  expect(take()).toContain('model 0 s');
  hide();
});

test('shows one line of output of a tool, shortened and without control sequences', () => {
  const { show, detail, hide, take } = open();
  show('bash');
  detail('\u001b[31mcompiling something with a long name');
  vi.advanceTimersByTime(100);
  expect(take()).toBe(`${ERASE}⠋ bash 0 s | \\u001b[31mcompi…`);
  show('read');
  vi.advanceTimersByTime(100);
  expect(take()).toMatch(/ read 0 s$/);
  hide();
});

test.each([
  ['not a terminal', {}, {}],
  ['NO_COLOR', { NO_COLOR: '1' }, { isTTY: true }],
  ['TERM=dumb', { TERM: 'dumb' }, { isTTY: true }],
])('shows nothing: %s', (_, env, terminal) => {
  const { show, detail, take } = open(env, terminal);
  show('model');
  detail('x');
  vi.advanceTimersByTime(1_000);
  expect([take(), vi.getTimerCount()]).toEqual(['', 0]);
});
