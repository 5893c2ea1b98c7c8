import type { Event } from '../machine/events.ts';
import type { JournalEntry } from './port.ts';

export interface RunDiff {
  /** The number of first entries that are equal except for times and run ids. */
  readonly same: number;
  /** The remaining entries of both, side by side. */
  readonly rest: readonly { readonly a: JournalEntry | undefined; readonly b: JournalEntry | undefined }[];
}

/** Finds where two runs first differ. */
export function diffRuns(a: readonly JournalEntry[], b: readonly JournalEntry[]): RunDiff {
  let same = 0;
  while (same < a.length && same < b.length && comparable(a[same]!.event) === comparable(b[same]!.event)) same++;
  const length = Math.max(a.length, b.length) - same;
  return { same, rest: Array.from({ length }, (_, index) => ({ a: a[same + index], b: b[same + index] })) };
}

/** The event as JSON, without what differs between any two runs. */
function comparable(event: Event): string {
  return JSON.stringify(event, (key, value: unknown) => (INCIDENTAL.has(key) ? undefined : value));
}

/** Fields that differ between any two runs. */
const INCIDENTAL: ReadonlySet<string> = new Set(['at', 'runId', 'parent', 'attempts', 'expiresAt']);

export interface Difference {
  /** Such as `result.content[0].text`. */
  readonly path: string;
  readonly a: unknown;
  readonly b: unknown;
}

/** Where two JSON values first differ; undefined if they are equal. */
export function firstDifference(a: unknown, b: unknown, path = ''): Difference | undefined {
  if (Object.is(a, b)) return undefined;
  if (!isObject(a) || !isObject(b) || Array.isArray(a) !== Array.isArray(b)) return { path, a, b };
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    if (INCIDENTAL.has(key)) continue;
    const inside = Array.isArray(a) ? `${path}[${key}]` : path === '' ? key : `${path}.${key}`;
    const found = firstDifference(a[key], b[key], inside);
    if (found) return found;
  }
  return undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
