import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
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
  /** Damages the file in the middle of the long text that ends so. Close the stores before. */
  readonly damageText: (end: string) => void;
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
    damageText(end) {
      // A long text is a chain of pages, each of which starts with the number of the next. This breaks a link in the middle.
      const page = Math.floor((readFileSync(file).lastIndexOf(end) - 20_000) / 4_096);
      const fd = openSync(file, 'r+');
      writeSync(fd, Buffer.alloc(4, 0xff), 0, 4, page * 4_096);
      closeSync(fd);
    },
    async [Symbol.asyncDispose]() {
      for (const db of databases) if (db.isOpen) db.close();
      for (const store of opened) await store.close();
      rmSync(folder, { recursive: true });
    },
  };
}
