import type { Limits, Usage } from '@treadle/core';

/** What a run has used of tokens and money. */
export interface Spending {
  readonly charge: (usage: Usage) => void;
  /** The limit that ends the run before the next turn; or nobody can tell what it has used, or what it has cost. */
  readonly met: (limits: Limits) => 'tokens' | 'cost' | 'tokens-unknown' | 'cost-unknown' | undefined;
  /** There is nothing left for a last answer. */
  readonly isOver: (limits: Limits) => boolean;
  readonly left: (limits: Limits, calls: number, durationMs: number) => Limits;
}

export function spendingOf(): Spending {
  let tokens = 0;
  let cost: number | undefined = 0;
  let charged = false;

  function met(limits: Limits): ReturnType<Spending['met']> {
    if (limits.tokens !== undefined && charged && tokens === 0) return 'tokens-unknown';
    if (tokens >= (limits.tokens ?? Infinity)) return 'tokens';
    if (limits.cost === undefined) return undefined;
    if (cost === undefined) return 'cost-unknown';
    return cost >= limits.cost ? 'cost' : undefined;
  }

  return {
    charge(usage) {
      charged = true;
      tokens += usage.inputTokens + usage.outputTokens;
      cost = cost === undefined || usage.cost === undefined ? undefined : cost + usage.cost;
    },
    met,
    isOver: (limits) => met(limits) !== undefined,
    left(limits, calls, durationMs) {
      const used = { calls, tokens, cost: cost ?? 0, durationMs };
      const entries = Object.entries(limits) as [keyof Limits, number][];
      return Object.fromEntries(entries.map(([name, limit]) => [name, Math.max(0, limit - used[name])]));
    },
  };
}
