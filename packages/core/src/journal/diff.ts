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

const INCIDENTAL: ReadonlySet<string> = new Set(['at', 'runId', 'parent', 'attempts', 'expiresAt']);
