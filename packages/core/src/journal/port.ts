import type { Event } from '../machine/events.ts';
import type { RunFacts } from '../machine/rules.ts';
import type { Outcome } from '../machine/state.ts';

/**
 * Stores the entries of runs while they are driven. Ids that differ name different runs. An id, tenant or parent with an
 * unpaired surrogate is rejected by `append` and `acquire` with `invalid-input`; everything else finds no such run.
 */
export interface Journal {
  /**
   * Appends entries to a run, in order, all or none. The returned promise resolves when they, and all entries appended
   * before, are durable; if nothing is returned, they already are. With `until: 'written'` it may resolve as soon as they
   * are written: nothing that is written later becomes durable before them, but a power failure can lose them. With
   * `until: 'accepted'` it may return nothing before they are written. An append of no entries makes those before it
   * durable. A rejection, or an exception, stops the run: no effect of these entries is performed. If entries that were
   * accepted cannot be written, the journal aborts `lost` of the lease, and writes none after them. Rejects with `run-exists` if
   * the entries are not the next ones, with `lease-lost` if the lease is not the newest of the run, and with `run-driven` if no
   * lease is passed while another driver holds one.
   */
  append(runId: string, entries: readonly JournalEntry[], lease?: Lease, until?: Stored): void | Promise<void>;
  /**
   * The entries of a run from `from` (default 0) on; empty if there is no such run, or if it is deleted meanwhile. Rejects
   * with `journal-damaged` if any entry of the run, also before `from`, is not the one that was appended. A journal that
   * reads a long run lets the event loop turn in between; entries that are appended meanwhile are not part of the result.
   */
  read(runId: string, from?: number): Promise<readonly JournalEntry[]>;
  /** Makes the caller the only driver of the run. Rejects with `run-driven` while another driver has the lease. */
  acquire?(runId: string): Promise<Lease>;
  /**
   * Stores a snapshot of entries that are written, so that opening a long run does not need all of them. A later snapshot
   * replaces it. It is not durable before the entries that it covers.
   */
  writeSnapshot?(runId: string, snapshot: Snapshot): Promise<void>;
  readSnapshot?(runId: string): Promise<Snapshot | undefined>;
  /** The number of entries from which snapshots are written; absent: none are. */
  readonly snapshotFrom?: number;
}

/**
 * How far a write has come. `accepted`: it is written within a few milliseconds, in order, and every reader of the same
 * journal object sees it. `written`: it survives the death of the process, and every reader sees it. `durable`: it also
 * survives a power failure.
 */
export type Stored = 'accepted' | 'written' | 'durable';

/** A journal whose runs can be listed and deleted, with their blobs. */
export interface RunStore extends Required<Omit<Journal, 'snapshotFrom'>>, Pick<Journal, 'snapshotFrom'> {
  /** Newest first. */
  list(filter?: RunFilter): Promise<readonly RunSummary[]>;
  /** Whether a live driver holds the lease of the run. */
  isDriven(runId: string): Promise<boolean>;
  /**
   * Deletes a run and its child runs at every depth, with their blobs and snapshots, but not its forks; false if there is
   * no such run. Rejects with `run-driven`, and deletes nothing, while one of them is driven.
   */
  delete(runId: string): Promise<boolean>;
  /**
   * Deletes runs that ended before `before`, except children of open runs. A run is deleted together with its child runs,
   * and only if all of them ended before that time. Returns the number of deleted runs.
   */
  prune(before: number): Promise<number>;
  readonly blobs: Blobs;
  close(): Promise<void>;
}

/** Texts that are too long for a history, addressed by content. */
export interface Blobs {
  /**
   * Stores a text, or bytes with their media type, for a run. Equal contents have the same id. It is deleted with the last
   * run that refers to it. Resolves when it is durable, or with `until: 'written'` when it is written, like `append`.
   */
  put(runId: string, content: BlobContent, until?: Stored): Promise<string>;
  /**
   * Part of a text or of bytes, and the length of the whole; undefined if the run has no blob of that id. Rejects with
   * `journal-damaged` if the part is not the one that was stored.
   */
  read(runId: string, id: string, from: number, to: number): Promise<BlobPart | undefined>;
  /** The ids of all blobs of a run, sorted. */
  list(runId: string): Promise<readonly string[]>;
}

export type BlobContent = string | BlobBytes;

export interface BlobBytes {
  readonly bytes: Uint8Array;
  /** Such as `image/png`. */
  readonly mediaType: string;
}

