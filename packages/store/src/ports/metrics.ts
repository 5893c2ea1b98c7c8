import type { Observation } from '@treadle/core/memory';
import type { HourlyMetrics, Metrics } from '@treadle/core/trace';

/**
 * What runs have done, as sums by tenant and hour: a projection of journals.
 *
 * 1. A run that pauses or ends is noted in the transaction in which it does. So none is forgotten, whoever drove it.
 * 2. The sums of a run are added in one transaction with the number of its entries that they count. So each entry is counted once,
 *    also if several processes count the same run, or one is killed.
 * 3. `restart` sets that number back to 0 and notes the run again. So the sums can be made again from the journals.
 *
 * The sums of a run that is deleted stay until `restart`.
 */
export interface MetricStore {
  /** Runs that were noted, up to `limit`, the oldest notes first. */
  noted(limit: number): Promise<readonly NotedRun[]>;
  /** How many notes there are at most: 0 if there are none. It does not count them. */
  waiting(): Promise<number>;
  /**
   * Adds the sums and the observations of those runs whose numbers of entries are still `counted` and `remembered`, and returns their
   * names. What was forgotten is left out.
   */
  add(runs: readonly CountedRun[]): Promise<readonly string[]>;
  /** The sums of the hours that begin from `since` on and before `until`. Without a tenant, those of all. */
  read(filter: MetricFilter): Promise<Metrics>;
  /** Forgets all sums, and notes all runs that were counted, or would be. */
  restart(): Promise<void>;
}

export interface MetricFilter {
  readonly tenant?: string;
  readonly since?: number;
  readonly until?: number;
}

export interface NotedRun {
  readonly runId: string;
  /** Its notes. */
  readonly notes: readonly number[];
  /** How many of its entries the sums contain. */
  readonly counted: number;
  /** How many they contained before the last `restart`. */
  readonly target: number;
  /** How many of its entries the memory contains. */
  readonly remembered: number;
}

export interface CountedRun extends NotedRun {
  /** How many entries the sums contain with `hours`. */
  readonly next: number;
  readonly tenant: string | undefined;
  readonly hours: HourlyMetrics;
  /** Absent: this process keeps no memory. */
  readonly memory?: {
    /** How many entries the memory contains with `observations`. */
    readonly next: number;
    readonly observations: readonly Observation[];
  };
}
