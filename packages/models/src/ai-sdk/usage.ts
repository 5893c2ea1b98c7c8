import type { Usage } from '@treadle/core';
import { isRecord } from '../json.ts';
import { countOf, usageOf as usageTold } from '../usage.ts';

/** Counts are objects with a total and its parts; early versions of V3 had plain numbers. */
export function usageOf(usage: unknown): Usage {
  const { inputTokens, outputTokens, cachedInputTokens, reasoningTokens } = recordOf(usage);
  const input = recordOf(inputTokens);
  const output = recordOf(outputTokens);
  return usageTold({
    input: total(inputTokens, [input['noCache'], input['cacheRead'], input['cacheWrite']]),
    output: total(outputTokens, [output['text'], output['reasoning']]),
    cached: input['cacheRead'] ?? cachedInputTokens,
    cacheWrite: input['cacheWrite'],
    reasoning: output['reasoning'] ?? reasoningTokens,
  });
}

function total(told: unknown, parts: readonly unknown[]): number {
  const whole = countOf(told) ?? countOf(recordOf(told)['total']);
  return whole ?? parts.reduce<number>((sum, part) => sum + (countOf(part) ?? 0), 0);
}

function recordOf(value: unknown): Record<string, unknown> {
  return isRecord(value) ? value : {};
}
