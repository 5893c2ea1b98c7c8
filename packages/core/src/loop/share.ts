import type { Limits } from './pinned.ts';
import type { State } from './state.ts';
import { tokensOf } from './usage.ts';

/** A part of what is left of a run's limits, for a run that works for it. What has no limit has none there either. */
export function shareOf({ rules, calls, usage, activeMs }: State, part: number): Limits {
  const { limits } = rules;
  const left = (limit: number | undefined, used: number): number | undefined =>
    limit === undefined ? undefined : Math.max(0, limit - used) * part;
  const shares = {
    calls: floored(left(limits.calls, calls)),
    tokens: floored(left(limits.tokens, tokensOf(usage))),
    cost: left(limits.cost, usage.cost ?? 0),
    durationMs: floored(left(limits.durationMs, activeMs)),
  };
  return Object.fromEntries(Object.entries(shares).filter(([, share]) => share !== undefined)) as Limits;
}

function floored(value: number | undefined): number | undefined {
  return value === undefined ? undefined : Math.floor(value);
}
