/** A request to a server and its response: one run, owned by one tenant. */
export interface RequestRecord {
  readonly id: string;
  /** What kind of request it is: which API created it, and how it is resumed. The server defines the values. */
  readonly kind: string;
  /** The owner. For any other tenant the response does not exist. */
  readonly tenant: string;
  /** The run of this response and of no other. It may not have started yet. */
  readonly runId: string;
  /** `in_progress` until the response is finished; the server defines the other values. */
  readonly status: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** `pruneExpired` deletes the response from this time on, if it has ended. Absent: only `prune` deletes it. */
  readonly expiresAt?: number;
  /** The response that this one continues. It may have been deleted: nothing in this record depends on it. */
  readonly previous?: string;
  /** Plain JSON. */
  readonly request: unknown;
  /** Plain JSON; absent until the response is finished. */
  readonly response?: unknown;
}

/** Without request and response, which may be large. */
export type UnfinishedRequest = Pick<RequestRecord, 'id' | 'kind' | 'tenant' | 'runId'>;

export type RequestHead = Pick<RequestRecord, 'id' | 'kind' | 'runId' | 'status' | 'updatedAt'>;

export type OwnedRequest = RequestHead & Pick<RequestRecord, 'tenant'>;

/**
 * The responses of a server. A response and its run are deleted together, in one transaction, and `RunStore.prune` skips
 * the runs of responses. So the run of a stored response exists, unless it has not started.
 */
export interface RequestStore {
  /**
   * Durable when it resolves. Rejects with `run-exists` if a response with this id or this run exists, or if the tenant has
   * a response with one of these keys. So of two processes that create a response for the same key, one does.
   * `input`: a list in the request. The items that it has in common with the beginning of another one are stored once.
   */
  create(
    record: RequestRecord,
    keys?: IdempotencyKey | readonly IdempotencyKey[],
    input?: readonly unknown[],
  ): Promise<void>;
  /**
   * Adds keys to a response, which need not be stored. Durable when it resolves. Rejects with `run-exists`, and adds none, if
   * one of them belongs to another response. `now` decides which keys have expired.
   */
  addKeys(response: Pick<RequestRecord, 'id' | 'tenant'>, keys: readonly IdempotencyKey[], now: number): Promise<void>;
  /** Deletes keys of a response, so that they can be used again. */
  removeKeys(response: Pick<RequestRecord, 'id' | 'tenant'>, keys: readonly string[]): Promise<void>;
  /** The response that was created with a key. Undefined if there is none, or if the key has expired at time `now`. */
  findKey(tenant: string, key: string, now: number): Promise<UsedKey | undefined>;
  /**
   * Durable when it resolves. False, and nothing is written, if the response does not exist or has another status than
   * `ending.from`. So of two processes that finish the same response, one does, and the other is told.
   */
  finish(id: string, ending: RequestEnding): Promise<boolean>;
  /**
   * Makes a response that has paused `in_progress` again, because its run is resumed. Durable when it resolves. False, and
   * nothing is written, if the response does not exist or has another status than `from`.
   */
  reopen(id: string, reopening: RequestReopening): Promise<boolean>;
  /**
   * The run of the response is paused and waits for answers. `undriven` leaves the response out until the run has
   * another entry, or its time has come.
   */
  markWaiting(id: string): Promise<void>;
  get(tenant: string, id: string): Promise<RequestRecord | undefined>;
  /** The same without request and response, which may be large. It does not find damage in them. */
  head(tenant: string, id: string): Promise<RequestHead | undefined>;
  /** The bytes of JSON that `get` reads; 0 if there is no such response. It does not read them. */
  sizeOf(tenant: string, id: string): Promise<number>;
  /** The response that a run belongs to, of any tenant, without request and response. */
  headOfRun(runId: string): Promise<OwnedRequest | undefined>;
  /**
   * Deletes the response, its run and the child runs of that run, but no forks. False if the response does not exist.
   * Rejects with `run-driven` while one of the runs has a driver.
   */
  delete(tenant: string, id: string): Promise<boolean>;
  /**
   * All responses that are `in_progress`, of every tenant, oldest first. Another process may have finished them since:
   * `acquire` the run of one before reading the run and the response. Damage in them is not found; `get` rejects then.
   */
  unfinished(): Promise<readonly UnfinishedRequest[]>;
  /** Those of `unfinished` that nobody drives, and whose runs neither sleep longer than `now` nor wait for answers. */
  undriven(now: number): Promise<readonly UnfinishedRequest[]>;
  /** Deletes responses last updated before `before`, except those `in_progress` or driven. Resolves to their number. */
  prune(before: number): Promise<number>;
  /**
   * Deletes keys that have expired at time `now`, and responses that have, except those `in_progress` or driven. Resolves
   * to the number of deleted responses.
   */
  pruneExpired(now: number): Promise<number>;
  /** Whether the run belongs to a response, so that `RunStore.prune` skips it. */
  hasRun(runId: string): Promise<boolean>;
}

export interface RequestReopening {
  /** The status that the response must have. */
  readonly from: string;
  /** Plain JSON. */
  readonly response: unknown;
  readonly at: number;
}

export interface RequestEnding {
  /** The status that the response must have; default `in_progress`. */
  readonly from?: string;
  /** Any status but `in_progress`. */
  readonly status: string;
  /** Plain JSON. */
  readonly response: unknown;
  readonly at: number;
  /** Deletes the keys of the response, so that the same request can be sent again. */
  readonly releaseKey?: boolean;
}

/** Identifies a request of a tenant, so that it is not processed twice. */
export interface IdempotencyKey {
  readonly key: string;
  /** Equal for equal requests. */
  readonly digest: string;
  /** From this time on the key can be used again. */
  readonly expiresAt: number;
  /** The id of a response. The key does not expire while that is stored. */
  readonly keptWith?: string;
}

export interface UsedKey {
  readonly digest: string;
  /** The id of the response. It may have been deleted. */
  readonly response: string;
}