/** `length` is that of the whole: in UTF-16 units for a text, else in bytes. */
export type BlobPart =
  | { readonly text: string; readonly length: number; readonly bytes?: never }
  | (BlobBytes & { readonly length: number; readonly text?: never });

/** The right to drive a run. Only the lease with the highest `token` of the run can append. */
export interface Lease {
  readonly runId: string;
  /** Higher than that of every earlier lease of the run. Tools get it as `lease`, to pass it to systems that they act on. */
  readonly token: number;
  /**
   * Aborts when the journal finds out that the lease is lost; the reason is the error. The driver then aborts everything
   * in progress. Absent: the driver finds out when it appends.
   */
  readonly lost?: AbortSignal;
  /**
   * The driver calls it before each effect. Returns nothing if nobody else can have the lease yet. Otherwise the effect
   * waits for the promise, which rejects with `lease-lost` if somebody has, or if that cannot be found out. Absent: a lease
   * cannot be lost while the driver is suspended.
   */
  confirm?(): void | Promise<void>;
  /**
   * The last driver did not release its lease, so its process died. A journal that cannot tell leaves it out; then no
   * deaths are counted for `crashLimit`.
   */
  readonly takenOver?: true;
  /** Ends the lease, so that the next driver does not have to wait. Never rejects. */
  release(): Promise<void>;
}

/** One event and what it led to, which replay checks. */
export interface JournalEntry {
  /** The version of the entry format. */
  readonly v: 1;
  /** Counts from 0, without gaps. */
  readonly seq: number;
  readonly event: Event;
  /** The ids of the effects that the event issued. */
  readonly issued: readonly string[];
  /** A digest of the history if the event issued a model call; of history and outcome if it ended the run. */
  readonly digest?: number;
  /** A digest of what the event pins for later turns, such as rules and tools. Entries of older versions have none. */
  readonly pinned?: number;
  /** The status of the run after the event; absent: `running`. */
  readonly status?: Exclude<RunStatus, 'running'>;
  /** When a run that is paused, or whose model asked to wait, should be resumed without an answer. */
  readonly wakeAt?: number;
}

export type RunStatus = 'running' | 'paused' | Outcome['type'];

export interface Snapshot {
  /** The number of entries that the snapshot covers. */
  readonly seq: number;
  /** Plain JSON. */
  readonly state: unknown;
}

export interface RunSummary extends Pick<RunFacts, 'session' | 'task' | 'labels'> {
  readonly runId: string;
  readonly status: RunStatus;
  /** Of a fork: when it was made. Its first entries are older. */
  readonly startedAt: number;
  readonly updatedAt: number;
  readonly entries: number;
  readonly model: string;
  /** The beginning of the task. */
  readonly title: string;
  readonly tenant?: string;
  /** The run that it is a fork or a child of. */
  readonly parent?: string;
  /** When the run should be resumed without an answer. A child run has none: it is resumed with its parent. */
  readonly wakeAt?: number;
  /** Absent if no driver of the run has died, and in a journal that cannot tell. */
  readonly recovered?: Recovery;
}

/** Drivers that died while the run was running, without releasing their lease, so that another one could take it over. */
export interface Recovery {
  /** The number of these drivers. */
  readonly times: number;
  /** When the lease of the last one was taken over. */
  readonly at: number;
}

export interface RunFilter {
  readonly runId?: string;
  readonly status?: readonly RunStatus[];
  readonly model?: string;
  /** Only runs whose title contains this text. Upper and lower case of ASCII letters are the same. */
  readonly title?: string;
  readonly parent?: string;
  readonly tenant?: string;
  readonly session?: string;
  readonly task?: string;
  /** Only runs that have all of these labels, with these values. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Only runs that were recovered, as `RunSummary.recovered` says. */
  readonly recovered?: true;
  /** Only runs with a `wakeAt` of at least `from` and at most `to`, the earliest first. */
  readonly due?: { readonly from?: number; readonly to: number };
  /** Only runs started before this time. */
  readonly before?: number;
  /** Only runs started at this time or later. */
  readonly since?: number;
  /**
   * Only runs that are listed after this one, for the next page. If it was deleted meanwhile, those that started at the same
   * time may be listed again. Not together with `due`.
   */
  readonly after?: Pick<RunSummary, 'runId' | 'startedAt'>;
  /** Default 100. */
  readonly limit?: number;
}
