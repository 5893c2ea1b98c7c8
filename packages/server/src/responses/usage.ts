import type { Usage } from '@treadle/core';
import type { WireUsage } from '../wire/response.ts';

export function wireUsage({ inputTokens, outputTokens, cachedTokens = 0, reasoningTokens = 0 }: Usage): WireUsage {
  return {
    input_tokens: inputTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: outputTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: inputTokens + outputTokens,
  };
}
