import { createNoopMeter, type Attributes, type Meter, type MetricOptions } from '@opentelemetry/api';
import { keyValues, nanoseconds, type KeyValue } from './otlp-json.ts';

/** Counters and histograms as sums since the start. Other instruments do nothing. */
export interface OtlpMeter {
  readonly meter: Meter;
  /** The metrics in the form of OTLP, as they are now. */
  collect(): readonly object[];
}

/** The series of one instrument. Further ones are counted together. */
const MAX_SERIES = 1_000;
const OVERFLOW: Attributes = { 'otel.metric.overflow': true };

interface Series {
  readonly attributes: readonly KeyValue[];
  count: number;
  sum: number;
  min: number;
  max: number;
  /** Of a histogram: how many values are in each bucket. */
  readonly buckets: number[];
}

interface Instrument {
  readonly name: string;
  readonly options: MetricOptions;
  /** Undefined: a counter. */
  readonly bounds: readonly number[] | undefined;
  readonly series: Map<string, Series>;
}

export function otlpMeter(): OtlpMeter {
  const instruments: Instrument[] = [];
  const startTimeUnixNano = nanoseconds();

  function add(name: string, options: MetricOptions = {}, bounds?: readonly number[]): Instrument {
    const instrument: Instrument = { name, options, bounds, series: new Map() };
    instruments.push(instrument);
    return instrument;
  }

  /** A model call counts several times with the same attributes. */
  let last: { readonly attributes: Attributes; readonly key: string } | undefined;

  function keyOf(attributes: Attributes): string {
    if (last?.attributes !== attributes) last = { attributes, key: JSON.stringify(attributes) };
    return last.key;
  }

  function observe({ series, bounds = [] }: Instrument, value: number, attributes: Attributes = {}): void {
    if (!Number.isFinite(value)) return;
    const known = keyOf(attributes);
    const key = series.has(known) || series.size < MAX_SERIES ? known : JSON.stringify(OVERFLOW);
    let one = series.get(key);
    if (!one) {
      one = {
        attributes: keyValues(key === known ? attributes : OVERFLOW),
        count: 0,
        sum: 0,
        min: Infinity,
        max: -Infinity,
        buckets: Array<number>(bounds.length + 1).fill(0),
      };
      series.set(key, one);
    }
    one.count++;
    one.sum += value;
    one.min = Math.min(one.min, value);
    one.max = Math.max(one.max, value);
    const bucket = bounds.findIndex((bound) => value <= bound);
    one.buckets[bucket === -1 ? bounds.length : bucket]!++;
  }

  const meter: Meter = Object.assign(Object.create(createNoopMeter()) as Meter, {
    createHistogram(name: string, options?: MetricOptions) {
      const instrument = add(name, options, options?.advice?.explicitBucketBoundaries ?? []);
      return { record: (value: number, attributes?: Attributes) => observe(instrument, value, attributes) };
    },
    createCounter(name: string, options?: MetricOptions) {
      const instrument = add(name, options);
      return { add: (value: number, attributes?: Attributes) => observe(instrument, value, attributes) };
    },
  });

  return {
    meter,
    collect() {
      const times = { startTimeUnixNano, timeUnixNano: nanoseconds() };
      return instruments
        .filter(({ series }) => series.size > 0)
        .map(({ name, options: { unit = '', description = '' }, bounds, series }) => {
          const points = [...series.values()].map((one) => pointOf(one, bounds, times));
          const data = { aggregationTemporality: CUMULATIVE, dataPoints: points };
          return {
            name,
            unit,
            description,
            ...(bounds ? { histogram: data } : { sum: { ...data, isMonotonic: true } }),
          };
        });
    },
  };
}

const CUMULATIVE = 2;

function pointOf(
  { attributes, count, sum, min, max, buckets }: Series,
  bounds: readonly number[] | undefined,
  times: object,
): object {
  if (!bounds) return { attributes, ...times, asInt: String(Math.round(sum)) };
  return {
    attributes,
    ...times,
    count: String(count),
    sum,
    min,
    max,
    bucketCounts: buckets.map(String),
    explicitBounds: bounds,
  };
}
