export { callKey, isIdle, isRefused, spanReader, type Span, type SpanKind, type SpanReader } from './spans.ts';
export { liveSteps, type AppliedEntry } from './steps.ts';
