import type { JournalEntry, Lease, RunStore } from '@treadle/core';
import { afterEach, beforeEach, expect } from 'vitest';

/** The tested journal: a new one for each test. */
export interface Subject {
  readonly store: RunStore;
  /** Rejects, also where `append` of the journal throws. */
  readonly append: (runId: string, entries: readonly JournalEntry[], lease?: Lease) => Promise<void>;
}

export function subjectOf(open: () => RunStore | Promise<RunStore>): Subject {
  let store: RunStore;
  beforeEach(async () => {
    store = await open();
  });
  afterEach(() => store.close());
  return {
    get store() {
      return store;
    },
    append: async (runId, entries, lease) => store.append(runId, entries, lease),
  };
}

export function code(expected: string): object {
  return expect.objectContaining({ name: 'TreadleError', code: expected });
}
