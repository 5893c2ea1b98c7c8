/** Whether a value is what JSON can say, so that it comes out of a journal as it went in. */
export function isPlain(value: unknown): boolean {
  return isPlainWithin(value, new Set());
}

/** `around`: what it stands in; nothing may stand in itself. */
function isPlainWithin(value: unknown, around: ReadonlySet<unknown>): boolean {
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || value === null) return ['string', 'boolean', 'object'].includes(typeof value);
  if (around.has(value)) return false;
  const inside = new Set(around).add(value);
  if (Array.isArray(value)) return value.every((part) => isPlainWithin(part, inside));
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  return Object.values(value).every((part) => part === undefined || isPlainWithin(part, inside));
}

/** Its JSON, the same for the same value whatever the order of its keys; undefined if it is not plain. */
export function canonicalJson(value: unknown): string | undefined {
  return isPlain(value) ? JSON.stringify(value, sorted) : undefined;
}

function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
