import type { DatabaseSync } from 'node:sqlite';
import type { TreadleError } from '@treadle/core';

/**
 * Everything that is written in one turn of the event loop shares one transaction, and so one sync of the disk.
 *
 * 1. Work is done in the order in which it came, and its promise resolves when the disk has it.
 * 2. Work that throws is undone and rejects alone; the rest of its transaction goes on.
 * 3. If the transaction fails, all of it rejects and nothing is written. The next one is not affected.
 */
export interface GroupCommit {
  /** Work is synchronous, and may run a while after the call. */
  readonly write: <T>(work: () => T) => Promise<T>;
  /** Commits at once what is waiting. */
  readonly flush: () => void;
}

interface Job {
  readonly work: () => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (error: TreadleError) => void;
}

export function groupCommit(db: DatabaseSync, failureOf: (error: unknown) => TreadleError): GroupCommit {
  const savepoint = db.prepare('SAVEPOINT job');
  const release = db.prepare('RELEASE job');
  let waiting: Job[] = [];

  function flush(): void {
    const jobs = waiting;
    if (jobs.length === 0) return;
    waiting = [];
    try {
      db.exec('BEGIN IMMEDIATE');
      const settled = jobs.map(attempt);
      db.exec('COMMIT');
      for (const settle of settled) settle();
    } catch (error) {
      undo();
      const failure = failureOf(error);
      for (const { reject } of jobs) reject(failure);
    }
  }

  function attempt({ work, resolve, reject }: Job): () => void {
    savepoint.run();
    try {
      const value = work() as never;
      release.run();
      return () => resolve(value);
    } catch (error) {
      // After some errors, a full disk for one, SQLite has undone the whole transaction.
      if (!db.isTransaction) throw error;
      db.exec('ROLLBACK TO job; RELEASE job');
      return () => reject(failureOf(error));
    }
  }

  function undo(): void {
    try {
      if (db.isTransaction) db.exec('ROLLBACK');
    } catch {
      // It is over either way, and what went wrong before is what counts.
    }
  }

  return {
    write: (work) =>
      new Promise((resolve, reject) => {
        // After the callbacks of this turn: replies that came in together are committed together.
        if (waiting.length === 0) setImmediate(flush);
        waiting.push({ work, resolve, reject });
      }),
    flush,
  };
}
