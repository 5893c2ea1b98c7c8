import type { Attributes, Counter, Histogram, Meter } from '@opentelemetry/api';
import type { Usage } from '../model.ts';
import { ATTRIBUTE, METRIC, type MetricName } from './conventions.ts';

export interface Instruments {
  record(metric: MetricName, value: number, attributes: Attributes): void;
  /** The tokens of a model call. `error`: why it failed. */
  recordUsage(usage: Usage, attributes: Attributes, error: string | undefined): void;
}

/** The metrics of the conventions. Each is created when it is first recorded. */
export function instrumentsOf(meter: Meter): Instruments {
  const made = new Map<string, Histogram | Counter>();

  function instrument({ name, type, unit, description, boundaries }: MetricName): Histogram | Counter {
    const known = made.get(name);
    if (known) return known;
    const options = { unit, description };
    const advice = boundaries && { advice: { explicitBucketBoundaries: [...boundaries] } };
    const created =
      type === 'histogram'
        ? meter.createHistogram(name, { ...options, ...advice })
        : meter.createCounter(name, options);
    made.set(name, created);
    return created;
  }

  function record(metric: MetricName, value: number, attributes: Attributes): void {
    const found = instrument(metric);
    if ('record' in found) found.record(value, attributes);
    else found.add(value, attributes);
  }

  return {
    record,
    recordUsage(usage, attributes, error) {
      const ofCall = error === undefined ? attributes : { ...attributes, [ATTRIBUTE.error]: error };
      record(METRIC.inputTokens, usage.inputTokens, ofCall);
      record(METRIC.outputTokens, usage.outputTokens, ofCall);
      // Providers do not say how many are of texts.
      const counted = { ...attributes, [ATTRIBUTE.modality]: 'unknown' };
      const counts = [
        [METRIC.usedInput, usage.inputTokens],
        [METRIC.usedOutput, usage.outputTokens],
        [METRIC.usedCacheRead, usage.cachedTokens],
        [METRIC.usedCacheWrite, usage.cacheWriteTokens],
        [METRIC.usedReasoning, usage.reasoningTokens],
      ] as const;
      for (const [metric, count] of counts) if (count !== undefined) record(metric, count, counted);
    },
  };
}
