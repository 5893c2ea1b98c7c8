import type { Usage } from '@treadle/core';

/** `1,200 in (800 cached), 50 out (20 reasoning), $0.0031`. What is not known is left out. */
export function usageText({ inputTokens, outputTokens, cachedTokens, reasoningTokens, cost }: Usage): string {
  const part = (tokens: number | undefined, name: string): string => (tokens ? ` (${count(tokens)} ${name})` : '');
  return [
    `${count(inputTokens)} in${part(cachedTokens, 'cached')}`,
    `${count(outputTokens)} out${part(reasoningTokens, 'reasoning')}`,
    ...(cost ? [costText(cost)] : []),
  ].join(', ');
}

function costText(cost: number): string {
  return `$${cost >= 1 ? cost.toFixed(2) : cost.toFixed(4)}`;
}

function count(tokens: number): string {
  return tokens.toLocaleString('en');
}
