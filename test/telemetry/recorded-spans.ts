import {
  createNoopMeter,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type HrTime,
  type Meter,
  type MetricOptions,
  type Span,
  type SpanOptions,
  type Tracer,
} from '@opentelemetry/api';

/** A span as it was when it ended. Times are milliseconds. */
export interface RecordedSpan {
  readonly name: string;
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly startedAt: number;
  endedAt: number;
  readonly attributes: Attributes;
  readonly events: { readonly name: string; readonly attributes: Attributes }[];
  isError: boolean;
}

export interface RecordedValue {
  readonly name: string;
  readonly type: 'histogram' | 'counter';
  readonly unit: string | undefined;
  readonly value: number;
  readonly attributes: Attributes;
}

/** An SDK in memory: its tracer and its meter. */
export function recordingSdk(): {
  readonly tracer: Tracer;
  readonly meter: Meter;
  readonly spans: RecordedSpan[];
  readonly values: RecordedValue[];
} {
  const spans: RecordedSpan[] = [];
  const values: RecordedValue[] = [];
  let count = 0;
  const hex = (length: number): string => (++count).toString(16).padStart(length, '0');

  function startSpan(
    name: string,
    { kind = 0, attributes = {}, startTime }: SpanOptions = {},
    context?: Context,
  ): Span {
    const parent = context && trace.getSpanContext(context);
    const [traceId, spanId] = [parent?.traceId ?? hex(32), hex(16)];
    const recorded: RecordedSpan = {
      name,
      kind,
      traceId,
      spanId,
      parentId: parent?.spanId,
      startedAt: msOf(startTime as HrTime),
      endedAt: 0,
      attributes: { ...attributes },
      events: [],
      isError: false,
    };
    const span: Partial<Span> = {
      spanContext: () => ({ traceId, spanId, traceFlags: TraceFlags.SAMPLED }),
      setAttribute: (key, value) => (Object.assign(recorded.attributes, { [key]: value }), span as Span),
      setAttributes: (more) => (Object.assign(recorded.attributes, more), span as Span),
      addEvent: (event, more) => (recorded.events.push({ name: event, attributes: more as Attributes }), span as Span),
      setStatus: ({ code }) => ((recorded.isError = code === 2), span as Span),
      end(time) {
        recorded.endedAt = msOf(time as HrTime);
        spans.push(recorded);
      },
    };
    return span as Span;
  }

  const instrument =
    (type: RecordedValue['type']) =>
    (name: string, { unit }: MetricOptions = {}): object => {
      const record = (value: number, attributes: Attributes = {}): void =>
        void values.push({ name, type, unit, value, attributes });
      return type === 'histogram' ? { record } : { add: record };
    };
  const meter = Object.assign(Object.create(createNoopMeter()) as object, {
    createHistogram: instrument('histogram'),
    createCounter: instrument('counter'),
  });
  return { tracer: { startSpan } as unknown as Tracer, meter: meter as Meter, spans, values };
}

function msOf([seconds, nanoseconds]: HrTime): number {
  return seconds * 1_000 + nanoseconds / 1e6;
}
