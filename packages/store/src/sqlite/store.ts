import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { Clock, RunStore } from '@treadle/core';
import { thisProcess, type Holder } from '../holder.ts';
import type { ResponseStore } from '../responses.ts';
import { texts } from './blobs.ts';
import { entries } from './entries.ts';
import { failureOf } from './failure.ts';
import { groupCommit } from './group-commit.ts';
import { leases } from './leases.ts';
import { lister } from './list.ts';
import { openDatabase } from './open.ts';
import { responses } from './responses.ts';
import { runs } from './runs.ts';
import { snapshots } from './snapshots.ts';
import { inTransaction } from './transaction.ts';

export interface SqliteOptions {
  /** How long a lease lasts that is not renewed (30 s). It is renewed three times as often. */
  readonly leaseTtlMs?: number;
  /** How long to wait for another process that writes (5 s). Nothing else happens in this process meanwhile. */
  readonly busyTimeoutMs?: number;
  readonly clock?: Clock;
  /** As whom the store takes leases: this process. */
  readonly holder?: Holder;
}

/** Runs, and the responses that some of them are. */
export interface SqliteStore extends RunStore {
  readonly responses: ResponseStore;
}

/**
 * Runs in an SQLite file, which is made if it is not there; `:memory:` keeps them only as long as the store is open.
 * Several processes can have it open. Throws if it cannot be opened; what goes wrong later rejects with a
 * `TreadleError`, and of what failed nothing is written.
 */
export function sqliteStore(file: string, options: SqliteOptions = {}): SqliteStore {
  const {
    leaseTtlMs: ttlMs = 30_000,
    busyTimeoutMs = 5_000,
    clock = backgroundClock,
    holder = thisProcess(),
  } = options;
  const place = file === ':memory:' ? file : path.resolve(file);
  const db = openDatabase(place, busyTimeoutMs);
  const commit = groupCommit(db, (error) => failureOf(error, place));
  const leased = leases(db, commit, { ttlMs, clock, holder });
  const kept = entries(db, commit, leased);
  const all = runs(db, commit, leased);
  const snapped = snapshots(db, commit, all);
  const blobs = texts(db, commit, all);
  const answered = responses(db, commit, leased, all);
  const list = lister(db);

  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    commit.flush();
    // Whoever waited for a lease has it now, so that it can be given back.
    await setImmediate();
    leased.close();
    commit.flush();
    db.close();
  }

  async function reading<T>(read: () => T): Promise<T> {
    try {
      return inTransaction(db, 'BEGIN', read);
    } catch (error) {
      throw failureOf(error, place);
    }
  }

  return {
    append: kept.append,
    read: (runId, from) => reading(() => kept.read(runId, from)),
    acquire: leased.acquire,
    snapshotFrom: 1_000,
    writeSnapshot: snapped.write,
    readSnapshot: (runId) => reading(() => snapped.read(runId)),
    list: (filter) => reading(() => list(filter)),
    isDriven: (runId) => reading(() => leased.hasDriver(runId)),
    delete: all.delete,
    prune: all.prune,
    blobs: {
      put: blobs.put,
      read: (runId, id, from, to) => reading(() => blobs.read(runId, id, from, to)),
      list: (runId) => reading(() => blobs.list(runId)),
    },
    responses: {
      create: answered.create,
      finish: answered.finish,
      get: (tenant, id) => reading(() => answered.get(tenant, id)),
      delete: answered.delete,
      unfinished: () => reading(answered.unfinished),
      prune: answered.prune,
      hasRun: (runId) => reading(() => all.isOfResponse(runId)),
    },
    close: () => (closing ??= close()),
  };
}

/** Renewing leases is no reason to keep a process alive. */
const backgroundClock: Clock = {
  now: () => Date.now(),
  timer(ms, fire) {
    const timer = setTimeout(fire, ms).unref();
    return () => clearTimeout(timer);
  },
};
