import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { CONVERSATIONS, type Row, type StoreRows, type Table, type Value } from '../migrate/tables.ts';
import { DELETED, searchWords } from '../records/conversations.ts';
import { inTransaction, pragma } from './database.ts';

/** The places of rows have another name here. */
const columnOf = (table: Table, name: string): string => (name === 'place' && 'place' in table.columns ? 'id' : name);

/** The rows of the tables of a store in a file. */
export function sqliteRows(db: DatabaseSync): StoreRows {
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
