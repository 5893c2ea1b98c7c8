import { closeSync, existsSync, openSync } from 'node:fs';
import path from 'node:path';
import { crc32 } from 'node:zlib';
import { TreadleError, type JournalEntry } from '@treadle/core';
import { createFolder } from '../folders.ts';
import { storeIncomplete } from '../records/errors.ts';
import { splitInput } from '../records/input.ts';
import { factColumns, inputOf, parseJson } from '../records/json.ts';
import { createBudgetTables, splitBudgets } from './budgets.ts';
import { isBusy, isCorrupt, storeError } from './failure.ts';
import { fileBehind, requireOneName } from './files.ts';
import { createKeyTable } from './keys.ts';
import { createMemoryTables } from './memory.ts';
import { createMetricTables } from './metrics.ts';
import { DatabaseSync } from './node-sqlite.ts';
import { createQuotaTable } from './quotas.ts';
import { createRateTable } from './rates.ts';
import { SCHEDULE_TABLE } from './schedules.ts';

/** Marks the file as a store of Treadle: "Trdl". */
const APPLICATION = 0x54_72_64_6c;

/** The migration at index N brings a store from version N to N + 1. */
const MIGRATIONS: readonly (string | ((db: DatabaseSync, readable: ReadableEntries) => void))[] = [
  `
  CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    entries INTEGER NOT NULL,
    model TEXT NOT NULL,
    title TEXT NOT NULL,
    tenant TEXT,
    parent TEXT
  ) STRICT;
  CREATE INDEX runs_by_status ON runs (status, started_at);
  CREATE INDEX runs_by_tenant ON runs (tenant, status, started_at) WHERE tenant IS NOT NULL;
  CREATE INDEX runs_by_parent ON runs (parent, status, started_at) WHERE parent IS NOT NULL;
  CREATE INDEX runs_ended ON runs (updated_at) WHERE status NOT IN ('running', 'paused');

  -- Not clustered by run: entries of many runs that are committed together share pages.
  CREATE TABLE entries (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    entry TEXT NOT NULL,
    sum INTEGER NOT NULL,
    PRIMARY KEY (run, seq)
  ) STRICT;

  CREATE TABLE snapshots (
    run INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    sum INTEGER NOT NULL
  ) STRICT;

  -- Leases that are held or whose holder died. AUTOINCREMENT: a token is never used twice.
  CREATE TABLE leases (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_start TEXT,
    since REAL NOT NULL,
    expires_at REAL NOT NULL
  ) STRICT;

  CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    length INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE blob_parts (
    blob INTEGER NOT NULL,
    part INTEGER NOT NULL,
    content ANY NOT NULL,
    PRIMARY KEY (blob, part)
  ) STRICT;
  CREATE TABLE blob_runs (
    run INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (run, blob)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX blob_runs_by_blob ON blob_runs (blob);
  `,
  `
  -- Refers to the run by name, because a response is created before its run.
  CREATE TABLE responses (
    id INTEGER PRIMARY KEY,
    response TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    previous TEXT,
    request TEXT NOT NULL,
    request_sum INTEGER NOT NULL,
    answer TEXT,
    answer_sum INTEGER
  ) STRICT;
  CREATE INDEX responses_unfinished ON responses (status, created_at) WHERE status = 'in_progress';
  CREATE INDEX responses_ended ON responses (updated_at) WHERE status <> 'in_progress';
  `,
  chainEntries,
  addIdempotencyKeys,
  countRecoveries,
  shareMessages,
  createBudgetTables,
  // Null: a text.
  'ALTER TABLE blobs ADD COLUMN media_type TEXT',
  createRateTable,
  // Null: the run only waits for answers, or is not paused.
  `
  ALTER TABLE runs ADD COLUMN wake_at REAL;
  CREATE INDEX runs_by_wake ON runs (wake_at) WHERE wake_at IS NOT NULL;
  `,
  // Columns are renamed, so that a process of an older version that has the store open reads, appends and deletes nothing.
  `
  CREATE TABLE texts (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    text TEXT NOT NULL
  ) STRICT;
  CREATE TABLE text_uses (
    kind INTEGER NOT NULL,
    user INTEGER NOT NULL,
    text INTEGER NOT NULL,
    PRIMARY KEY (kind, user, text)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX text_uses_by_text ON text_uses (text);
  ALTER TABLE runs RENAME COLUMN last_message TO input_last;
  ALTER TABLE runs RENAME COLUMN messages_at TO input_at;
  ALTER TABLE responses RENAME COLUMN request_sum TO request_crc;
  ALTER TABLE responses RENAME COLUMN answer_sum TO answer_crc;
  ALTER TABLE responses ADD COLUMN input_last INTEGER;
  ALTER TABLE responses ADD COLUMN input_at INTEGER;
  CREATE INDEX responses_by_input_last ON responses (input_last) WHERE input_last IS NOT NULL;
  `,
  `
  CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    stream TEXT NOT NULL UNIQUE,
    last INTEGER NOT NULL,
    updated_at REAL NOT NULL
  ) STRICT;
  CREATE INDEX streams_by_update ON streams (updated_at);

  -- One row for the events that were appended together: a JSON list.
  CREATE TABLE stream_events (
    stream INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    events TEXT NOT NULL,
    sum INTEGER NOT NULL,
    PRIMARY KEY (stream, last)
  ) STRICT;

  CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL,
    at REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at REAL NOT NULL
  ) STRICT;
  CREATE INDEX notices_by_due ON notices (due_at);
  CREATE INDEX notices_by_time ON notices (at);

  -- The number of entries of its run when it began to wait for answers.
  ALTER TABLE responses ADD COLUMN waits_at INTEGER;
  `,
  `
  CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    title TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    -- The id of its newest response.
    head TEXT
  ) STRICT;
  CREATE INDEX conversations_by_tenant ON conversations (tenant, updated_at, conversation);
  CREATE INDEX conversations_by_update ON conversations (updated_at);

  -- The title (without a response) and the responses of a conversation, in order. Branches share responses.
  CREATE TABLE conversation_parts (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    response TEXT
  ) STRICT;
  CREATE INDEX conversation_parts_by_conversation ON conversation_parts (conversation);
  CREATE INDEX conversation_parts_by_response ON conversation_parts (response) WHERE response IS NOT NULL;

  -- The text of each part, by its id.
  CREATE VIRTUAL TABLE conversation_texts USING fts5 (text);
  `,
  createKeyTable,
  `
  CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    request TEXT NOT NULL,
    at REAL NOT NULL,
    is_taken INTEGER NOT NULL DEFAULT 0,
    reply TEXT
  ) STRICT;
  CREATE INDEX inbox_by_taken ON inbox (is_taken);
  CREATE INDEX inbox_by_time ON inbox (at);
  `,
  // Plain JSON. Null: it has none.
  'ALTER TABLE conversations ADD COLUMN metadata TEXT',
  // The key does not expire while this response is stored. Null: there is none.
  'ALTER TABLE idempotency_keys ADD COLUMN kept_with TEXT',
  // The table is renamed, so that a process of an older version that has the store open cannot add requests without a kind.
  `
  ALTER TABLE responses RENAME TO requests;
  ALTER TABLE requests ADD COLUMN kind TEXT NOT NULL DEFAULT '';
  UPDATE requests SET kind = CASE
    WHEN response GLOB 'resp_*' THEN 'response'
    WHEN response GLOB 'keyed_resp_*' THEN 'keyed-response'
    WHEN response GLOB 'chat_*' THEN 'message'
    WHEN response GLOB 'items_*' THEN 'items'
    WHEN response GLOB 'mcp_*' THEN 'mcp-call'
    WHEN response GLOB 'keyed_*' THEN 'completion'
    ELSE 'turns' END;
  `,
  // Null in leases of earlier versions, which are compared by `host`, and where the system does not tell.
  `
  ALTER TABLE leases ADD COLUMN place TEXT;
  ALTER TABLE leases ADD COLUMN thread TEXT;
  `,
  // `instructions`: what the model is told in the conversation; null: nothing. `keeper` (who keeps them) and `processes` are
  // plain JSON.
  `
  ALTER TABLE conversations ADD COLUMN instructions TEXT;
  CREATE TABLE kept_processes (
    run TEXT PRIMARY KEY,
    keeper TEXT NOT NULL,
    processes TEXT NOT NULL
  ) STRICT;
  `,
  splitBudgets,
  addRunFacts,
  createQuotaTable,
  createMetricTables,
  createMemoryTables,
  SCHEDULE_TABLE,
];

