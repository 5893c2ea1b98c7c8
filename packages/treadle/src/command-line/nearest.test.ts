import { expect, test } from 'vitest';
import { didYouMean, nearest } from './nearest.ts';

test.each([
  ['chta', 'chat'],
  ['rnu', 'run'],
  ['RUN', 'run'],
  ['cha', 'chat'],
  ['serve', undefined],
  ['', undefined],
])('%s: %s', (name, meant) => {
  expect(nearest(name, ['run', 'chat'])).toBe(meant);
});

test('says it as a question, or nothing', () => {
  expect(didYouMean('rn', ['run'])).toBe(' Did you mean "run"?');
  expect(didYouMean('something', ['run'])).toBe('');
});
