import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { createFolder } from '../folders.ts';
import { requireUnused } from '../sqlite/backup.ts';
import { requireStore } from '../sqlite/check.ts';
import { inTransaction, markFilled, openDatabase } from '../sqlite/database.ts';
import { fileBehind } from '../sqlite/files.ts';
import { DatabaseSync as Connection } from '../sqlite/node-sqlite.ts';
import { sqliteRows } from '../sqlite/rows.ts';
import { storeInFile } from '../sqlite/store.ts';
import type { Filling, OpenedStore, Progress } from './tables.ts';

/** Opens a store for a migration. A target is created if it does not exist. Rejects while another process has it open. */
export async function openSqliteFile(file: string, role: 'source' | 'target'): Promise<OpenedStore> {
  const location = path.resolve(file);
  if (role === 'source') requireStore(location);
  else createFolder(path.dirname(fileBehind(location)));
  const options = { isFilled: role === 'target' };
  if (existsSync(location) && statSync(location).size > 0) requireUnused(location, options);
  const store = storeInFile(openDatabase(location, 5_000, options), location);
  const db = new Connection(location, { timeout: 5_000 });
  db.exec('PRAGMA wal_autocheckpoint = 0');
  return {
    location,
    store,
    rows: sqliteRows(db),
    filling: sqliteFilling(db),
    async requireUnused() {},
    async close() {
      db.close();
      await store.close();
    },
  };
}

function sqliteFilling(db: DatabaseSync): Filling {
  const isBegun = (): boolean => db.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'filling'`).get() !== undefined;
  return {
    source: async () => (isBegun() ? (db.prepare('SELECT source FROM filling').get()!['source'] as string) : undefined),
    async begin(source) {
      inTransaction(db, 'BEGIN IMMEDIATE', () => {
        db.exec('CREATE TABLE filling (source TEXT NOT NULL, progress TEXT NOT NULL) STRICT');
        db.prepare(`INSERT INTO filling (source, progress) VALUES (?, '{}')`).run(source);
        markFilled(db, true);
      });
    },
    progress: async () =>
      JSON.parse(db.prepare('SELECT progress FROM filling').get()!['progress'] as string) as Progress,
    async setProgress(progress) {
      db.prepare('UPDATE filling SET progress = ?').run(JSON.stringify(progress));
    },
    async complete(token) {
      inTransaction(db, 'BEGIN IMMEDIATE', () => {
        db.exec(`DROP TABLE filling; DELETE FROM sqlite_sequence WHERE name = 'leases'`);
        db.prepare(`INSERT INTO sqlite_sequence (name, seq) VALUES ('leases', ?)`).run(token);
        markFilled(db, false);
      });
    },
    async cancel() {
      inTransaction(db, 'BEGIN IMMEDIATE', () => {
        db.exec('DROP TABLE filling');
        markFilled(db, false);
      });
    },
  };
}
