import { randomBytes } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import type { GroupCommit } from './group-commit.ts';
import type { SecretKeys } from '../ports/store.ts';

/** Creates the table of secret keys. */
export function createKeyTable(db: DatabaseSync): void {
  db.exec('CREATE TABLE secret_keys (name TEXT PRIMARY KEY, key BLOB NOT NULL) STRICT, WITHOUT ROWID');
}

const KEY_BYTES = 32;

/** A key is never replaced: of two processes that create it, the second gets the key of the first. */
export function openKeys(db: DatabaseSync, { write }: GroupCommit): SecretKeys['secretKey'] {
  const insert = db.prepare('INSERT INTO secret_keys (name, key) VALUES (?, ?) ON CONFLICT DO NOTHING');
  const find = db.prepare('SELECT key FROM secret_keys WHERE name = ?');
  return (name) =>
    write(() => {
      insert.run(name, randomBytes(KEY_BYTES));
      return find.get(name)!['key'] as Uint8Array;
    });
}
