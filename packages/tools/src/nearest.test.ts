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

test('suggests the nearest name in a question', () => {
  expect(didYouMean('rn', ['run'])).toBe(' Did you mean "run"?');
  expect(didYouMean('something', ['run'])).toBe('');
});
