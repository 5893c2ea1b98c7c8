import type { MetricsReport } from '@treadle/core/trace';

/** The answer of `GET /v1/metrics/tools`: what the runs of a tenant did that have paused or ended. */
export interface WireToolMetrics extends MetricsReport {
  readonly object: 'metrics';
  /** The beginning of the first hour, and the end of the last one; null: no limit. */
  readonly since: number | null;
  readonly until: number | null;
  /** How many runs, at most, are not counted yet. Ask again. */
  readonly waiting: number;
}

/** The answer of `GET /v1/status`. */
export interface WireStatus {
  readonly object: 'status';
  /** Its store can be written. */
  readonly ready: boolean;
  readonly started_at: number;
  readonly runs_in_progress: number;
  readonly max_runs: number;
  readonly models: readonly string[];
  readonly tools: readonly string[];
}
