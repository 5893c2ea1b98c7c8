import type { RunStatus } from '../journal/port.ts';
import type { ErrorType } from '../messages.ts';
import { errorCount, percentile, type LoopMetrics, type Metrics, type ToolMetrics } from './metrics.ts';

/** Metrics as `GET /v1/metrics/tools` and `treadle metrics --json` show them. Times are in milliseconds. Null: nothing to divide by. */
export interface MetricsReport {
  readonly loop: LoopReport;
  /** The most used first. */
  readonly tools: readonly ToolReport[];
}

export interface LoopReport {
  /** Runs that have ended, by how. */
  readonly runs: Readonly<Partial<Record<RunStatus, number>>>;
  readonly turns: number;
  readonly calls: number;
  readonly average_turns: number | null;
  readonly calls_per_turn: number | null;
  /** The working time of runs that have completed. */
  readonly average_answer_ms: number | null;
  readonly parallel_batches: number;
  readonly max_concurrency: number;
  readonly wall_time_saved_ms: number;
}

export interface ToolReport {
  readonly tool: string;
  readonly calls: number;
  readonly successes: number;
  readonly errors: Readonly<Partial<Record<ErrorType, number>>>;
  readonly timeouts: number;
  readonly error_rate: number | null;
  /** Of the errors, how many a success of the tool followed in the same run. */
  readonly recovery_rate: number | null;
  /** Of the calls that ran. A percentile is at most a fifth too high. */
  readonly latency_ms: {
    readonly average: number | null;
    readonly p50: number | null;
    readonly p90: number | null;
    readonly p99: number | null;
  };
  readonly last_error: { readonly at: number; readonly type: ErrorType; readonly message: string } | null;
}

export function metricsReport({ loop, tools }: Metrics): MetricsReport {
  const reports = Object.entries(tools).map(([name, tool]) => toolReport(name, tool));
  return { loop: loopReport(loop), tools: reports.toSorted((a, b) => b.calls - a.calls || (a.tool < b.tool ? -1 : 1)) };
}

function loopReport({ runs, turns, calls, answerMs, ...batches }: LoopMetrics): LoopReport {
  const ended = Object.values(runs).reduce((sum, count) => sum + count, 0);
  return {
    runs,
    turns,
    calls,
    average_turns: ratio(turns, ended),
    calls_per_turn: ratio(calls, turns),
    average_answer_ms: ratio(answerMs, runs.completed ?? 0),
    parallel_batches: batches.parallelBatches,
    max_concurrency: batches.maxConcurrency,
    wall_time_saved_ms: batches.wallTimeSavedMs,
  };
}

function toolReport(name: string, tool: ToolMetrics): ToolReport {
  const { calls, errors, recovered, ms, ran, lastError } = tool;
  const failed = errorCount(tool);
  const latency = (share: number): number | null => percentile(tool, share) ?? null;
  return {
    tool: name,
    calls,
    successes: calls - failed,
    errors,
    timeouts: errors.timeout ?? 0,
    error_rate: ratio(failed, calls),
    recovery_rate: ratio(recovered, failed),
    latency_ms: { average: ratio(ms, ran), p50: latency(0.5), p90: latency(0.9), p99: latency(0.99) },
    last_error: lastError ?? null,
  };
}

/** With four digits: what is shown is no better known. */
function ratio(part: number, whole: number): number | null {
  return whole === 0 ? null : Math.round((part / whole) * 10_000) / 10_000;
}
