import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { checkOptions, checkRunNames, systemClock, TreadleError, type Clock, type OptionNames } from '@treadle/core';
import { processState, thisProcess, type Holder } from '../holder.ts';
import type { CommitListener, Store } from '../ports/store.ts';
import { openBegun } from '../records/begun.ts';
import { openAppends } from './appends.ts';
import { openBlobs } from './blobs.ts';
import { openBudgets } from './budgets.ts';
import { ALL_RUNS, openChanges } from './changes.ts';
import { openConversations } from './conversations.ts';
import { nameKey } from '../records/json.ts';
import { inTransaction, openDatabase } from './database.ts';
import { openEntries } from './entries.ts';
import { isBusy, isCorrupt, storeError } from './failure.ts';
import { groupCommit, pauses, type CommitOptions, type GroupCommit } from './group-commit.ts';
import { openInbox } from './inbox.ts';
import { openKeptProcesses } from './kept-processes.ts';
import { openKeys } from './keys.ts';
import type { LeaseOptions } from './driven-runs.ts';
import { openLeases } from './leases.ts';
import { openMemories } from './memory.ts';
import { openMessages } from './messages.ts';
import { openMetrics } from './metrics.ts';
import { openNotices } from './notices.ts';
import { openQuotas } from './quotas.ts';
import { openRates } from './rates.ts';
import { openRequests } from './requests.ts';
import { openRuns } from './runs.ts';
import { watchHolders } from '../records/watch-holders.ts';
import { openSchedules } from './schedules.ts';
import { openSharedTexts } from './shared-texts.ts';
import { openStreams } from './streams.ts';
import { openWal, type Wal } from './wal.ts';

export interface SqliteOptions {
  /**
   * How long a lease is valid without renewal (30 s). The store renews it after a third of this time. All processes that
   * use the file need the same value.
   */
  readonly leaseTtlMs?: number;
  /** How long to wait for a lock of another process (5 s). Only opening the store blocks the event loop. */
  readonly busyTimeoutMs?: number;
  readonly clock?: Clock;
  /** The holder of the leases that the store acquires. By default this process. */
  readonly holder?: Holder;
}

const OPTIONS: OptionNames<SqliteOptions> = {
  leaseTtlMs: 'number',
  busyTimeoutMs: 'number',
  clock: '.now',
  holder: 'object',
};

/** A store in an SQLite file. */
export interface SqliteStore extends Store {
  /** Calls `listener`, instead of an earlier one, after each transaction: for metrics. */
  onCommit(listener: CommitListener): void;
}

/**
 * Opens a store in an SQLite file and creates the file if it does not exist. `:memory:` keeps the runs until the store is
 * closed. Several processes can open the same file. Throws if the file cannot be opened. Later failures reject with a
 * `TreadleError`, and a failed call writes nothing, unless it was the sync that failed: then it may have been written.
 */
export function sqliteStore(file: string, options: SqliteOptions = {}): SqliteStore {
  if (typeof file !== 'string') {
    throw new TreadleError('invalid-options', 'sqliteStore: pass the path of a file, or ":memory:".');
  }
  checkOptions('sqliteStore', options, { names: OPTIONS });
  if (file.startsWith('file:')) {
    throw new TreadleError(
      'invalid-options',
      'sqliteStore: pass a path, not a file: URL. fileURLToPath of node:url converts it.',
    );
  }
  const location = file === ':memory:' ? file : path.resolve(file);
  const machine = thisMachine(location, options);
  const db = openDatabase(location, machine.busyTimeoutMs);
  return file === ':memory:' ? storeOn(db, { ...machine, sync: () => {} }) : storeInFile(db, location, options);
}

/** A store in the file that a connection has opened. */
export function storeInFile(db: DatabaseSync, location: string, options: SqliteOptions = {}): SqliteStore {
  return storeOn(db, { ...thisMachine(location, options), ...openWal(db, location) });
}

/** The machine that this process runs on, without its disk. */
export function thisMachine(location: string, options: SqliteOptions = {}): Omit<Machine, keyof Wal> {
  const { leaseTtlMs: ttlMs = 30_000, busyTimeoutMs = 5_000, clock, holder = thisProcess() } = options;
  return { location, ttlMs, clock, holder, processState, busyTimeoutMs, defer };
}

