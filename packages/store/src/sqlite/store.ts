import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { checkRunNames, systemClock, type Budgets, type Clock, type RunStore } from '@treadle/core';
import { thisProcess, type Holder } from '../holder.ts';
import type { ResponseStore } from '../response-store.ts';
import { openBlobs } from './blobs.ts';
import { openBudgets } from './budgets.ts';
import { inTransaction, nameKey, openDatabase } from './database.ts';
import { openEntries } from './entries.ts';
import { isCorrupt, storeError } from './failure.ts';
import { groupCommit } from './group-commit.ts';
import { openLeases } from './leases.ts';
import { openResponses } from './responses.ts';
import { openRuns } from './runs.ts';

export interface SqliteOptions {
  /**
   * How long a lease is valid without renewal (30 s). The store renews it after a third of this time. All processes that
   * use the file need the same value.
   */
  readonly leaseTtlMs?: number;
  /** How long to wait for a lock of another process (5 s). The wait blocks the event loop. */
  readonly busyTimeoutMs?: number;
  readonly clock?: Clock;
  /** The holder of the leases that the store acquires. By default this process. */
  readonly holder?: Holder;
}

/** Stores runs, and the responses that a server gives with them. */
export interface SqliteStore extends RunStore {
  readonly responses: ResponseStore;
  /** Budgets that all processes with this store draw on. A reservation is durable when it resolves. */
  readonly budgets: Budgets;
  /**
   * Ends the leases of a run and its child runs, so that another process can drive it; false if nobody has one. Rejects
   * with `run-driven` if a live process of this host has one. For a process of another host, waits for a lease time to see
   * whether it lives. `force` ends the leases in any case: the process that had them aborts what it does when it notices.
   */
  releaseRun(runId: string, options?: { readonly force?: boolean }): Promise<boolean>;
}

/**
 * Opens a store in an SQLite file and creates the file if it does not exist. `:memory:` keeps the runs until the store is
 * closed. Several processes can open the same file. Throws if the file cannot be opened. Later failures reject with a
 * `TreadleError`, and a failed call writes nothing.
 */
export function sqliteStore(file: string, options: SqliteOptions = {}): SqliteStore {
  const { leaseTtlMs: ttlMs = 30_000, busyTimeoutMs = 5_000, clock, holder = thisProcess() } = options;
  const location = file === ':memory:' ? file : path.resolve(file);
  const db = openDatabase(location, busyTimeoutMs);
  const commit = groupCommit(db, (error) => storeError(error, location));
  const leases = openLeases(db, commit, { ttlMs, clock, holder });
  const entries = openEntries(db, commit, leases);
  const runs = openRuns(db, commit, leases);
  const blobs = openBlobs(db, commit);
  const responses = openResponses(db, commit, leases, runs);

  const { now } = clock ?? systemClock;
  const budgets = openBudgets(db, { write: commit.write, read: reading, now });

  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    commit.flush();
    // Lets pending `acquire` calls register their leases, so that they are released as well.
    await setImmediate();
    leases.close();
    commit.flush();
    db.close();
  }

  async function reading<T>(read: () => T): Promise<T> {
    try {
      return inTransaction(db, 'BEGIN', read);
    } catch (error) {
      throw storeError(error, location);
    }
  }

  return {
    append: entries.append,
    read: (runId, from) => reading(() => entries.read(runId, from)),
    async acquire(runId) {
      checkRunNames(runId);
      return leases.acquire(runId);
    },
    snapshotFrom: 1_000,
    writeSnapshot: entries.writeSnapshot,
    readSnapshot: (runId) => reading(() => entries.readSnapshot(runId)).catch(undefinedIfCorrupt),
    list: (filter) => reading(() => runs.list(filter)),
    releaseRun: leases.releaseRun,
    isDriven: async (runId) => nameKey(runId) !== null && reading(() => leases.hasDriver(runId)),
    delete: runs.delete,
    prune: runs.prune,
    blobs: {
      put: blobs.put,
      read: (runId, id, from, to) => reading(() => blobs.read(runId, id, from, to)),
      list: (runId) => reading(() => blobs.list(runId)),
    },
    budgets,
    responses: {
      create: responses.create,
      finish: responses.finish,
      get: (tenant, id) => reading(() => responses.get(tenant, id)),
      delete: responses.delete,
      unfinished: () => reading(responses.unfinished),
      prune: responses.prune,
      hasRun: (runId) => reading(() => runs.isOfResponse(runId)),
    },
    close: () => (closing ??= close()),
  };
}

/** For what can be done without. Outside of the transaction: one that has read a damaged page cannot be committed. */
function undefinedIfCorrupt(error: Error): undefined {
  if (!isCorrupt(error.cause)) throw error;
}
