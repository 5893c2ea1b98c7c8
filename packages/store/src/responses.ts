/** What a server was asked for, and what it answered: one run, for one tenant. */
export interface ResponseRecord {
  readonly id: string;
  /** Whose it is; for anybody else it is not there. */
  readonly tenant: string;
  /** Its run, which is no other response's. It need not have begun. */
  readonly runId: string;
  /** `in_progress` until it is finished; any other word is the server's own. */
  readonly status: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** The response that it continues. That one may be gone: nothing in this one depends on it. */
  readonly previous?: string;
  /** Plain JSON. */
  readonly request: unknown;
  /** Plain JSON; absent until it is finished. */
  readonly response?: unknown;
}

/**
 * Responses, beside the runs that they are. A response and its run go together: deleting one deletes the other, in one
 * transaction, and `RunStore.prune` leaves the runs of responses alone. So whoever finds a response finds its run, unless
 * that had not begun.
 */
export interface ResponseStore {
  /** Durable when it resolves. Rejects with `run-exists` if there is a response of this id, or one of this run. */
  create(record: ResponseRecord): Promise<void>;
  /** Durable when it resolves; a later one replaces an earlier one. False: it is gone, and nothing was written. */
  finish(id: string, ending: ResponseEnding): Promise<boolean>;
  get(tenant: string, id: string): Promise<ResponseRecord | undefined>;
  /** With its run and those that work for that; false when there is none. Rejects with `run-driven` while one is driven. */
  delete(tenant: string, id: string): Promise<boolean>;
  /**
   * All that are `in_progress`, of every tenant, oldest first. Others may drive some of them: `acquire` the run, and ask
   * again how the response stands, before finishing what somebody has left. One that is damaged is left out; `get` says so.
   */
  unfinished(): Promise<readonly ResponseRecord[]>;
  /** Deletes those that were last touched before `before`, unless they are `in_progress` or driven; how many that were. */
  prune(before: number): Promise<number>;
  /** Whether the run is a response's, so that `RunStore.prune` leaves it. */
  hasRun(runId: string): Promise<boolean>;
}

export interface ResponseEnding {
  /** Any but `in_progress`. */
  readonly status: string;
  /** Plain JSON. */
  readonly response: unknown;
  readonly at: number;
}