function defer(act: () => void, ms?: number): void {
  if (ms === undefined) setImmediate(act);
  else setTimeout(act, ms);
}

/** What a store needs of the machine that it runs on, apart from the database. Tests simulate it. */
export interface Machine extends LeaseOptions, Omit<CommitOptions, 'toStoreError'> {
  /** Names the store in errors. */
  readonly location: string;
  /** Called before the database is closed. */
  readonly close?: () => Promise<void>;
}

/** A store in an open database that has the schema. Closing the store closes the database. */
export function storeOn(db: DatabaseSync, machine: Machine): SqliteStore {
  const { location, defer } = machine;
  const commit = groupCommit(db, { ...machine, toStoreError: (error) => storeError(error, location) });
  const { reading, readingParts, settled } = storeReads(db, commit, machine);
  const leases = openLeases(db, commit, machine);
  const shared = openSharedTexts(db);
  const messages = openMessages(db, shared);
  const { now } = machine.clock ?? systemClock;
  const changes = openChanges(db);
  const notices = openNotices(db, commit, changes);
  const inbox = openInbox(db, { commit, changes, now });
  const streams = openStreams(db, { commit, leases, changes, now });
  const monotonic = (): number => machine.clock?.monotonic?.() ?? performance.now();
  const entries = openEntries(db, { write: commit.write, messages, shared });
  const { acquire, append } = openAppends(db, { commit, leases, messages, shared, changes, notices, monotonic });
  const drivers = watchHolders(() => reading(leases.findHolders));
  const memories = openMemories(db, commit);
  const runs = openRuns(db, { commit, leases, messages, shared, changes, memories });
  const blobs = openBlobs(db, commit);
  const requests = openRequests(db, { commit, leases, runs, messages, shared });
  const conversations = openConversations(db, { commit, requests, streams });
  const kept = openKeptProcesses(db, commit, machine);
  const budgets = openBudgets(db, { write: commit.write, read: reading, now });
  const metrics = openMetrics(db, { write: commit.write, memories });
  const schedules = openSchedules(db, { commit, changes });

  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    drivers.close();
    changes.close();
    await commit.drain();
    // Lets pending `acquire` calls register their leases, so that they are released as well.
    await new Promise<void>((resolve) => defer(resolve));
    leases.close();
    await commit.drain();
    await settled();
    await machine.close?.();
    db.close();
  }

  return {
    append,
    read: (runId, from) => readingParts(entries.readInPages(runId, from)),
    async acquire(runId) {
      checkRunNames(runId);
      return acquire(runId);
    },
    snapshotFrom: 1_000,
    writeSnapshot: entries.writeSnapshot,
    readSnapshot: (runId) => reading(() => entries.readSnapshot(runId)).catch(undefinedIfCorrupt),
    list: (filter) => readingParts(runs.listInSlices(filter)),
    watchDrivers: drivers.watch,
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
    rates: openRates(db, commit),
    quotas: openQuotas(db, { write: commit.write, now }),
    schedules: {
      ...schedules,
      get: (tenant, name) => reading(() => schedules.get(tenant, name)),
      list: () => reading(schedules.list),
    },
    secretKey: openKeys(db, commit),
    readPage: (runId, from) => reading(() => entries.readPageFrom(runId, from)),
    entriesWith: (runId, field, value) =>
      readingParts(entries.findInParts(runId, `${JSON.stringify(field)}:${JSON.stringify(value)}`)),
    sizeOf: async (runId) => (await readingParts(entries.sizeInParts(runId))).size,
    pageSize: (runId, from) => reading(() => entries.pageSize(runId, from)),
    watch: changes.watch,
    watchRuns: (listener) => changes.watch(ALL_RUNS, listener),
    streams: {
      append: streams.append,
      read: (stream, after) => reading(() => streams.read(stream, after)),
      pageSize: (stream, after) => reading(() => streams.pageSize(stream, after)),
      last: (stream) => reading(() => streams.last(stream)),
      watch: changes.watch,
      delete: streams.delete,
      prune: streams.prune,
    },
    conversations: {
      ...conversations,
      get: (tenant, id) => reading(() => conversations.get(tenant, id)),
      list: (filter) => reading(() => conversations.list(filter)),
      responses: (id) => reading(() => conversations.responses(id)),
    },
    keptProcesses: { ...kept, abandoned: (runId) => reading(() => kept.abandoned(runId)) },
    notices: {
      ...notices,
      nextDue: () => reading(notices.nextDue),
      // Each server looks whenever another one has committed. A write would lock the file and sync it, also if there is nothing.
      take: async (options) =>
        ((await reading(notices.nextDue)) ?? Infinity) <= options.now ? notices.take(options) : [],
    },
    metrics: {
      ...metrics,
      noted: (limit) => reading(() => metrics.noted(limit)),
      waiting: () => reading(metrics.waiting),
      read: (filter) => reading(() => metrics.read(filter)),
    },
    memory: {
      put: memories.put,
      forget: memories.forget,
      addVectors: memories.addVectors,
      restart: memories.restart,
      matching: (reader, text, limit) => reading(() => memories.matching(reader, text, limit)),
      vectorsComparedBy: async () => 'process',
      nearest: (reader, near) => readingParts(memories.nearestInParts(reader, near)),
      get: (reader, id) => reading(() => memories.get(reader, id)),
      list: (filter) => reading(() => memories.list(filter)),
      unembedded: (model, limit) => reading(() => memories.unembedded(model, limit)),
    },
    inbox: { ...inbox, open: () => reading(inbox.open), replyTo: (id) => reading(() => inbox.replyTo(id)) },
    requests: {
      create: requests.create,
      addKeys: requests.addKeys,
      removeKeys: requests.removeKeys,
      findKey: (tenant, key, now) => reading(() => requests.findKey(tenant, key, now)),
      finish: requests.finish,
      reopen: requests.reopen,
      markWaiting: requests.markWaiting,
      get: (tenant, id) => reading(() => requests.get(tenant, id)),
      head: (tenant, id) => reading(() => requests.head(tenant, id)),
      sizeOf: (tenant, id) => reading(() => requests.sizeOf(tenant, id)),
      headOfRun: (runId) => reading(() => requests.headOfRun(runId)),
      delete: requests.delete,
      unfinished: () => reading(requests.unfinished),
      undriven: (now) => reading(() => requests.undriven(now)),
      prune: requests.prune,
      pruneExpired: requests.pruneExpired,
      hasRun: (runId) => reading(() => runs.isOfResponse(runId)),
    },
    together: (work) => commit.together(work),
    durable: commit.syncShown,
    onCommit: commit.onCommit,
    close: () => (closing ??= close()),
  };
}

