import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { sqliteStore, type SqliteOptions, type SqliteStore } from '../src/index.ts';

/** A temporary folder for one test and the stores open in it. Disposing it closes the stores and deletes the folder. */
export interface TempStore extends AsyncDisposable {
  readonly folder: string;
  /** The file that `open` opens. */
  readonly file: string;
  readonly open: (options?: SqliteOptions) => SqliteStore;
  /** Closes this store at the end, too. */
  readonly adopt: (store: SqliteStore) => SqliteStore;
  /** Opens the same file directly, without a store. */
  readonly raw: () => DatabaseSync;
}

export function tempStore(): TempStore {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-store-'));
  const file = path.join(folder, 'runs.db');
  const opened: SqliteStore[] = [];
  const databases: DatabaseSync[] = [];
  function adopt(store: SqliteStore): SqliteStore {
    opened.push(store);
    return store;
  }
  return {
    folder,
    file,
    open: (options) => adopt(sqliteStore(file, options)),
    adopt,
    raw() {
      const db = new DatabaseSync(file);
      db.exec('PRAGMA busy_timeout = 5000');
      databases.push(db);
      return db;
    },
    async [Symbol.asyncDispose]() {
      for (const db of databases) if (db.isOpen) db.close();
      for (const store of opened) await store.close();
      rmSync(folder, { recursive: true });
    },
  };
}
