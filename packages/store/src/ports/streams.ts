import type { Lease } from '@treadle/core';

/** An event of a stream. Numbers start at 1 and grow; some may be missing. */
export interface StoredEvent {
  readonly seq: number;
  /** Plain JSON. */
  readonly event: unknown;
}

/** Streams of numbered events that any process with the store can read again. A stream exists when it has an event. */
export interface StreamStore {
  /**
   * Appends events with the numbers `first`, `first + 1`, …, all or none. Durable when it resolves. Without events, it only
   * uses up the numbers before `first`. Rejects with `run-exists` if `first` is not above the last number, and with
   * `lease-lost` if the lease is not the newest of its run.
   */
  append(stream: string, first: number, events: readonly object[], lease?: Lease): Promise<void>;
  /** The events after a number, in order, up to a page. Empty: there are no more now. */
  read(stream: string, after: number): Promise<readonly StoredEvent[]>;
  /** The bytes of JSON that `read` reads. It does not read them. */
  pageSize(stream: string, after: number): Promise<number>;
  /** The last number that is used; 0 if there is no such stream. */
  last(stream: string): Promise<number>;
  /**
   * Calls `listener` when events may have been appended, or the stream was deleted: at once for those of this process, within a tenth of a second for
   * those of others. The returned function ends that.
   */
  watch(stream: string, listener: () => void): () => void;
  delete(stream: string): Promise<void>;
  /** Deletes streams whose last event was appended before this time. Resolves to their number. */
  prune(before: number): Promise<number>;
}
