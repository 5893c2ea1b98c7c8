import type { JournalEntry, RunStore } from '@treadle/core';

/** The runs of a store: the port of the core, and what servers and commands read besides. */
export interface StoredRuns extends RunStore {
  /**
   * The entries of a run from `from` on, up to a page; empty if there are none. Unlike `read`, its cost does not depend on the
   * entries before, and it does not find damage there.
   */
  readPage(runId: string, from: number): Promise<readonly JournalEntry[]>;
  /**
   * The numbers of the entries of a run in which a field has this value, at any depth, in order. The value is shorter than 512
   * characters. It reads no long texts, and no entry leaves the store.
   */
  entriesWith(runId: string, field: string, value: string): Promise<readonly number[]>;
  /** The bytes of JSON that `read` reads; 0 if there is no such run. It does not read them. */
  sizeOf(runId: string): Promise<number>;
  /** The same for `readPage`. */
  pageSize(runId: string, from: number): Promise<number>;
  /** Calls `listener` when entries may have been appended to a run, like `watch` of a stream. */
  watch(runId: string, listener: () => void): () => void;
  /** The same for all runs: `list` may return something else than before. */
  watchRuns(listener: () => void): () => void;
  /**
   * Calls `listener` when runs may have lost their driver: within a second after a process that can be seen from here has died, or
   * after the leases of another one have expired. The returned function ends that.
   */
  watchDrivers(listener: () => void): () => void;
  /**
   * Ends the leases of a run and its child runs, so that another process can drive it; false if nobody has one. Rejects
   * with `run-driven` if a live process of this host has one. For a process of another host, waits for a lease time to see
   * whether it lives. `force` ends the leases in any case: the process that had them aborts what it does when it notices.
   */
  releaseRun(runId: string, options?: { readonly force?: boolean }): Promise<boolean>;
}
