import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { sqliteStore, type SqliteOptions, type SqliteStore } from '../src/index.ts';

/** A folder of its own for one test, and what is open in it. */
export interface Place extends AsyncDisposable {
  readonly folder: string;
  /** Where `open` opens a store. */
  readonly file: string;
  readonly open: (options?: SqliteOptions) => SqliteStore;
  /** The same file, past the store. */
  readonly raw: () => DatabaseSync;
}

export function place(): Place {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-store-'));
  const file = path.join(folder, 'runs.db');
  const opened: SqliteStore[] = [];
  const raws: DatabaseSync[] = [];
  return {
    folder,
    file,
    open(options) {
      const store = sqliteStore(file, options);
      opened.push(store);
      return store;
    },
    raw() {
      const db = new DatabaseSync(file);
      db.exec('PRAGMA busy_timeout = 5000');
      raws.push(db);
      return db;
    },
    async [Symbol.asyncDispose]() {
      for (const db of raws) if (db.isOpen) db.close();
      for (const store of opened) await store.close();
      rmSync(folder, { recursive: true });
    },
  };
}
