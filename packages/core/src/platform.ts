import { nodeVersion, oldNodeProblem } from './node-version.ts';

// An old Node would fail later, with a missing function.
const problem = oldNodeProblem(nodeVersion());
if (problem !== undefined) throw new Error(problem);

/** Time as a port, so that tests control it. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Calls `fire` once after `ms`; the returned function cancels it. */
  timer(ms: number, fire: () => void): () => void;
  /**
   * Milliseconds since any fixed point, by a clock that nobody sets. Without it, `limits.durationMs` of a run follows `now`,
   * and the leases of a store use `performance.now()`.
   */
  monotonic?(): number;
}

/** The longest delay of the platform's timers; longer ones fire at once. */
const MAX_DELAY_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer(ms, fire) {
    const timer = setTimeout(fire, Math.min(ms, MAX_DELAY_MS));
    return () => clearTimeout(timer);
  },
};

/** Resolves when the event loop has turned, so that what waits meanwhile can run. Not every platform has `setImmediate`. */
export function nextLoopTurn(): Promise<void> {
  const { setImmediate = setTimeout } = globalThis as { readonly setImmediate?: (fire: () => void) => unknown };
  return new Promise((resolve) => void setImmediate(resolve));
}

/** A new id for a run. The only randomness in core. */
export function newRunId(): string {
  return `run_${crypto.randomUUID().replaceAll('-', '')}`;
}
