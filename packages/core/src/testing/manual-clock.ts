import type { Clock } from '../platform.ts';

/** A clock that only moves when a test advances it. */
export interface ManualClock extends Clock {
  /**
   * Advances by `ms` and fires the timers that are due, in order, each at its own time. After each timer, pending promise
   * callbacks run before the next timer fires.
   */
  advance(ms: number): Promise<void>;
  /** The number of timers that have neither fired nor been cancelled. */
  readonly pending: number;
}

interface Timer {
  readonly at: number;
  readonly fire: () => void;
}

export function manualClock(start = 0): ManualClock {
  const timers = new Set<Timer>();
  let now = start;
  return {
    now: () => now,
    monotonic: () => now,
    timer(ms, fire) {
      const timer = { at: now + ms, fire };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    async advance(ms) {
      const end = now + ms;
      await promisesSettled();
      for (;;) {
        const due = [...timers].filter(({ at }) => at <= end).toSorted((a, b) => a.at - b.at)[0];
        if (!due) break;
        timers.delete(due);
        now = Math.max(now, due.at);
        due.fire();
        await promisesSettled();
      }
      now = end;
    },
    get pending() {
      return timers.size;
    },
  };
}

/** Resolves after all pending promise callbacks have run. */
function promisesSettled(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
