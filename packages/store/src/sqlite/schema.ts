import type { DatabaseSync } from 'node:sqlite';
import { TreadleError } from '@treadle/core';
import { inTransaction } from './transaction.ts';

/** Marks the file as ours: "Trdl". */
const APPLICATION = 0x54_72_64_6c;

/** Each brings a store from the version that is its index to the next. */
const MIGRATIONS: readonly string[] = [
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

  -- Not clustered by run: the entries that a hundred runs commit together go to the same pages.
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

  -- Only those that are held, or whose holder died. No token is given twice, also not after a run was deleted.
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
  -- By the run's name, for a response is there before its run has begun.
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
];

/** Brings a new or older store to this version. */
export function migrate(db: DatabaseSync, file: string): void {
  if (inTransaction(db, 'BEGIN', () => versionOf(db, file)) === MIGRATIONS.length) return;
  inTransaction(db, 'BEGIN IMMEDIATE', () => {
    // Asked again: meanwhile another process may have done it.
    for (const migration of MIGRATIONS.slice(versionOf(db, file))) db.exec(migration);
    db.exec(`PRAGMA application_id = ${APPLICATION}; PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}

function versionOf(db: DatabaseSync, file: string): number {
  const version = pragma(db, 'user_version');
  if (pragma(db, 'application_id') !== APPLICATION) {
    if (version === 0 && !db.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get()) return 0;
    throw new TreadleError(
      'store-failed',
      `${file} is a database of another program. Choose another place for the store.`,
    );
  }
  if (version <= MIGRATIONS.length) return version;
  throw new TreadleError(
    'store-newer',
    `The store ${file} has version ${version}, and this Treadle knows up to version ${MIGRATIONS.length}. Update Treadle, or choose another store.`,
  );
}

function pragma(db: DatabaseSync, name: string): number {
  return db.prepare(`PRAGMA ${name}`).get()![name] as number;
}
