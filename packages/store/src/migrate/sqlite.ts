import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { DELETED, searchWords } from '../records/conversations.ts';
import { createFolder } from '../folders.ts';
import { requireUnused } from '../sqlite/backup.ts';
import { requireStore } from '../sqlite/check.ts';
import { inTransaction, markFilled, openDatabase, pragma } from '../sqlite/database.ts';
import { fileBehind } from '../sqlite/files.ts';
import { DatabaseSync as Connection } from '../sqlite/node-sqlite.ts';
import { storeInFile } from '../sqlite/store.ts';
import {
  CONVERSATIONS,
  type Filling,
  type OpenedStore,
  type Progress,
  type Row,
  type StoreRows,
  type Table,
  type Value,
} from './tables.ts';

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

/** The places of rows have another name here. */
const columnOf = (table: Table, name: string): string => (name === 'place' && 'place' in table.columns ? 'id' : name);

function sqliteRows(db: DatabaseSync): StoreRows {
  function read(table: Table, after: Row | undefined, limit: number): readonly Row[] {
    const names = Object.keys(table.columns).filter((name) => name !== 'is_deleted');
    const key = table.key.map((name) => columnOf(table, name)).join(', ');
    const condition = after ? `WHERE (${key}) > (${table.key.map(() => '?').join(', ')})` : '';
    const columns = names.map((name) => `${columnOf(table, name)} AS ${name}`).join(', ');
    const values = after ? table.key.map((name) => after[name] as SQLInputValue) : [];
    return db
      .prepare(`SELECT ${columns} FROM ${table.name} ${condition} ORDER BY ${key} LIMIT ?`)
      .all(...values, limit)
      .map((row) => fromSqlite(table, row as Row));
  }

  function insert(table: Table, rows: readonly Row[]): void {
    const names = Object.keys(table.columns).filter((name) => name !== 'is_deleted');
    const statement = db.prepare(
      `INSERT INTO ${table.name} (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')}) ON CONFLICT DO NOTHING`,
    );
    for (const row of rows) statement.run(...names.map((name) => toSqlite(row, name)));
  }

  const partsOf = (): ReturnType<DatabaseSync['prepare']> =>
    db.prepare(
      `SELECT p.response, t.text FROM conversation_parts p LEFT JOIN conversation_texts t ON t.rowid = p.id
       WHERE p.conversation = ? ORDER BY p.response IS NOT NULL, p.id`,
    );

  return {
    rows: async (table, after, limit) => read(table, after, limit),
    async insert(table, rows) {
      inTransaction(db, 'BEGIN IMMEDIATE', () => insert(table, rows));
    },
    async update(table, name, rows) {
      const names = Object.keys(table.columns).filter((column) => column !== name && !table.key.includes(column));
      const set = names.map((column) => `${column} = ?`).join(', ');
      inTransaction(db, 'BEGIN IMMEDIATE', () => {
        const statement = db.prepare(`UPDATE ${table.name} SET ${set} WHERE ${name} = ?`);
        for (const row of rows) statement.run(...[...names, name].map((column) => toSqlite(row, column)));
      });
    },
    async conversations(after, limit) {
      const find = partsOf();
      return read(CONVERSATIONS, after, limit).map((row) => ({
        row,
        parts: find.all(row['id'] as number).map(({ response, text }) => ({
          response: response as string | null,
          words: searchWords((text as string | null) ?? '').toSorted(),
        })),
      }));
    },
    async insertConversations(conversations) {
      inTransaction(db, 'BEGIN IMMEDIATE', () => {
        const exists = db.prepare('SELECT 1 FROM conversations WHERE id = ?');
        const insertPart = db.prepare('INSERT INTO conversation_parts (conversation, response) VALUES (?, ?)');
        const insertText = db.prepare('INSERT INTO conversation_texts (rowid, text) VALUES (?, ?)');
        for (const { row, parts } of conversations) {
          if (exists.get(row['id'] as number)) continue;
          insert(CONVERSATIONS, [row]);
          for (const { response, words } of parts) {
            const { lastInsertRowid } = insertPart.run(row['id'] as number, response);
            // The index removes marks itself, and knows composed characters.
            insertText.run(lastInsertRowid, words.map((word) => word.normalize('NFC')).join(' '));
          }
        }
      });
    },
    count: async (name) => db.prepare(`SELECT count(*) AS count FROM ${name}`).get()!['count'] as number,
    lastToken: async () =>
      (db.prepare(`SELECT seq FROM sqlite_sequence WHERE name = 'leases'`).get()?.['seq'] as number | undefined) ?? 0,
    version: async () => pragma(db, 'data_version'),
  };
}

function fromSqlite(table: Table, row: Row): Row {
  const converted = Object.entries(row).map(([name, value]): [string, Value] => [
    name,
    table.columns[name] === 'boolean' ? Boolean(value) : value,
  ]);
  if (!('is_deleted' in table.columns)) return Object.fromEntries(converted);
  const tenant = row['tenant'] as string;
  const isDeleted = tenant.startsWith(DELETED);
  return {
    ...Object.fromEntries(converted),
    tenant: isDeleted ? tenant.slice(DELETED.length) : tenant,
    is_deleted: isDeleted,
  };
}

function toSqlite(row: Row, name: string): SQLInputValue {
  const value = row[name]!;
  if (name === 'tenant' && row['is_deleted'] === true) return `${DELETED}${value as string}`;
  return typeof value === 'boolean' ? Number(value) : value;
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
