import { expect, test } from 'vitest';
import { resultWords } from './call-text.ts';

const words = (text: string, isError = false, tool = 'bash'): string =>
  resultWords({ content: [{ type: 'text', text }], isError }, tool);

test.each([
  ['ok\n', false, 'ok'],
  ['1\n2\n3\n', false, '3 (the last of 3 lines)'],
  ['[exit code 0]', false, 'exit code 0'],
  [
    'node:internal\n  at x\nAssertionError: 5 !== 6\nNode.js v24\n[exit code 1]',
    true,
    'exit code 1: AssertionError: 5 !== 6',
  ],
  ['building\nit stops here\n[exit code 2]', true, 'exit code 2: it stops here'],
  ['[killed by SIGKILL]', true, 'killed by SIGKILL'],
  // It has not run.
  ['The call of "bash" was denied: no.\nAsk.', true, 'denied: no.'],
  ['The call of "bash" was not approved: The user said no: not now', true, 'not approved: not now'],
])('of bash %j', (text, isError, expected) => {
  expect(words(text, isError)).toBe(expected);
});

test('of another tool: how many lines, and the first', () => {
  expect(words('a\nb', false, 'read')).toBe('2 lines: a');
});
