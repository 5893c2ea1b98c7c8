import type { RunStatus } from '@treadle/core';

/** A run has paused or ended. It is kept until somebody outside was told. */
export interface RunNotice {
  readonly id: number;
  readonly runId: string;
  /** The entry after which the run had the status. */
  readonly seq: number;
  readonly status: RunStatus;
  readonly at: number;
  /** How often the notice was taken. */
  readonly attempts: number;
}

/** Notices about runs, shared by all processes with the store. Each is taken at least once. */
export interface NoticeStore {
  /**
   * From now on, when a run gets one of these statuses through this store, a notice of it is stored in the same
   * transaction. Child runs are left out.
   */
  enable(statuses: readonly RunStatus[]): void;
  /** Takes up to `limit` notices that are due at time `now`. Until `until` nobody else gets them. */
  take(options: {
    readonly now: number;
    readonly until: number;
    readonly limit: number;
  }): Promise<readonly RunNotice[]>;
  /** The notice is due again at this time. */
  postpone(id: number, dueAt: number): Promise<void>;
  remove(id: number): Promise<void>;
  /** When the next notice is due; undefined if there is none. */
  nextDue(): Promise<number | undefined>;
  /** Deletes notices about changes before a time, and all but the newest `most`. Resolves to their number. */
  prune(before: number, most: number): Promise<number>;
  /** Calls `listener` when a notice may have been added. */
  watch(listener: () => void): () => void;
}
