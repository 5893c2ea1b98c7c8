import type { Clock } from '@treadle/core';

/** A clock on which short waits are over at once and are noted, and those over a minute, a model's patience, never are. */
export function eagerClock(): Clock & { readonly waits: readonly number[] } {
  const waits: number[] = [];
  return {
    waits,
    now: () => 0,
    timer(ms, fire) {
      if (ms > 60_000) return () => {};
      waits.push(ms);
      const timer = setImmediate(fire);
      return () => clearImmediate(timer);
    },
  };
}
