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
  return {
    inputTokens: countOf(input) ?? 0,
    outputTokens: countOf(output) ?? 0,
    ...given('cachedTokens', countOf(cached)),
    ...given('cacheWriteTokens', countOf(cacheWrite)),
    ...given('reasoningTokens', countOf(reasoning)),
    ...given('cost', typeof cost === 'number' && Number.isFinite(cost) && cost >= 0 ? cost : undefined),
  };
}

/** A number of tokens. Some hosts send it as text; what cannot be one is as good as not told. */
export function countOf(told: unknown): number | undefined {
  const count = typeof told === 'string' && told.trim() !== '' ? Number(told) : told;
  return Number.isSafeInteger(count) && (count as number) >= 0 ? (count as number) : undefined;
}

function given(name: keyof Usage, count: number | undefined): Partial<Usage> {
  return count === undefined ? {} : { [name]: count };
}
