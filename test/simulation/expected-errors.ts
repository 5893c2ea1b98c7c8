import type { TreadleErrorCode } from '@treadle/core';

/** What was done to a schedule. `rivals`: more than one process. */
export type Cause =
  | 'crash'
  | 'power'
  | 'stall'
  | 'suspend'
  | 'clock'
  | 'full'
  | 'locked'
  | 'sync'
  | 'damage'
  | 'rivals'
  | 'detach';

/** An error is expected only if one of these was done before, in the same schedule. */
const CAUSES: Partial<Record<TreadleErrorCode, readonly Cause[]>> = {
  'run-driven': ['rivals'],
  // Another process started the run, or the number of its entries was changed.
  'run-exists': ['rivals', 'damage'],
  'lease-lost': ['stall', 'suspend', 'full', 'locked', 'sync'],
  'journal-damaged': ['damage'],
  'unknown-run': ['damage'],
  'store-full': ['full'],
  'store-locked': ['locked'],
  'store-failed': ['sync'],
};

/** Errors that are an answer, and not a failure: what was asked for did not fit the run any more. */
const ANSWERS: readonly TreadleErrorCode[] = ['answer-unfit'];

export function isExpected(code: TreadleErrorCode | undefined, causes: ReadonlySet<Cause>): boolean {
  if (code === undefined) return false;
  return ANSWERS.includes(code) || (CAUSES[code] ?? []).some((cause) => causes.has(cause));
}
