import { expect, test } from 'vitest';
import { evaluate, expressionIn, withoutNumberWords } from './arithmetic.ts';

test.each([
  ['1 + 2 * 3', 7],
  ['(1 + 2) * 3', 9],
  ['2 ^ 3 ^ 2', 512],
  ['-2 ^ 2', -4],
  ['2 ^ -1', 0.5],
  ['10 - 4 - 3', 3],
  ['7 % 4', 3],
  ['0.1 + 0.2', 0.3],
  ['--3', 3],
  ['1 / 0', undefined],
  ['1 +', undefined],
  ['(1', undefined],
  ['1 2', undefined],
  ['', undefined],
  ['alert(1)', undefined],
])('%s = %s', (expression, value) => {
  expect(evaluate(expression)).toBe(value);
});

test.each([
  ['what is 6 * 7?', '6 * 7'],
  ['6*7.', '6*7'],
  ['what is 6 times 7', '6 * 7'],
  ['5 squared', '5 ^ 2'],
  ['20 percent of 50', '20 / 100 * 50'],
  ['the sum of 2 and -3', '2 + -3'],
  ['read 2025-01-01.md', undefined],
  ['version 1.2.3', undefined],
  ['I have 3 cats', undefined],
])('in "%s" there is %s', (text, expression) => {
  expect(expressionIn(withoutNumberWords(text))).toBe(expression);
});