/** The version of the tables. */
export const VERSION: number = MIGRATIONS.length;

/** For each run with an entry or a snapshot on a damaged page, the number of entries that can be read. */
type ReadableEntries = ReadonlyMap<number, number>;

/**
 * Until version 2 an entry had a `sum` of its own text only. It is renamed, so that a process of an older version that has
 * the store open cannot append entries with such a sum. An entry that is damaged gets a wrong `chain`: it stays damaged.
 */
function chainEntries(db: DatabaseSync, readable: ReadableEntries): void {
  db.exec(`
    ALTER TABLE entries RENAME COLUMN sum TO chain;
    ALTER TABLE runs ADD COLUMN chain INTEGER NOT NULL DEFAULT 0;
    -- Null in parts that were stored before.
    ALTER TABLE blob_parts ADD COLUMN sum INTEGER;
  `);
  const findEntries = db.prepare('SELECT seq, entry, chain AS sum FROM entries WHERE run = ? AND seq < ? ORDER BY seq');
  const updateEntry = db.prepare('UPDATE entries SET chain = ? WHERE run = ? AND seq = ?');
  const updateRun = db.prepare('UPDATE runs SET chain = ? WHERE id = ?');
  const findSnapshot = db.prepare('SELECT seq, state, sum FROM snapshots WHERE run = ?');
  const updateSnapshot = db.prepare('UPDATE snapshots SET sum = ? WHERE run = ?');
  for (const id of runNumbers(db)) {
    const snapshot = readable.has(id) ? undefined : findSnapshot.get(id);
    const state = snapshot?.['state'] as string;
    let chain = 0;
    for (const { seq, entry, sum } of findEntries.iterate(id, readable.get(id) ?? Number.MAX_SAFE_INTEGER)) {
      const next = crc32(entry as string, chain);
      chain = crc32(entry as string) === sum ? next : ~next >>> 0;
      if (chain !== sum) updateEntry.run(chain, id, seq!);
      const isCovered = snapshot?.['seq'] === (seq as number) + 1;
      if (isCovered && crc32(state) === snapshot['sum']) updateSnapshot.run(crc32(state, chain), id);
    }
    updateRun.run(chain, id);
  }
}

