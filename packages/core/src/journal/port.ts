import type { Event } from '../loop/events.ts';
import type { Outcome } from '../loop/state.ts';

/** Where a run is kept while it is driven. */
export interface Journal {
  /**
   * Adds to the end of a run, in order, all or nothing. What it returns is settled once the entries are durable;
   * nothing returned means they are already. A rejection stops the run: nothing that follows from them is done.
   * Rejects with `run-exists` if the entries are not the next ones, with `lease-lost` if the lease is not the run's
   * newest, and with `run-driven` if there is no lease while somebody holds one.
   */
  append(runId: string, entries: readonly JournalEntry[], lease?: Lease): void | Promise<void>;
  /** A run from entry `from` (0) on; empty when there is none of that id. */
  read(runId: string, from?: number): Promise<readonly JournalEntry[]>;
  /** Makes the caller the run's only driver. Rejects with `run-driven` while somebody else is. */
  acquire?(runId: string): Promise<Lease>;
  /** Keeps what a state serialises to, so that a long run opens without all of its entries. A later one replaces it. */
  writeSnapshot?(runId: string, snapshot: Snapshot): Promise<void>;
  readSnapshot?(runId: string): Promise<Snapshot | undefined>;
  /** The number of entries from which on a snapshot is worth its while; absent: none is written. */
  readonly snapshotFrom?: number;
}

/** A journal that can be looked through and tidied up, with the blobs of its runs. */
export interface RunStore extends Required<Omit<Journal, 'snapshotFrom'>>, Pick<Journal, 'snapshotFrom'> {
  /** Newest first. */
  list(filter?: RunFilter): Promise<readonly RunSummary[]>;
  /** Whether somebody drives the run now; a driver that has died does not. */
  isDriven(runId: string): Promise<boolean>;
  /** With its blobs and its snapshot; false when there is none. Rejects with `run-driven` while it is driven. */
  delete(runId: string): Promise<boolean>;
  /** Deletes what has ended and was last touched before `before`, unless the run that it works for still needs it; how many runs that were. */
  prune(before: number): Promise<number>;
  readonly blobs: Blobs;
  close(): Promise<void>;
}

/** Texts too long for a history, by what they hold. */
export interface Blobs {
  /** Keeps a text for a run; the same text has the same id. It goes with the last run that it was kept for. */
  put(runId: string, text: string): Promise<string>;
  /** Part of a text, and how long the whole is; absent when there is none of that id for the run. */
  read(runId: string, id: string, from: number, to: number): Promise<{ text: string; length: number } | undefined>;
  /** The ids of all that is kept for a run, sorted. */
  list(runId: string): Promise<readonly string[]>;
}

/** The right to drive a run. The highest `token` of a run is the only one that can append. */
export interface Lease {
  readonly runId: string;
  readonly token: number;
  /** Gives it back, so that the next driver need not wait. Never rejects. */
  release(): Promise<void>;
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
  /** Of the history, when one of them calls the model; of the history and the outcome, when the run ends. */
  readonly digest?: number;
  /** How the run stands after it, unless it simply goes on. */
  readonly status?: Exclude<RunStatus, 'running'>;
}

export type RunStatus = 'running' | 'paused' | Outcome['type'];

export interface Snapshot {
  /** Entries that it stands for. */
  readonly seq: number;
  /** Plain JSON. */
  readonly state: unknown;
}

export interface RunSummary {
  readonly runId: string;
  readonly status: RunStatus;
  readonly startedAt: number;
  readonly updatedAt: number;
  readonly entries: number;
  readonly model: string;
  /** The beginning of the task. */
  readonly title: string;
  readonly tenant?: string;
  /** The run that it was forked from or works for. */
  readonly parent?: string;
}

export interface RunFilter {
  readonly status?: readonly RunStatus[];
  readonly parent?: string;
  readonly tenant?: string;
  /** Started before this time. */
  readonly before?: number;
  /** Default 100. */
  readonly limit?: number;
}
