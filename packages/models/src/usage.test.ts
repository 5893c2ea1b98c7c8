import { expect, test } from 'vitest';
import { countOf, usageOf } from './usage.ts';

test.each([
  [0, 0],
  [12, 12],
  ['12', 12],
  [-1, undefined],
  [1.5, undefined],
  [1e300, undefined],
  [Infinity, undefined],
  [NaN, undefined],
  ['', undefined],
  ['many', undefined],
  [null, undefined],
  [undefined, undefined],
  [[7], undefined],
  [true, undefined],
])('%j is read as a count of %s', (value, count) => {
  expect(countOf(value)).toBe(count);
});

test('omits counts that are not reported, except input and output tokens', () => {
  expect(usageOf({ input: undefined, output: null })).toEqual({ inputTokens: 0, outputTokens: 0 });
  expect(usageOf({ input: 5, output: 4, cached: 3, cacheWrite: 2, reasoning: 1, cost: 0.5 })).toEqual({
    inputTokens: 5,
    outputTokens: 4,
    cachedTokens: 3,
    cacheWriteTokens: 2,
    reasoningTokens: 1,
    cost: 0.5,
  });
  for (const cost of [-1, NaN, Infinity, '1'])
    expect(usageOf({ input: 1, output: 1, cost })).not.toHaveProperty('cost');
});