/** A key outlives its response, so that a request is not repeated because its response was deleted. */
function addIdempotencyKeys(db: DatabaseSync): void {
  db.exec(`
    CREATE TABLE idempotency_keys (
      tenant TEXT NOT NULL,
      key TEXT NOT NULL,
      digest TEXT NOT NULL,
      response TEXT NOT NULL,
      expires_at REAL NOT NULL,
      PRIMARY KEY (tenant, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_keys_by_response ON idempotency_keys (response);
    CREATE INDEX idempotency_keys_expiring ON idempotency_keys (expires_at);
    ALTER TABLE responses ADD COLUMN expires_at REAL;
    CREATE INDEX responses_expiring ON responses (expires_at) WHERE expires_at IS NOT NULL;
  `);
}

/** Runs of earlier versions start with 0: nothing was recorded about their drivers. */
function countRecoveries(db: DatabaseSync): void {
  db.exec(`
    ALTER TABLE runs ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN recovered_at REAL;
    CREATE INDEX runs_recovered ON runs (status, started_at) WHERE recovered > 0;
  `);
}

/**
 * Until version 5 the first entry of a run contained its whole input. The `chain` of a run is renamed, so that a process of
 * an older version that has the store open reads and appends nothing. An entry that is damaged stays unchanged.
 */
