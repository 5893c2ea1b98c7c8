import { checkOptions, checkRunNames, TreadleError, type OptionNames, type RunStatus } from '@treadle/core';
import { processState, thisProcess, type Holder } from '../holder.ts';
import type { CommitListener, Store } from '../ports/store.ts';
import { openBegun } from '../records/begun.ts';
import { openBudgets, openKeptProcesses, openKeys, openQuotas, openRates } from './accounts.ts';
import { MAKE_DURABLE } from './append-batches.ts';
import { openAppends } from './appends.ts';
import { openBlobs } from './blobs.ts';
import { ALL_RUNS, openChanges } from './changes.ts';
import { openConnections, type Database } from './connection.ts';
import { openConversations } from './conversations.ts';
import { openEntries } from './entries.ts';
import { openInbox } from './inbox.ts';
import { openLeases } from './leases.ts';
import { openMemories } from './memory.ts';
import { openMetrics } from './metrics.ts';
import { openNotices } from './notices.ts';
import { openRequests } from './requests.ts';
import { runQueue, type RunQueue } from './run-queue.ts';
import { openRuns } from './runs.ts';
import { migrate, type MigrateOptions } from './migrate.ts';
import { openSchedules } from './schedules.ts';
import { openStreams } from './streams.ts';

export interface PostgresOptions {
  /**
   * How long a lease is valid without renewal (3.5 s), by the clock of the database. The store renews it after a third of this time.
   * The runs of a process that dies go on elsewhere after this time.
   */
  readonly leaseTtlMs?: number;
  /** How long to retry while the database cannot be reached (10 s). */
  readonly retryMs?: number;
  /** How many connections to use at most (10), one to renew leases, and one to be told of changes. */
  readonly connections?: number;
  /** The holder of the leases that the store acquires. By default this process. */
  readonly holder?: Holder;
}

const OPTIONS: OptionNames<PostgresOptions> = {
  leaseTtlMs: 'number',
  retryMs: 'number',
  connections: 'number',
  holder: 'object',
};

/** A store in a PostgreSQL database. */
export interface PostgresStore extends Store {
  /** Calls `listener`, instead of an earlier one, after each group of appends: for metrics. */
  onCommit(listener: CommitListener): void;
}

/**
 * Opens the store in a database, in the schema `treadle`, and creates its tables if they do not exist. Any number of processes
 * can open the same one. Rejects with a `TreadleError` if that is not possible. Its message does not contain the password.
 */
export async function postgresStore(url: string, options: PostgresOptions = {}): Promise<PostgresStore> {
  if (typeof url !== 'string' || !/^postgres(ql)?:/.test(url)) {
    throw new TreadleError(
      'invalid-options',
      'postgresStore: pass a URL, such as postgres://USER:PASSWORD@HOST/DATABASE.',
    );
  }
  checkOptions('postgresStore', options, { names: OPTIONS });
  return openPostgres(url, options, {});
}

export async function openPostgres(
  url: string,
  options: PostgresOptions,
  migrating: Pick<MigrateOptions, 'isFilled'>,
): Promise<PostgresStore> {
  const { leaseTtlMs: ttlMs = 3_500, retryMs = 10_000, connections = 10, holder = thisProcess() } = options;
  // What a migration copies is copied again if the database fails.
  const isVolatile = migrating.isFilled === true;
  const db = await openConnections({ url, connections, retryMs, urgentMs: ttlMs, isVolatile });
  try {
    await migrate(db, migrating);
  } catch (error) {
    await db.close();
    throw error;
  }
  return storeOn(db, { ttlMs, retryMs, holder });
}

interface StoreParts {
  readonly ttlMs: number;
  readonly retryMs: number;
  readonly holder: Holder;
}

