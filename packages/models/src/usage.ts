import type { Usage } from '@treadle/core';

/** The counts as a provider reports them, if it does. */
export interface ReportedUsage {
  readonly input: unknown;
  readonly output: unknown;
  readonly cached?: unknown;
  readonly cacheWrite?: unknown;
  readonly reasoning?: unknown;
  readonly cost?: unknown;
}

export function usageOf({ input, output, cached, cacheWrite, reasoning, cost }: ReportedUsage): Usage {
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

/** A number of tokens. Some hosts send it as text. Returns undefined for anything that is not a count. */
export function countOf(value: unknown): number | undefined {
  const count = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return Number.isSafeInteger(count) && (count as number) >= 0 ? (count as number) : undefined;
}
