import type { Budgets } from '@treadle/core/budgets';
import type { MemoryPort } from '@treadle/core/memory';
import type { RateStore } from '@treadle/core/policy';
import type { ConversationStore } from './conversations.ts';
import type { InboxStore } from './inbox.ts';
import type { KeptProcessStore } from './kept-processes.ts';
import type { MetricStore } from './metrics.ts';
import type { NoticeStore } from './notices.ts';
import type { QuotaStore } from './quotas.ts';
import type { RequestStore } from './requests.ts';
import type { StoredRuns } from './runs.ts';
import type { ScheduleStore } from './schedules.ts';
import type { StreamStore } from './streams.ts';

/**
 * Everything that a server and a command store. The parts are views of one store and are never mixed from two, because
 * transactions span them. What a call writes is written completely or not at all. Of calls that are not awaited:
 *
 * 1. What has resolved is seen by every later call. So are entries that were accepted (`append` returned nothing), by this store.
 * 2. Writes of one tick of the event loop are performed in the order of the calls. The appends, `acquire` and `release` of a run
 *    have an order of their own. Results, snapshots and the deletion of a run come after the entries that were appended to it
 *    before, but await them before you append more.
 * 3. A read sees a write that has not resolved completely or not at all, whichever was called first.
 * 4. `close` performs the reads and appends that were called before, and calls no listener any more.
 */
export interface Store extends StoredRuns, SecretKeys {
  /** The requests of a server, of every API. */
  readonly requests: RequestStore;
  readonly conversations: ConversationStore;
  /** Events that clients of a server can read again. */
  readonly streams: StreamStore;
  /** Notices about runs that have paused or ended. */
  readonly notices: NoticeStore;
  /** What runs have done, by tenant and hour. */
  readonly metrics: MetricStore;
  /** What runs observed, and notes. */
  readonly memory: MemoryPort;
  /** Requests to the processes that drive runs. */
  readonly inbox: InboxStore;
  /** Processes that tools have started, between the runs of a conversation. */
  readonly keptProcesses: KeptProcessStore;
  /** Budgets that all processes with this store draw on. A reservation is durable when it resolves. */
  readonly budgets: Budgets;
  /** Counts calls for the rates of a policy, for all processes with this store. */
  readonly rates: RateStore;
  /** What starts runs by itself. */
  readonly schedules: ScheduleStore;
  /** What clients may use of servers. */
  readonly quotas: QuotaStore;
  /**
   * Calls `work`. What it writes before it first waits is one transaction, in the order of the calls: no other process sees a part of
   * it, or writes in between. A call that rejects for a reason of its own, such as `run-exists`, has written nothing, and the others
   * have. Not for appends, `acquire` and `release`.
   */
  together<T>(work: () => Promise<T>): Promise<T>;
  /**
   * Resolves when everything that reads have returned so far is durable, whichever process wrote it; nothing if it already is.
   * Reads do not wait for that. Who tells somebody outside of the process what it has read, waits for this first. All who wait
   * at the same time share a sync. Rejects if the disk cannot be synced or the files are gone: then nothing may be told.
   */
  durable(): void | Promise<void>;
  /** Calls `listener`, instead of an earlier one, after each transaction: for metrics. Absent: the store does not report them. */
  onCommit?(listener: CommitListener): void;
}

/**
 * Called after each transaction. `ms`: from its first write until it was durable, or, if nothing has to be durable, committed.
 * `writes`: how many shared it.
 */
export type CommitListener = (ms: number, writes: number) => void;

export interface SecretKeys {
  /**
   * A secret key of 32 random bytes, the same for all processes with this store. It is created when it is first asked for,
   * and durable when it resolves. A backup of the store contains it.
   */
  secretKey(name: string): Promise<Uint8Array>;
}
