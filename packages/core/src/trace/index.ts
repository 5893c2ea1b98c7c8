export {
  addMetrics,
  bucketOf,
  errorCount,
  HOUR_MS,
  metricsOf,
  metricsReader,
  NO_METRICS,
  percentile,
  timeOfBucket,
  UNKNOWN_TOOL,
  type HourlyMetrics,
  type LastError,
  type LoopMetrics,
  type Metrics,
  type ToolMetrics,
} from './metrics.ts';
export { metricsReport, type LoopReport, type MetricsReport, type ToolReport } from './report.ts';
export type { FailureCategory, FailureCode, FailureSeverity, Recovery, TraceFailure } from './failures.ts';
export { callKey, isIdle, isRefused, spanReader, type Span, type SpanKind, type SpanReader } from './spans.ts';
export { liveSteps, type AppliedEntry } from './steps.ts';
export { traceIdOf } from '../journal/family.ts';
export {
  traceOf,
  traceReader,
  type Trace,
  type TraceAction,
  type TraceActionStatus,
  type TraceReader,
  type TraceReply,
  type TraceStep,
  type TraceWork,
} from './trace.ts';
