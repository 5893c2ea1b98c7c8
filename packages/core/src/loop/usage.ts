import type { Usage } from '../model.ts';

export const NO_USAGE: Usage = { inputTokens: 0, outputTokens: 0, cost: 0 };

/** A sum with an unknown cost has an unknown cost. */
export function addUsage(a: Usage, b: Usage): Usage {
  const sum: { -readonly [Field in keyof Usage]: Usage[Field] } = {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
  };
  const cachedTokens = (a.cachedTokens ?? 0) + (b.cachedTokens ?? 0);
  const cacheWriteTokens = (a.cacheWriteTokens ?? 0) + (b.cacheWriteTokens ?? 0);
  const reasoningTokens = (a.reasoningTokens ?? 0) + (b.reasoningTokens ?? 0);
  if (cachedTokens > 0) sum.cachedTokens = cachedTokens;
  if (cacheWriteTokens > 0) sum.cacheWriteTokens = cacheWriteTokens;
  if (reasoningTokens > 0) sum.reasoningTokens = reasoningTokens;
  if (a.cost !== undefined && b.cost !== undefined) sum.cost = a.cost + b.cost;
  return sum;
}

export function tokensOf(usage: Usage): number {
  return usage.inputTokens + usage.outputTokens;
}
