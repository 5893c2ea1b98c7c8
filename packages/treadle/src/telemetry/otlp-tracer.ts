import { randomFillSync } from 'node:crypto';
import {
  INVALID_SPAN_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Span,
  type SpanContext,
  type SpanOptions,
  type Tracer,
} from '@opentelemetry/api';
import { keyValues, nanoseconds } from './otlp-json.ts';

/** Makes spans, and passes each one on in the form of OTLP when it ends. It samples what its parent samples; else everything. */
export function otlpTracer(onEnd: (span: object) => void): Tracer {
  const startSpan: Tracer['startSpan'] = (name, options = {}, context) => {
    const parent = context && !options.root ? trace.getSpanContext(context) : undefined;
    if (parent && (parent.traceFlags & TraceFlags.SAMPLED) === 0) return trace.wrapSpanContext(parent);
    return recordedSpan(name, options, { parent, onEnd });
  };
  return {
    startSpan,
    startActiveSpan(name: string, ...rest: readonly unknown[]) {
      const act = rest.at(-1) as (span: Span) => unknown;
      return act(startSpan(name, rest.length > 1 ? (rest[0] as SpanOptions) : {}));
    },
  } as Tracer;
}

function recordedSpan(
  name: string,
  { kind = SpanKind.INTERNAL, attributes: given = {}, startTime }: SpanOptions,
  { parent, onEnd }: { readonly parent: SpanContext | undefined; readonly onEnd: (span: object) => void },
): Span {
  const context: SpanContext = {
    traceId: parent?.traceId ?? idOf(16),
    spanId: idOf(8),
    traceFlags: TraceFlags.SAMPLED,
  };
  const attributes: Attributes = { ...given };
  const events: object[] = [];
  const startTimeUnixNano = nanoseconds(startTime);
  let title = name;
  let status = {};
  let hasEnded = false;
  const span: Span = {
    spanContext: () => context,
    isRecording: () => !hasEnded,
    setAttribute(key, value) {
      if (!hasEnded) attributes[key] = value;
      return span;
    },
    setAttributes(added) {
      if (!hasEnded) Object.assign(attributes, added);
      return span;
    },
    addEvent(event, more, time) {
      const own = typeof more === 'object' && !Array.isArray(more) && !(more instanceof Date) ? more : {};
      events.push({ timeUnixNano: nanoseconds(time), name: event, attributes: keyValues(own) });
      return span;
    },
    addLink: () => span,
    addLinks: () => span,
    setStatus({ code, message }) {
      if (code !== SpanStatusCode.UNSET) status = { code, ...(message !== undefined && { message }) };
      return span;
    },
    updateName(changed) {
      title = changed;
      return span;
    },
    recordException(exception) {
      const message = typeof exception === 'string' ? exception : exception.message;
      return span.addEvent('exception', { ...(message !== undefined && { 'exception.message': message }) });
    },
    end(endTime) {
      if (hasEnded) return;
      hasEnded = true;
      onEnd({
        traceId: context.traceId,
        spanId: context.spanId,
        ...(parent && parent.spanId !== INVALID_SPAN_CONTEXT.spanId && { parentSpanId: parent.spanId }),
        flags: context.traceFlags,
        name: title,
        kind: kind + 1,
        startTimeUnixNano,
        endTimeUnixNano: nanoseconds(endTime),
        attributes: keyValues(attributes),
        events,
        status,
      });
    },
  };
  return span;
}

/** A call of the system's random numbers costs more than the rest of a span. */
const pool = Buffer.alloc(4_096);
let used = pool.length;

function idOf(bytes: number): string {
  if (used + bytes > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  return pool.toString('hex', used, (used += bytes));
}
