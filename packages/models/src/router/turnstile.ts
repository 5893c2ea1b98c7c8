import type { Clock } from '@treadle/core';

export interface TurnstileOptions {
  /** Concurrent requests; default: unlimited. */
  readonly concurrency?: number;
  /** Requests that start within any 60 seconds; default: unlimited. */
  readonly requestsPerMinute?: number;
}

/**
 * A limiter of concurrent requests and of requests per minute. Requests that have to wait enter in their order. A request
 * that entered occupies a slot until it calls `leave`. It is `late` if it cannot enter before its deadline.
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
  /** The start times of the requests in the last minute, oldest first. */
  const starts: number[] = [];
  let occupied = 0;
  let stopTimer: (() => void) | undefined;

  /** Milliseconds until the next request may start. */
  const untilNext = (): number => {
    while (starts.length > 0 && starts[0]! <= clock.now() - MINUTE_MS) starts.shift();
    return starts.length < requestsPerMinute ? 0 : starts[0]! + MINUTE_MS - clock.now();
  };

  const admit = (): void => {
    for (const enter of waiting) {
      if (occupied >= concurrency) return;
      const ms = untilNext();
      if (ms > 0) {
        stopTimer ??= clock.timer(ms, () => {
          stopTimer = undefined;
          admit();
        });
        return;
      }
      occupied++;
      if (requestsPerMinute !== Infinity) starts.push(clock.now());
      enter();
    }
    stopTimer?.();
    stopTimer = undefined;
  };

  const newLeave = (): (() => void) => {
    let hasLeft = false;
    return () => {
      if (hasLeft) return;
      hasLeft = true;
      occupied--;
      admit();
    };
  };

  return {
    enter: (signal, deadline) =>
      new Promise((resolve) => {
        let stopWaiting = (): void => {};
        const settleEntry = (entry: Entry): void => {
          waiting.delete(enter);
          stopWaiting();
          signal.removeEventListener('abort', cancel);
          resolve(entry);
          if (entry.type !== 'in' && waiting.size === 0) admit();
        };
        const enter = (): void => settleEntry({ type: 'in', leave: newLeave() });
        const cancel = (): void => settleEntry({ type: 'cancelled' });
        if (signal.aborted) return cancel();
        signal.addEventListener('abort', cancel, { once: true });
        if (clock.now() + untilNext() >= deadline) return settleEntry({ type: 'late' });
        waiting.add(enter);
        admit();
        if (waiting.has(enter) && deadline !== Infinity) {
          stopWaiting = clock.timer(deadline - clock.now(), () => settleEntry({ type: 'late' }));
        }
      }),
  };
}
