import { expect, test } from 'vitest';
import { checkPrice, costOf, type Price } from './price.ts';
import { priceOf } from './table.ts';

test.each([
  ['gpt-5-mini', true],
  ['gpt-5-mini-2025-08-07', true],
  ['claude-opus-4-5-20251101', true],
  ['gemini-2.5-pro', true],
  ['gemini-2.5-pro-preview-tts', false],
  ['gpt-5-mini-2025-08', false],
  ['gpt-5-mini-preview', false],
  ['gpt-5-minimal', false],
  ['my-gpt-5-mini', false],
  ['openai/gpt-5-mini', false],
  ['GPT-5-mini', false],
  ['gpt-5-mini-2025-08-07-2025-08-07', false],
  ['toString', false],
  ['', false],
])('priceOf knows "%s": %s', (model, isKnown) => {
  expect(priceOf(model) !== undefined).toBe(isKnown);
});

test('a dated snapshot has the price of its model', () => {
  expect(priceOf('gpt-5-mini-2025-08-07')).toEqual({ input: 0.25, cachedInput: 0.025, output: 2 });
});

const price: Price = { input: 10, output: 100, cachedInput: 1, cacheWrite: 20 };

test.each([
  [price, { inputTokens: 1_000_000, outputTokens: 0 }, 10],
  [price, { inputTokens: 0, outputTokens: 1_000_000 }, 100],
  [price, { inputTokens: 1_000_000, outputTokens: 0, cachedTokens: 400_000 }, 6 + 0.4],
  [price, { inputTokens: 1_000_000, outputTokens: 0, cachedTokens: 400_000, cacheWriteTokens: 100_000 }, 5 + 0.4 + 2],
  [price, { inputTokens: 0, outputTokens: 1_000_000, reasoningTokens: 500_000 }, 100],
  [{ input: 10, output: 100 }, { inputTokens: 100_000, outputTokens: 0, cachedTokens: 5, cacheWriteTokens: 5 }, 1],
  [{ input: 0, output: 0 }, { inputTokens: 5, outputTokens: 5 }, 0],
  // Some hosts do not include cached tokens in the input tokens. The cost must not become negative.
  [price, { inputTokens: 0, outputTokens: 0, cachedTokens: 0 }, undefined],
  [price, { inputTokens: 1, outputTokens: 0, cachedTokens: 1_000_000 }, 1],
])('the cost at %j for %j is %s', (rates, usage, expected) => {
  const cost = costOf(rates, usage);
  if (expected === undefined) expect(cost).toBeUndefined();
  else expect(cost).toBeCloseTo(expected, 9);
});

test('the rates for long requests apply to all tokens of the request', () => {
  const long: Price = { input: 10, output: 100, long: { over: 1_000, input: 20, output: 200 } };
  expect(costOf(long, { inputTokens: 1_000, outputTokens: 100 })).toBeCloseTo(0.02, 9);
  expect(costOf(long, { inputTokens: 1_001, outputTokens: 100 })).toBeCloseTo(0.04002, 9);
});

test.each([
  [5, 'is not a price'],
  [null, 'is not a price'],
  [{}, 'lacks "input" or "output"'],
  [{ input: 1 }, 'lacks "input" or "output"'],
  [{ input: -1, output: 1 }, 'has a wrong "input"'],
  [{ input: 1, output: '1' }, 'has a wrong "output"'],
  [{ input: 1, output: Number.NaN }, 'has a wrong "output"'],
  [{ input: 1, output: 1, long: { over: 5, input: 1 } }, 'lacks "input" or "output"'],
  [{ input: 1, output: 1, long: { over: Infinity, input: 1, output: 1 } }, 'has a wrong "long.over"'],
])('rejects the price %j', (price, problem) => {
  expect(() => checkPrice('openaiChat', price as Price)).toThrow(
    `openaiChat: "price" ${problem}. Pass one such as { input: 2.5, output: 10 }, in US dollars per million tokens.`,
  );
});
