import type { DatabaseSync } from 'node:sqlite';
import { latestTimes, type RateStore } from '@treadle/core/policy';
import { RATES_KEPT_MS } from '../records/accounts.ts';
import type { GroupCommit } from './group-commit.ts';

/** Creates the table of rates. */
export function createRateTable(db: DatabaseSync): void {
  db.exec(`
    -- When a subject made its latest calls, as a JSON list. Old rows are removed when others are written.
    CREATE TABLE rates (
      subject TEXT PRIMARY KEY,
      times TEXT NOT NULL,
      latest REAL NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX rates_by_latest ON rates (latest);
  `);
}

/** The rates of all processes with this store. They need not survive a power failure, so nothing waits for the disk. */
export function openRates(db: DatabaseSync, { write }: GroupCommit): RateStore {
  const find = db.prepare('SELECT times FROM rates WHERE subject = ?');
  const upsert = db.prepare(
    'INSERT INTO rates (subject, times, latest) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET times = ?2, latest = ?3',
  );
  const removeOld = db.prepare('DELETE FROM rates WHERE latest < ?');
  return {
    add: (subject, at, count, keep) =>
      write(() => {
        const row = find.get(subject);
        const before = row ? (JSON.parse(row['times'] as string) as readonly number[]) : [];
        removeOld.run(at - RATES_KEPT_MS);
        upsert.run(subject, JSON.stringify(latestTimes(before, at, count, keep)), at);
        return before;
      }, 'written'),
  };
}
