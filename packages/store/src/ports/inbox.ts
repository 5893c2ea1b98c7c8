/** A request to the process that drives a run. */
export interface RunRequest {
  readonly id: number;
  readonly runId: string;
  /** Plain JSON. */
  readonly request: unknown;
}

/**
 * How long a request can be taken after it was added. Who has sent it waits as long, and then withdraws it. If that process
 * has died meanwhile, nobody waits for the request any more, and it must not act later.
 */
export const INBOX_PATIENCE_MS = 3_000;

/**
 * Requests of one process to the one that drives a run, and their replies. A request is taken at most once. It is forgotten if
 * the machine fails: who has sent it gets no reply then.
 */
export interface InboxStore {
  /** Resolves to the number of the request. */
  add(runId: string, request: object): Promise<number>;
  /** The requests that nobody has taken or removed and that have not expired, in order. */
  open(): Promise<readonly RunRequest[]>;
  /** False if the request was taken or removed, or has expired. */
  take(id: number): Promise<boolean>;
  reply(id: number, reply: object): Promise<void>;
  /** The reply to a request; undefined if there is none yet. */
  replyTo(id: number): Promise<unknown>;
  /** Removes a request with its reply. `ifOpen`: only if nobody has taken it. False if it was not removed. */
  remove(id: number, options?: { readonly ifOpen?: boolean }): Promise<boolean>;
  /**
   * Calls `listener` when there may be a new request or reply: at once for those of this process, within a tenth of a second
   * for those of others. The returned function ends that.
   */
  watch(listener: () => void): () => void;
}
