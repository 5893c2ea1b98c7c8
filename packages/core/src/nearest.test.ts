import { expect, test } from 'vitest';
import { didYouMean, nearest } from './nearest.ts';

test.each([
  ['chta', 'chat'],
  ['rnu', 'run'],
  ['RUN', 'run'],
  ['cha', 'chat'],
  ['serve', undefined],
  ['', undefined],
])('the nearest name to "%s" is %s', (name, meant) => {
  expect(nearest(name, ['run', 'chat'])).toBe(meant);
});

test('compares many long names in a short time', () => {
  const names = Array.from({ length: 10_000 }, (_, at) => `${'n'.repeat(240)}${at}`);
  const start = performance.now();
  expect(nearest('q'.repeat(244), names)).toBeUndefined();
  expect(performance.now() - start).toBeLessThan(1_000);
});

test('suggests the nearest name in a question', () => {
  expect(didYouMean('rn', ['run'])).toBe(' Did you mean "run"?');
  expect(didYouMean('something', ['run'])).toBe('');
});
