import type { Usage } from '@treadle/core';

/** What a provider says of each count, if it does. */
export interface ToldUsage {
  readonly input: unknown;
  readonly output: unknown;
  readonly cached?: unknown;
  readonly cacheWrite?: unknown;
  readonly reasoning?: unknown;
  readonly cost?: unknown;
}

export function usageOf({ input, output, cached, cacheWrite, reasoning, cost }: ToldUsage): Usage {
  const usage: { -readonly [Count in keyof Usage]: Usage[Count] } = {
    inputTokens: countOf(input) ?? 0,
    outputTokens: countOf(output) ?? 0,
  };
  const [cachedTokens, cacheWriteTokens, reasoningTokens] = [countOf(cached), countOf(cacheWrite), countOf(reasoning)];
  if (cachedTokens !== undefined) usage.cachedTokens = cachedTokens;
  if (cacheWriteTokens !== undefined) usage.cacheWriteTokens = cacheWriteTokens;
  if (reasoningTokens !== undefined) usage.reasoningTokens = reasoningTokens;
  if (typeof cost === 'number' && Number.isFinite(cost) && cost >= 0) usage.cost = cost;
  return usage;
}

/** A number of tokens. Some hosts send it as text; what cannot be one is as good as not told. */
export function countOf(told: unknown): number | undefined {
  const count = typeof told === 'string' && told.trim() !== '' ? Number(told) : told;
  return Number.isSafeInteger(count) && (count as number) >= 0 ? (count as number) : undefined;
}
