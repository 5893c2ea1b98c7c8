import type { DatabaseSync } from 'node:sqlite';

/** All of it or nothing, and all of it as the store was at one moment. */
export function inTransaction<T>(db: DatabaseSync, begin: 'BEGIN' | 'BEGIN IMMEDIATE', work: () => T): T {
  db.exec(begin);
  try {
    const value = work();
    db.exec('COMMIT');
    return value;
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}
