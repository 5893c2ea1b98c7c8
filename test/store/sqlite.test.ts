import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import { storeContract } from './contract/store.ts';

storeContract('SQLite', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-store-'));
  const opened: SqliteStore[] = [];
  return {
    async open(options) {
      const store = sqliteStore(path.join(folder, 'runs.db'), options);
      opened.push(store);
      return store;
    },
    async [Symbol.asyncDispose]() {
      for (const store of opened) await store.close();
      rmSync(folder, { recursive: true });
    },
  };
});
