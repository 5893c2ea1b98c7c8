import type { Usage } from '../model.ts';

export const NO_USAGE: Usage = { inputTokens: 0, outputTokens: 0, cost: 0 };

/** A sum with an unknown cost has an unknown cost. */
export function addUsage(a: Usage, b: Usage): Usage {
  const cachedTokens = (a.cachedTokens ?? 0) + (b.cachedTokens ?? 0);
  const cacheWriteTokens = (a.cacheWriteTokens ?? 0) + (b.cacheWriteTokens ?? 0);
  const reasoningTokens = (a.reasoningTokens ?? 0) + (b.reasoningTokens ?? 0);
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    ...(cachedTokens > 0 && { cachedTokens }),
    ...(cacheWriteTokens > 0 && { cacheWriteTokens }),
    ...(reasoningTokens > 0 && { reasoningTokens }),
    ...(a.cost !== undefined && b.cost !== undefined && { cost: a.cost + b.cost }),
  };
}

export function tokensOf(usage: Usage): number {
  return usage.inputTokens + usage.outputTokens;
}
