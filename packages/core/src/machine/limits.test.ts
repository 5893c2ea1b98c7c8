import { expect, test } from 'vitest';
import type { Limits, Rules } from './rules.ts';
import { LIMIT_NAMES, NEW, shareOfLimits } from './step.ts';

/** A value for every limit. A new limit does not compile until it has one here. */
const limits: Required<Limits> = { calls: 10, tokens: 100, cost: 1, durationMs: 1_000 };

test('every limit of a run is shared with its child runs', () => {
  const state = { ...NEW, rules: { limits } as Rules };
  expect(Object.keys(limits).toSorted()).toEqual([...LIMIT_NAMES].toSorted());
  expect(shareOfLimits(state, 0.5)).toEqual({ calls: 5, tokens: 50, cost: 0.5, durationMs: 500 });
});

test('a share is a part of what is left, in whole numbers except for the cost, and never below 0', () => {
  const used = { calls: 3, usage: { inputTokens: 90, outputTokens: 20, cost: 0.5 }, activeMs: 999 };
  const state = { ...NEW, ...used, rules: { limits } as Rules };
  expect(shareOfLimits(state, 0.5)).toEqual({ calls: 3, tokens: 0, cost: 0.25, durationMs: 0 });
});

test('a run without limits has none to share', () => {
  expect(shareOfLimits({ ...NEW, rules: { limits: {} } as Rules }, 0.5)).toEqual({});
});
