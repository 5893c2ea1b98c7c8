import type { Clock } from '@treadle/core';

export interface TurnstileOptions {
  /** Requests under way at once; default: any number. */
  readonly concurrency?: number;
  /** Requests that begin within any 60 seconds; default: any number. */
  readonly requestsPerMinute?: number;
}

/**
 * Lets so many in at once and so many a minute; the others wait, first come, first served. Who is in calls `leave`. `late`:
 * it would be, or was, in vain to wait.
 */
export interface Turnstile {
  enter(signal: AbortSignal, deadline: number): Promise<Entry>;
}

export type Entry =
  | { readonly type: 'in'; readonly leave: () => void }
  | { readonly type: 'late' }
  | { readonly type: 'cancelled' };

const MINUTE_MS = 60_000;

export function turnstile(options: TurnstileOptions, clock: Clock): Turnstile {
  const { concurrency = Infinity, requestsPerMinute = Infinity } = options;
  const waiting = new Set<() => void>();
  /** When requests began within the last minute, oldest first; only as many as are allowed. */
  const begun: number[] = [];
  let inside = 0;
  let stopTimer: (() => void) | undefined;

  /** How long until another one may begin; 0 if at once. */
  const untilNext = (): number => {
    while (begun.length > 0 && begun[0]! <= clock.now() - MINUTE_MS) begun.shift();
    return begun.length < requestsPerMinute ? 0 : begun[0]! + MINUTE_MS - clock.now();
  };

  const admit = (): void => {
    for (const enter of waiting) {
      if (inside >= concurrency) return;
      const ms = untilNext();
      if (ms > 0) {
        stopTimer ??= clock.timer(ms, () => {
          stopTimer = undefined;
          admit();
        });
        return;
      }
      inside++;
      if (requestsPerMinute !== Infinity) begun.push(clock.now());
      enter();
    }
    stopTimer?.();
    stopTimer = undefined;
  };

  const leaving = (): (() => void) => {
    let left = false;
    return () => {
      if (left) return;
      left = true;
      inside--;
      admit();
    };
  };

  return {
    enter: (signal, deadline) =>
      new Promise((resolve) => {
        let stopWaiting = (): void => {};
        const settle = (entry: Entry): void => {
          waiting.delete(enter);
          stopWaiting();
          signal.removeEventListener('abort', cancel);
          resolve(entry);
          if (entry.type !== 'in' && waiting.size === 0) admit();
        };
        const enter = (): void => settle({ type: 'in', leave: leaving() });
        const cancel = (): void => settle({ type: 'cancelled' });
        if (signal.aborted) return cancel();
        signal.addEventListener('abort', cancel, { once: true });
        if (clock.now() + untilNext() >= deadline) return settle({ type: 'late' });
        waiting.add(enter);
        admit();
        if (waiting.has(enter) && deadline !== Infinity) {
          stopWaiting = clock.timer(deadline - clock.now(), () => settle({ type: 'late' }));
        }
      }),
  };
}
