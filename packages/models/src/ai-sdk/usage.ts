import type { Usage } from '@treadle/core';

/** Counts are objects with a total and its parts; early versions of V3 had plain numbers. */
export function usageOf(usage: unknown): Usage {
  const { inputTokens, outputTokens, cachedInputTokens, reasoningTokens } = recordOf(usage);
  const input = recordOf(inputTokens);
  const output = recordOf(outputTokens);
  const cached = count(input['cacheRead'] ?? cachedInputTokens);
  const written = count(input['cacheWrite']);
  const reasoning = count(output['reasoning'] ?? reasoningTokens);
  return {
    inputTokens: total(inputTokens, [input['noCache'], input['cacheRead'], input['cacheWrite']]),
    outputTokens: total(outputTokens, [output['text'], output['reasoning']]),
    ...(cached !== undefined && { cachedTokens: cached }),
    ...(written !== undefined && { cacheWriteTokens: written }),
    ...(reasoning !== undefined && { reasoningTokens: reasoning }),
  };
}

function total(told: unknown, parts: readonly unknown[]): number {
  const whole = count(told) ?? count(recordOf(told)['total']);
  return whole ?? parts.reduce<number>((sum, part) => sum + (count(part) ?? 0), 0);
}

function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
