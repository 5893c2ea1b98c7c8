import { expect, test } from 'vitest';
import { exactLine, exactText, oneLine, printable } from './printable.ts';

test('escapes control sequences', () => {
  expect(printable('a\u001b[2Jb\u0007')).toBe('a\\u001b[2Jb\\u0007');
  expect(printable('\u009b31m')).toBe('\\u009b31m');
  expect(printable('safe\u202etxt')).toBe('safe\\u202etxt');
  expect(printable('tab\tline\nümläut 🙂 日本')).toBe('tab\tline\nümläut 🙂 日本');
  expect(printable('dos\r\n')).toBe('dos\n');
});

test('shows every character of a text that is to be approved', () => {
  expect(exactLine('rm\u00a0-rf\u200b \u{e0041}a\tb\r\nAllow it?')).toBe(
    'rm\\u00a0-rf\\u200b \\u{e0041}a\\tb\\r\\nAllow it?',
  );
  expect(exactText('ls\r\nAllow it? [y/N] y\u001b[A\u2028\ud800', '  ')).toBe(
    'ls\\r\n  Allow it? [y/N] y\\u001b[A\\u2028\\ud800',
  );
  expect(exactText('\tümläut 🙂 日本', '  ')).toBe('\tümläut 🙂 日本');
  expect(exactText('a\u3164\n\ufe0f', '  ')).toBe('a\\u3164\n  \\ufe0f');
});

test('makes one line, and cuts it between characters', () => {
  expect(oneLine('a\n  b\tc', 80)).toBe('a b c');
  expect(oneLine('🙂'.repeat(10), 6)).toBe('🙂🙂…');
  expect(oneLine('日本語', 6)).toBe('日本語');
  expect(oneLine('日本語', 5)).toBe('日本…');
  expect(oneLine('e\u0301'.repeat(5), 5)).toBe('e\u0301'.repeat(5));
  expect(oneLine('x'.repeat(5), 5)).toBe('xxxxx');
  expect(oneLine(' '.repeat(10_000) + 'x', 80)).toBe('…');
});
