import { DatabaseSync } from 'node:sqlite';
import type { SqliteStore } from '@treadle/store';
import { vi } from 'vitest';

/** A store whose disk can be full. */
export interface LimitedStore {
  readonly store: SqliteStore;
  /** The connection of the store. */
  readonly db: DatabaseSync;
  /** The file can no longer grow. */
  readonly fill: () => void;
  readonly free: () => void;
}

export function limitedStore(open: () => SqliteStore): LimitedStore {
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  const store = open();
  const db = exec.mock.contexts[0] as DatabaseSync;
  exec.mockRestore();
  return {
    store,
    db,
    fill() {
      const { page_count: pages } = db.prepare('PRAGMA page_count').get() as { page_count: number };
      db.exec(`PRAGMA max_page_count = ${pages}`);
    },
    free: () => db.exec('PRAGMA max_page_count = 1000000'),
  };
}
