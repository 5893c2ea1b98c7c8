import type { JournalEntry } from '../journal/port.ts';
import type { Event } from './events.ts';

export interface RunDiff {
  /** Entries from the first on that are the same in both, but for times and the run's own name. */
  readonly same: number;
  /** From there on, side by side. */
  readonly rest: readonly { readonly a: JournalEntry | undefined; readonly b: JournalEntry | undefined }[];
}

/** Where two runs first differ, and how both went on. */
export function diffRuns(a: readonly JournalEntry[], b: readonly JournalEntry[]): RunDiff {
  let same = 0;
  while (same < a.length && same < b.length && comparable(a[same]!.event) === comparable(b[same]!.event)) same++;
  const length = Math.max(a.length, b.length) - same;
  return { same, rest: Array.from({ length }, (_, index) => ({ a: a[same + index], b: b[same + index] })) };
}

/** What is left when everything that differs between any two runs is left out. */
function comparable(event: Event): string {
  return JSON.stringify(event, (key, value: unknown) => (INCIDENTAL.has(key) ? undefined : value));
}

const INCIDENTAL: ReadonlySet<string> = new Set(['at', 'runId', 'parent', 'attempts', 'expiresAt']);
