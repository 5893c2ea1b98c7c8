import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { failureOf, isBusy } from './failure.ts';
import { migrate } from './schema.ts';

/** Opens a store, or makes one that only this user can read. Writes nothing to one that is there. */
export function openDatabase(file: string, busyTimeoutMs: number): DatabaseSync {
  let db: DatabaseSync | undefined;
  try {
    if (file !== ':memory:') makeFile(file);
    db = new DatabaseSync(file);
    // A commit is durable when it returns, also on macOS, where a plain sync does not reach the disk.
    db.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON`);
    useWal(db, busyTimeoutMs);
    migrate(db, file);
    return db;
  } catch (error) {
    db?.close();
    throw failureOf(error, file);
  }
}

/** Of the processes that open a new store at the same time one makes it a WAL; to the others SQLite says at once: busy. */
function useWal(db: DatabaseSync, busyTimeoutMs: number): void {
  const deadline = performance.now() + busyTimeoutMs;
  for (;;) {
    try {
      db.exec('PRAGMA journal_mode = WAL');
      return;
    } catch (error) {
      if (!isBusy(error) || performance.now() > deadline) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true });
  } catch {
    // Of a disk that cannot be written, the recursive form only says that the folder is not there.
    mkdirSync(folder);
  }
}

/** SQLite gives the files that it puts beside it the same rights. */
function makeFile(file: string): void {
  if (existsSync(file)) return;
  makeFolder(path.dirname(file));
  closeSync(openSync(file, 'a', 0o600));
}
