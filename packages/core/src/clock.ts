/** Time as a port, so that tests own it. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Calls `fire` once after `ms`; the returned function calls it off. */
  timer(ms: number, fire: () => void): () => void;
}

/** The longest that the platform's timers can wait; beyond it they fire at once. */
const LONGEST = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  timer(ms, fire) {
    const timer = setTimeout(fire, Math.min(ms, LONGEST));
    return () => clearTimeout(timer);
  },
};
