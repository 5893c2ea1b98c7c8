import type { DatabaseSync } from 'node:sqlite';
import type { TreadleError } from '@treadle/core';

/**
 * Writes of one turn of the event loop share one transaction, and so one sync of the disk.
 *
 * 1. Writes are performed in the order of the calls. Each promise resolves when the write is durable.
 * 2. A write that throws is rolled back and rejects alone; the rest of its transaction is committed.
 * 3. If the transaction fails, all of its writes reject and nothing is written. The next transaction is not affected.
 */
export interface GroupCommit {
  /** `work` is synchronous and runs some time after the call. */
  readonly write: <T>(work: () => T) => Promise<T>;
  /** Commits all waiting writes now. */
  readonly flush: () => void;
}

interface Write {
  readonly work: () => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (error: TreadleError) => void;
}

export interface CommitOptions {
  /** Calls `flush` after the callbacks of this turn of the event loop. */
  readonly defer: (flush: () => void) => void;
  /** Makes everything committed durable. If nothing is returned, it already is. */
  readonly sync: () => void | Promise<void>;
  readonly toStoreError: (error: unknown) => TreadleError;
}

export function groupCommit(db: DatabaseSync, { defer, sync, toStoreError }: CommitOptions): GroupCommit {
  const savepoint = db.prepare('SAVEPOINT job');
  const release = db.prepare('RELEASE job');
  let waiting: Write[] = [];

  function flush(): void {
    const writes = waiting;
    if (writes.length === 0) return;
    waiting = [];
    try {
      db.exec('BEGIN IMMEDIATE');
      const settlements = writes.map(performWrite);
      db.exec('COMMIT');
      const settleAll = (): void => settlements.forEach((settle) => settle());
      const synced = sync();
      if (synced) synced.then(settleAll, (error: unknown) => rejectAll(writes, error));
      else settleAll();
    } catch (error) {
      rollBack();
      rejectAll(writes, error);
    }
  }

  function rejectAll(writes: readonly Write[], error: unknown): void {
    const failure = toStoreError(error);
    for (const { reject } of writes) reject(failure);
  }

  /** Returns the function that settles the promise, to be called after the commit. */
  function performWrite({ work, resolve, reject }: Write): () => void {
    savepoint.run();
    try {
      const value = work() as never;
      release.run();
      return () => resolve(value);
    } catch (error) {
      // After some errors, such as a full disk, SQLite has rolled back the whole transaction.
      if (!db.isTransaction) throw error;
      db.exec('ROLLBACK TO job; RELEASE job');
      return () => reject(toStoreError(error));
    }
  }

  function rollBack(): void {
    try {
      if (db.isTransaction) db.exec('ROLLBACK');
    } catch {
      // The transaction has ended in any case; the first error is the one to report.
    }
  }

  return {
    write: (work) =>
      new Promise((resolve, reject) => {
        // Runs after the callbacks of this turn, so replies that arrived together are committed together.
        if (waiting.length === 0) defer(flush);
        waiting.push({ work, resolve, reject });
      }),
    flush,
  };
}
