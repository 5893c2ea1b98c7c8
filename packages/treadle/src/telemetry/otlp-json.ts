import type { AttributeValue, Attributes, HrTime, TimeInput } from '@opentelemetry/api';

/* The forms of OTLP as JSON: integers of 64 bits are texts. */

export interface KeyValue {
  readonly key: string;
  readonly value: object;
}

export function keyValues(attributes: Attributes): readonly KeyValue[] {
  return Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: anyValue(value) }],
  );
}

function anyValue(value: AttributeValue): object {
  if (Array.isArray(value)) {
    return {
      arrayValue: { values: value.flatMap((one) => (one === null || one === undefined ? [] : [anyValue(one)])) },
    };
  }
  switch (typeof value) {
    case 'string':
      return { stringValue: value.toWellFormed() };
    case 'boolean':
      return { boolValue: value };
    default:
      return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
  }
}

/** A time in nanoseconds since 1970. Numbers are milliseconds. */
export function nanoseconds(time: TimeInput = Date.now()): string {
  const [seconds, rest] = parts(time);
  return `${BigInt(seconds) * 1_000_000_000n + BigInt(rest)}`;
}

function parts(time: TimeInput): HrTime {
  if (Array.isArray(time)) return time;
  const ms = typeof time === 'number' ? time : time.getTime();
  return [Math.floor(ms / 1_000), Math.round((ms % 1_000) * 1e6)];
}
