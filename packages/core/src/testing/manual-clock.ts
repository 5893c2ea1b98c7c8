import type { Clock } from '../platform.ts';

/** A clock that stands still until a test moves it. */
export interface ManualClock extends Clock {
  /**
   * Goes on by `ms`, firing what is due in order, each at its own time. Between two timers everything that waits for
   * promises gets its turn, so that what a timer sets off is done before the next one fires.
   */
  advance(ms: number): Promise<void>;
  /** Timers that have neither fired nor been called off. */
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
    timer(ms, fire) {
      const timer = { at: now + ms, fire };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    async advance(ms) {
      const end = now + ms;
      await settled();
      for (;;) {
        const due = [...timers].filter(({ at }) => at <= end).toSorted((a, b) => a.at - b.at)[0];
        if (!due) break;
        timers.delete(due);
        now = Math.max(now, due.at);
        due.fire();
        await settled();
      }
      now = end;
    },
    get pending() {
      return timers.size;
    },
  };
}

/** By the end of the event loop's turn every promise that can go on has gone on. */
function settled(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
