import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { manualClock } from '@treadle/core/testing';
import { checkStore, sqliteStore, type SqliteOptions, type SqliteStore } from '@treadle/store';
import { storeContract } from './contract/store.ts';
import { HOLDERS, type Hosts, type TempStores } from './contract/temp-stores.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

async function tempStore(): Promise<TempStores> {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-store-'));
  const file = path.join(folder, 'runs.db');
  const opened: SqliteStore[] = [];

  function open(options?: SqliteOptions): SqliteStore {
    const store = sqliteStore(file, options);
    opened.push(store);
    return store;
  }

  /** A host looks how long a lease stays unchanged by its own clock. */
  function hosts(): Hosts {
    const clock = manualClock(Date.now());
    const leaseTtlMs = 30_000;
    return {
      here: open({ clock, leaseTtlMs, holder: HOLDERS.here }),
      there: open({ clock, leaseTtlMs, holder: HOLDERS.there }),
      frozen: open({ clock: { ...clock, timer: () => () => {} }, leaseTtlMs, holder: HOLDERS.frozen }),
      pass: () => clock.advance(leaseTtlMs),
    };
  }

  function query<T>(work: (db: DatabaseSync) => T): T {
    const db = new DatabaseSync(file, { timeout: 5_000 });
    try {
      return work(db);
    } finally {
      db.close();
    }
  }

  return {
    open: async (options) => open(options),
    hosts: async () => hosts(),
    exec: async (sql) => query((db) => db.exec(sql)),
    async keepResponse(id) {
      query((db) =>
        db.exec(`CREATE TRIGGER keep BEFORE DELETE ON requests WHEN old.response = '${id}'
          BEGIN SELECT raise(ABORT, 'not now'); END`),
      );
      return async () => query((db) => db.exec('DROP TRIGGER keep'));
    },
    count: async (table) => query((db) => Number(db.prepare(`SELECT count(*) AS n FROM ${table}`).get()!['n'])),
    check: () => checkStore(file),
    async [Symbol.asyncDispose]() {
      for (const store of opened) await store.close();
      rmSync(folder, { recursive: true });
    },
  };
}

storeContract('SQLite', tempStore, 3 * CASES);
