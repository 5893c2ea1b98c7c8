import { expect, test } from 'vitest';
import { ageText, durationText, parseAge, sizeText, timestampText, usageText } from './quantities.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

test.each([
  [-5, '0 ms'],
  [0, '0 ms'],
  [99, '99 ms'],
  [100, '0.1 s'],
  [1_240, '1.2 s'],
  [9_949, '9.9 s'],
  [9_951, '10 s'],
  [59_400, '59 s'],
  [59_600, '1 min'],
  [3 * MINUTE + 5 * SECOND, '3 min 5 s'],
  [HOUR - 1, '1 h'],
  [2 * HOUR + 10 * MINUTE, '2 h 10 min'],
  [DAY - 1, '1 d'],
  [4 * DAY + 3 * HOUR + 59 * MINUTE, '4 d 3 h'],
])('prints a duration of %d ms as %s', (ms, text) => {
  expect(durationText(ms)).toBe(text);
});

test.each([
  [-1, '0 s'],
  [999, '0 s'],
  [59 * SECOND, '59 s'],
  [MINUTE, '1 min'],
  [HOUR - 1, '59 min'],
  [25 * HOUR, '1 d'],
  [400 * DAY, '400 d'],
])('prints an age of %d ms as %s', (ms, text) => {
  expect(ageText(ms)).toBe(text);
});

test.each([
  ['30d', 30 * DAY],
  ['12h', 12 * HOUR],
  ['45m', 45 * MINUTE],
  ['10s', 10 * SECOND],
  [' 2 w ', 14 * DAY],
  ['0d', 0],
  ['30', undefined],
  ['d', undefined],
  ['-1d', undefined],
  ['1.5d', undefined],
  ['1y', undefined],
  ['', undefined],
])('parses the age %j', (text, ms) => {
  expect(parseAge(text)).toBe(ms);
});

test('prints a timestamp in local time', () => {
  expect(timestampText(new Date(2026, 0, 2, 3, 4, 5).getTime())).toBe('2026-01-02 03:04:05');
});

test.each([
  [{ inputTokens: 10, outputTokens: 5 }, '10 in, 5 out'],
  [{ inputTokens: 12_000, outputTokens: 5, cost: 0 }, '12,000 in, 5 out'],
  [
    { inputTokens: 1_200, outputTokens: 50, cachedTokens: 800, reasoningTokens: 20, cost: 0.00314 },
    '1,200 in (800 cached), 50 out (20 reasoning), $0.0031',
  ],
  [{ inputTokens: 1, outputTokens: 1, cost: 0.0000126 }, '1 in, 1 out, $0.000013'],
  [{ inputTokens: 1, outputTokens: 1, cost: 0.00999 }, '1 in, 1 out, $0.01'],
  [{ inputTokens: 1, outputTokens: 1, cost: 0.5 }, '1 in, 1 out, $0.50'],
  [{ inputTokens: 1, outputTokens: 1, cost: 1_212.346 }, '1 in, 1 out, $1,212.35'],
])('prints the usage %j', (usage, text) => {
  expect(usageText(usage)).toBe(text);
});

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_000, '1 kB'],
  [1_240, '1.2 kB'],
  [32_000, '32 kB'],
  [999_999, '1 MB'],
  [5_000_000_000, '5 GB'],
])('prints a size of %d bytes as %s', (bytes, text) => {
  expect(sizeText(bytes)).toBe(text);
});
