import type { DatabaseSync } from 'node:sqlite';
import type { QuotaStore } from '../ports/quotas.ts';
import { quotasOn } from '../records/quotas.ts';
import type { GroupCommit } from './group-commit.ts';

/** Creates the table of quotas. */
export function createQuotaTable(db: DatabaseSync): void {
  db.exec(`
    -- What clients have used of what they may use, as JSON. A row tells nothing after valid_until.
    CREATE TABLE quotas (
      id TEXT PRIMARY KEY,
      state TEXT NOT NULL,
      valid_until REAL NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX quotas_by_end ON quotas (valid_until);
  `);
}

export function openQuotas(
  db: DatabaseSync,
  { write, now }: Pick<GroupCommit, 'write'> & { readonly now: () => number },
): QuotaStore {
  const find = db.prepare('SELECT state FROM quotas WHERE id = ?');
  const upsert = db.prepare(
    'INSERT INTO quotas (id, state, valid_until) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET state = ?2, valid_until = ?3',
  );
  const removeOld = db.prepare('DELETE FROM quotas WHERE valid_until <= ?');
  return quotasOn((key, change) =>
    write(() => {
      const id = key.toWellFormed();
      const at = now();
      const row = find.get(id);
      const [{ state, until }, result] = change(row && JSON.parse(row['state'] as string), at);
      removeOld.run(at);
      if (until > at) upsert.run(id, JSON.stringify(state), until);
      return result;
    }, 'written'),
  );
}
