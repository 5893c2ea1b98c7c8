/**
 * How much clients may use, for all processes with the store. Nothing waits for the disk: after a crash of the machine, clients may
 * use a little more. Times are those of the store.
 */
export interface QuotaStore {
  /**
   * Takes some of the requests that an id may send in a minute. All of them can be used at once, and are refilled evenly. A part is
   * left to other processes, unless little is left.
   */
  takeRequests(taking: TakingRequests): Promise<TakenRequests>;
  /**
   * Sets how many of the `max` slots of an id a holder has: up to `count`, as far as they are free. Resolves to their number. They
   * are free again `SLOTS_MS` after the last call.
   */
  takeSlots(taking: TakingSlots): Promise<number>;
}

export interface TakingRequests {
  readonly id: string;
  readonly perMinute: number;
  /** How many to take at most. 0 takes none. */
  readonly count: number;
  /** Taken before, and not used: they are given back first. */
  readonly unused?: number;
}

export interface TakenRequests {
  readonly count: number;
  /** How many are left to others. */
  readonly remaining: number;
  /** Until all of them are available again. */
  readonly resetMs: number;
  /** Until the next one is available; 0 if some were taken. */
  readonly retryMs: number;
}

export interface TakingSlots {
  readonly id: string;
  /** Names the process. */
  readonly holder: string;
  readonly max: number;
  readonly count: number;
}

/** A process that does not ask for its slots again for this time has lost them. */
export const SLOTS_MS = 5_000;
