import { expect, test } from 'vitest';
import { usageText } from './usage-text.ts';

test.each([
  [{ inputTokens: 10, outputTokens: 5 }, '10 in, 5 out'],
  [{ inputTokens: 12_000, outputTokens: 5, cost: 0 }, '12,000 in, 5 out'],
  [
    { inputTokens: 1_200, outputTokens: 50, cachedTokens: 800, reasoningTokens: 20, cost: 0.00314 },
    '1,200 in (800 cached), 50 out (20 reasoning), $0.0031',
  ],
  [{ inputTokens: 1, outputTokens: 1, cost: 12.345 }, '1 in, 1 out, $12.35'],
])('%j', (usage, text) => {
  expect(usageText(usage)).toBe(text);
});