function shareMessages(db: DatabaseSync, readable: ReadableEntries): void {
  db.exec(`
    CREATE TABLE messages (
      id INTEGER PRIMARY KEY,
      previous INTEGER,
      digest BLOB NOT NULL UNIQUE,
      text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX messages_by_previous ON messages (previous) WHERE previous IS NOT NULL;
    ALTER TABLE runs RENAME COLUMN chain TO last_chain;
    ALTER TABLE runs ADD COLUMN last_message INTEGER;
    ALTER TABLE runs ADD COLUMN messages_at INTEGER;
    CREATE INDEX runs_by_last_message ON runs (last_message) WHERE last_message IS NOT NULL;
  `);
  const findMessage = db.prepare('SELECT id FROM messages WHERE digest = ?');
  const insertMessage = db.prepare('INSERT INTO messages (previous, digest, text) VALUES (?, ?, ?)');
  const findEntry = db.prepare('SELECT entry, chain FROM entries WHERE run = ? AND seq = 0');
  const updateEntry = db.prepare('UPDATE entries SET entry = ? WHERE run = ? AND seq = 0');
  const updateRun = db.prepare('UPDATE runs SET last_message = ?, messages_at = ? WHERE id = ?');
  for (const id of runNumbers(db)) {
    const { entry, chain } = (!readable.has(id) && findEntry.get(id)) || {};
    if (typeof entry !== 'string' || crc32(entry) !== chain) continue;
    const split = splitInput(entry, inputOf(parseJson(entry)));
    if (!split) continue;
    let last: number | null = null;
    for (const [index, digest] of split.digests.entries()) {
      const known = findMessage.get(digest)?.['id'] as number | undefined;
      last = known ?? Number(insertMessage.run(last, digest, split.messages[index]!).lastInsertRowid);
    }
    updateEntry.run(split.rest, id);
    updateRun.run(last, split.at, id);
  }
}

/** What runs belong to. `labels` is plain JSON. Null: the run has none. */
function addRunFacts(db: DatabaseSync, readable: ReadableEntries): void {
  db.exec(`
    ALTER TABLE runs ADD COLUMN session TEXT;
    ALTER TABLE runs ADD COLUMN task TEXT;
    ALTER TABLE runs ADD COLUMN labels TEXT;
    CREATE INDEX runs_by_session ON runs (session, status, started_at) WHERE session IS NOT NULL;
    CREATE INDEX runs_by_task ON runs (task, status, started_at) WHERE task IS NOT NULL;
  `);
  const findEntry = db.prepare(
    `SELECT entry FROM entries WHERE run = ? AND seq = 0
     AND (instr(entry, '"session":') OR instr(entry, '"task":') OR instr(entry, '"labels":'))`,
  );
  const updateRun = db.prepare('UPDATE runs SET session = ?, task = ?, labels = ? WHERE id = ?');
  for (const id of runNumbers(db)) {
    const { entry } = (!readable.has(id) && findEntry.get(id)) || {};
    // Long texts of the entry are stored elsewhere. What is in their place is not JSON.
    const first = typeof entry === 'string' ? parseJson(entry.replaceAll('\u0001', '')) : undefined;
    const event = (first as Partial<JournalEntry> | undefined)?.event;
    if (event?.type === 'run-started') updateRun.run(...factColumns(event), id);
  }
}

function findReadableEntries(db: DatabaseSync): ReadableEntries {
  const findSnapshot = db.prepare('SELECT * FROM snapshots WHERE run = ?');
  const readable = new Map<number, number>();
  for (const id of runNumbers(db)) {
    // A new statement for each run: an iterator that failed makes the next one of its statement fail, too.
    const findEntries = db.prepare('SELECT * FROM entries WHERE run = ? ORDER BY seq');
    let count = 0;
    try {
      for (const _ of findEntries.iterate(id)) count++;
      findSnapshot.get(id);
    } catch (error) {
      if (!isCorrupt(error)) throw error;
      readable.set(id, count);
    }
  }
  return readable;
}

function runNumbers(db: DatabaseSync): readonly number[] {
  return db
    .prepare('SELECT id FROM runs')
    .all()
    .map(({ id }) => id as number);
}