interface Reads {
  /** Reads in one transaction. */
  readonly reading: <T>(read: () => T) => Promise<T>;
  /**
   * Reads parts, each in a transaction of its own, until the last one returns the whole. The event loop turns in between. Parts
   * of concurrent reads do not share a turn, because each may take some time.
   */
  readonly readingParts: <T>(next: () => T | undefined) => Promise<T>;
  /** Resolves when all reads in parts have ended. */
  readonly settled: () => Promise<void>;
}

function storeReads(db: DatabaseSync, commit: GroupCommit, { location, defer, busyTimeoutMs }: Machine): Reads {
  const reads = openBegun();

  async function reading<T>(read: () => T): Promise<T> {
    const accepted = commit.accepted();
    if (accepted) await accepted;
    const retries = pauses(busyTimeoutMs);
    for (;;) {
      try {
        commit.noteRead();
        return inTransaction(db, 'BEGIN', read);
      } catch (error) {
        const { value: pause } = isBusy(error) ? retries.next() : NO_PAUSE;
        if (pause === undefined) throw storeError(error, location);
        await new Promise<void>((resolve) => defer(resolve, pause));
      }
    }
  }

  let lastPart: Promise<void> = Promise.resolve();
  const nextTurn = (): Promise<void> => new Promise((resolve) => defer(resolve));

  async function untilComplete<T>(next: () => T | undefined): Promise<T> {
    for (;;) {
      const complete = await reading(next);
      if (complete) return complete;
      lastPart = lastPart.then(nextTurn);
      await lastPart;
    }
  }

  return { reading, readingParts: (next) => reads.add(untilComplete(next)), settled: reads.settled };
}

const NO_PAUSE = { value: undefined };

/** For what can be done without. Outside of the transaction: one that has read a damaged page cannot be committed. */
function undefinedIfCorrupt(error: Error): undefined {
  if (!isCorrupt(error.cause)) throw error;
}