function storeOn(given: Database, { ttlMs, retryMs, holder }: StoreParts): PostgresStore {
  const queued = (): RunQueue => queue;
  let isClosed = false;
  /** Whether something was read since everything was last made durable. A read counts when it returns: it may have waited long. */
  let isShown = false;
  let syncing: { readonly promise: Promise<void>; isStarted: boolean } | undefined;

  // What was accepted is written before anything else of the store is read or written.
  const db: Database = {
    ...given,
    read: (...read) => shown(() => given.read(...read)),
    write: (...write) => shown(() => given.write(...write)),
  };

  async function shown<T>(perform: () => Promise<T>): Promise<T> {
    // `together` has waited for them.
    if (!given.isGathering()) await queue.accepted();
    try {
      return await perform();
    } finally {
      isShown = true;
    }
  }

  const changes = openChanges(given);
  const noticed = new Set<RunStatus>();
  // The parts of the queue use the connections themselves: they must not wait for the queue.
  const leases = openLeases(given, queued, { ttlMs, retryMs, holder, processState });
  const appends = openAppends(given, { queue: queued, leases, changes, noticed, retryMs });
  const queue = runQueue({ append: appends.kind, ...leases.kinds });
  const entries = openEntries(db);
  const runs = openRuns(db, { leases, changes });
  const streams = openStreams(db, { leases, changes });
  const requests = openRequests(db, { leases, changes });

  const reads = openBegun();
  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    isClosed = true;
    changes.mute();
    await queue.settled();
    await leases.close();
    await changes.close();
    await reads.settled();
    await given.close();
  }

  /** Those who wait at the same time share a sync, unless it has begun. */
  function durable(): void | Promise<void> {
    if (syncing && !syncing.isStarted) return syncing.promise;
    if (!isShown && !syncing) return undefined;
    const before = syncing?.promise;
    const next = { isStarted: false, promise: Promise.resolve() };
    next.promise = (async () => {
      await before?.catch(() => {});
      await Promise.resolve();
      next.isStarted = true;
      isShown = false;
      try {
        await queue.accepted();
        await given.read((query) => query(MAKE_DURABLE, []));
      } catch (error) {
        isShown = true;
        throw error;
      } finally {
        if (syncing === next) syncing = undefined;
      }
    })();
    syncing = next;
    return next.promise;
  }

  /** What belongs to a run is written after the entries that were appended before. */
  async function afterAppends<T>(runId: string, work: () => Promise<T>): Promise<T> {
    await queue.settled(runId);
    return work();
  }

  return {
    append: appends.append,
    read: (runId, from) => reads.add(entries.read(runId, from)),
    async acquire(runId) {
      checkRunNames(runId);
      if (isClosed) throw new TreadleError('store-failed', `The store ${given.location} is closed. Open it again.`);
      return appends.acquire(runId);
    },
    snapshotFrom: 1_000,
    writeSnapshot: (runId, snapshot) => afterAppends(runId, () => entries.writeSnapshot(runId, snapshot)),
    readSnapshot: entries.readSnapshot,
    list: runs.list,
    watchDrivers: leases.watchDrivers,
    async releaseRun(runId, options) {
      // Those of its child runs, too.
      await queue.accepted();
      return afterAppends(runId, () => leases.releaseRun(runId, options));
    },
    isDriven: leases.isDriven,
    delete: (runId) => afterAppends(runId, () => runs.delete(runId)),
    prune: runs.prune,
    blobs: openBlobs(db, (runId) => queue.settled(runId)),
    budgets: openBudgets(db, Date.now),
    rates: openRates(db),
    quotas: openQuotas(db),
    schedules: openSchedules(db, changes),
    secretKey: openKeys(db),
    readPage: entries.readPage,
    entriesWith: (runId, field, value) => entries.find(runId, `${JSON.stringify(field)}:${JSON.stringify(value)}`),
    sizeOf: entries.sizeOf,
    pageSize: entries.pageSize,
    watch: changes.watch,
    watchRuns: (listener) => changes.watch(ALL_RUNS, listener),
    streams,
    conversations: openConversations(db, { requests, streams }),
    keptProcesses: openKeptProcesses(db, { holder, processState }),
    notices: openNotices(db, changes, noticed),
    metrics: openMetrics(db),
    memory: openMemories(db),
    inbox: openInbox(db, changes),
    requests,
    async together(work) {
      await queue.accepted();
      return given.together(work);
    },
    durable,
    onCommit: appends.onCommit,
    close: () => (closing ??= close()),
  };
}
