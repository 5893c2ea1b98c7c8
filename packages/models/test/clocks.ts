import type { Clock } from '@treadle/core';

/**
 * A clock whose timers of up to a minute fire at once and longer ones never, so that backoff takes no time and no timeout
 * passes. `waits` lists the short ones.
 */
export function hurriedClock(): Clock & { readonly waits: readonly number[] } {
  const waits: number[] = [];
  let now = 1_763_200_000_000;
  return {
    waits,
    now: () => now,
    timer(ms, fire) {
      let on = ms <= 60_000;
      if (on) {
        waits.push(ms);
        queueMicrotask(() => {
          if (!on) return;
          now += ms;
          fire();
        });
      }
      return () => {
        on = false;
      };
    },
  };
}
