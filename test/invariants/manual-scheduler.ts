import type { Clock } from '@treadle/core';

/** Work in progress that ends when the test settles it. */
export interface Job {
  readonly settle: () => void;
  readonly signal?: AbortSignal;
}

/** A clock and jobs that the test controls. `clear` drops all of them, as a crash does. */
export interface ManualScheduler {
  readonly clock: Clock & Required<Pick<Clock, 'monotonic'>>;
  readonly jobs: Job[];
  /** Adds a job. The promise resolves when the job is settled. */
  readonly later: <T>(value: T, signal?: AbortSignal) => Promise<T>;
  /** Settles one of the jobs; false if there is none. */
  readonly settle: (pick: number) => boolean;
  readonly advance: (ms: number) => void;
  /** Sets the clock, as people do. Timers and the monotonic clock do not notice. */
  readonly set: (ms: number) => void;
  /** Advances the clock without firing timers, as code that blocks the event loop does. */
  readonly block: (ms: number) => void;
  /** Advances the clock to the next timer; false if there is none. */
  readonly skip: () => boolean;
  readonly clear: () => void;
}

export function manualScheduler(): ManualScheduler {
  const jobs: Job[] = [];
  const timers = new Set<{ readonly at: number; readonly fire: () => void }>();
  let now = 1_000;
  let offset = 1_000_000_000;

  function advance(ms: number): void {
    const end = now + Math.max(0, ms);
    for (;;) {
      const due = [...timers].filter(({ at }) => at <= end).toSorted((a, b) => a.at - b.at)[0];
      if (!due) break;
      timers.delete(due);
      now = Math.max(now, due.at);
      due.fire();
    }
    now = end;
  }

  return {
    jobs,
    clock: {
      now: () => now + offset,
      monotonic: () => now,
      timer(ms, fire) {
        const timer = { at: now + ms, fire };
        timers.add(timer);
        return () => void timers.delete(timer);
      },
    },
    later: (value, signal) =>
      new Promise((resolve) => jobs.push({ settle: () => resolve(value), ...(signal && { signal }) })),
    settle(pick) {
      const [job] = jobs.splice(pick % Math.max(1, jobs.length), 1);
      job?.settle();
      return job !== undefined;
    },
    advance,
    set: (ms) => void (offset += ms),
    block: (ms) => void (now += ms),
    skip() {
      const next = Math.min(...Array.from(timers, ({ at }) => at));
      if (next === Infinity) return false;
      advance(next - now);
      return true;
    },
    clear() {
      jobs.length = 0;
      timers.clear();
    },
  };
}