/** Opens a store, or creates one that only this user can read. Does not write to an existing store of this version. */
export function openDatabase(file: string, busyTimeoutMs: number, options: VersionOptions = {}): DatabaseSync {
  let db: DatabaseSync | undefined;
  try {
    if (file !== ':memory:') {
      createFile(file);
      requireOneName(file);
    }
    db = new DatabaseSync(file);
    // A migration is durable when it returns, also on macOS, where a plain sync does not reach the disk.
    db.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON`);
    enableWal(db, busyTimeoutMs);
    migrate(db, file, options);
    // From now on, the store waits for locks, syncs and moves the log itself, without blocking the event loop.
    db.exec('PRAGMA busy_timeout = 0; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0');
    // A reader, such as a backup, can make the log long. When it starts again from its beginning, it is cut to this size.
    db.exec('PRAGMA journal_size_limit = 16000000');
    return db;
  } catch (error) {
    db?.close();
    throw storeError(error, file);
  }
}

/** SQLite gives its additional files the same permissions. */
function createFile(file: string): void {
  if (existsSync(file)) return;
  createFolder(path.dirname(fileBehind(file)));
  closeSync(openSync(file, 'a', 0o600));
}

/** Retries while another process switches a new store to WAL: SQLite reports busy without waiting for the timeout. */
function enableWal(db: DatabaseSync, busyTimeoutMs: number): void {
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

function migrate(db: DatabaseSync, file: string, options: VersionOptions): void {
  if (inTransaction(db, 'BEGIN', () => versionOf(db, file, options)) === VERSION) return;
  if (pragma(db, 'user_version') < 0) throw filledByAnother(file);
  try {
    migrateEntries(db, file, new Map());
  } catch (error) {
    if (!isCorrupt(error)) throw error;
    // A damaged page must not make the other runs inaccessible. A transaction that has read one cannot write any more.
    migrateEntries(db, file, findReadableEntries(db));
  }
}

/** What the migrations make of an empty store. The next one gets it at once, which takes a seventh of the time. */
let newSchema: string | undefined;

/** The statements that create all tables and indexes, without those that SQLite or a virtual table adds itself. */
function schemaOf(db: DatabaseSync): string {
  return db
    .prepare(
      `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'
       AND tbl_name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow') ORDER BY rowid`,
    )
    .all()
    .map(({ sql }) => `${sql as string};`)
    .join('\n');
}

function migrateEntries(db: DatabaseSync, file: string, readable: ReadableEntries): void {
  inTransaction(db, 'BEGIN IMMEDIATE', () => {
    // Read again: another process may have migrated the store since.
    const version = versionOf(db, file);
    if (version === 0 && newSchema !== undefined) db.exec(newSchema);
    else {
      for (const migration of MIGRATIONS.slice(version)) {
        if (typeof migration === 'string') db.exec(migration);
        else migration(db, readable);
      }
      if (version === 0) newSchema = schemaOf(db);
    }
    db.exec(`PRAGMA application_id = ${APPLICATION}; PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}

export interface VersionOptions {
  /** The store may be one that `migrateStore` is filling. Nobody else opens it before it is complete. */
  readonly isFilled?: boolean;
}

export function versionOf(db: DatabaseSync, file: string, { isFilled = false }: VersionOptions = {}): number {
  const stored = pragma(db, 'user_version');
  // While a store is filled, its version is negative.
  if (stored < 0 && !isFilled) throw storeIncomplete(file);
  const version = Math.abs(stored);
  if (pragma(db, 'application_id') !== APPLICATION) {
    if (version === 0 && !db.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get()) return 0;
    throw new TreadleError(
      'store-failed',
      `${file} is a database of another program. Choose another path for the store.`,
    );
  }
  if (version <= MIGRATIONS.length) return version;
  throw new TreadleError(
    'store-newer',
    `The store ${file} has version ${version}, but this Treadle supports versions up to ${MIGRATIONS.length}. Update Treadle, or choose another store.`,
  );
}

/** In a transaction. */
export function markFilled(db: DatabaseSync, isFilled: boolean): void {
  db.exec(`PRAGMA user_version = ${isFilled ? -VERSION : VERSION}`);
}

function filledByAnother(file: string): TreadleError {
  return new TreadleError(
    'store-failed',
    `Another version of Treadle has begun to fill the store ${file}. Delete the file, and begin again.`,
  );
}

export function pragma(db: DatabaseSync, name: string): number {
  return db.prepare(`PRAGMA ${name}`).get()![name] as number;
}

/**
 * Reads SQLite's counter of the commits of other connections, which takes a few microseconds. Undefined: it is not known, because
 * the file is locked for a moment.
 */
export function othersCommits(db: DatabaseSync): () => unknown {
  const find = db.prepare('PRAGMA data_version');
  return () => {
    try {
      return find.get()!['data_version'];
    } catch {
      return undefined;
    }
  };
}

/** Commits what `work` does, or rolls all of it back if it throws. */
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
