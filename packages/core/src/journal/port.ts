import type { Event } from '../loop/types.ts';

/** Where runs are kept. Only one process drives a run at a time. */
export interface Journal {
  /**
   * Adds to the end of a run, in order, all or nothing. What it returns is settled once the entries are durable;
   * nothing returned means they are already. A rejection stops the run: nothing that follows from them is done.
   */
  append(runId: string, entries: readonly JournalEntry[]): void | Promise<void>;
  /** A run from its first entry; empty when there is none of that id. */
  read(runId: string): Promise<readonly JournalEntry[]>;
}

/** One fact and what it led to, which replay checks. */
export interface JournalEntry {
  /** Version of the entry's form. */
  readonly v: 1;
  /** Counts from 0, without gaps. */
  readonly seq: number;
  readonly event: Event;
  /** Ids of the effects that it issued. */
  readonly issued: readonly string[];
  /** Of the history, when one of them calls the model. */
  readonly digest?: number;
}
