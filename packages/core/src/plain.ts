import { stableJson } from './machine/history.ts';

/** Whether a value is plain JSON, so that it survives a journal unchanged. */
export function isPlain(value: unknown): boolean {
  return isPlainWithin(value, new Set());
}

/** `ancestors`: the values that contain it, to detect cycles. */
function isPlainWithin(value: unknown, ancestors: ReadonlySet<unknown>): boolean {
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || value === null) return ['string', 'boolean', 'object'].includes(typeof value);
  if (ancestors.has(value)) return false;
  const inside = new Set(ancestors).add(value);
  if (Array.isArray(value)) return value.every((part) => isPlainWithin(part, inside));
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  return Object.values(value).every((part) => part === undefined || isPlainWithin(part, inside));
}

/** JSON with sorted keys, so that equal values have equal texts; undefined if the value is not plain. */
export function canonicalJson(value: unknown): string | undefined {
  return isPlain(value) ? stableJson(value) : undefined;
}
