import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { callbackify } from 'node:util';
import { sqliteStore, type SqliteStore } from '@treadle/store';

/** Two stores with the same file, as two servers have them. The test decides what the syncs of the first one do. */
export interface HeldDisk extends AsyncDisposable {
  readonly store: SqliteStore;
  readonly other: SqliteStore;
  /** How many syncs of `store` have started. */
  syncs(): number;
  /** Syncs fail from now on. */
  fail(): void;
  /** The next sync waits. Resolves when it has started, to what lets it and later ones proceed. */
  hold(): Promise<() => void>;
}

export async function heldDisk(): Promise<HeldDisk> {
  const folder = fs.mkdtempSync(path.join(tmpdir(), 'treadle-held-'));
  const file = path.join(folder, 'runs.db');
  const { fdatasync } = fs;
  /** The log, as `store` has opened it. */
  let log: number | undefined;
  let count = 0;
  let onSync = async (): Promise<void> => {};
  fs.fdatasync = ((descriptor: number, done: fs.NoParamCallback) => {
    log ??= descriptor;
    if (descriptor !== log) return fdatasync(descriptor, done);
    count += 1;
    callbackify(onSync)(done);
  }) as typeof fdatasync;
  syncBuiltinESMExports();
  const store = sqliteStore(file);
  await store.durable();
  const other = sqliteStore(file);
  return {
    store,
    other,
    syncs: () => count,
    fail() {
      onSync = () => Promise.reject(new Error('EIO: i/o error, fdatasync'));
    },
    hold() {
      const { promise, resolve } = Promise.withResolvers<() => void>();
      const held = Promise.withResolvers<void>();
      const proceed = (): void => {
        onSync = async () => {};
        held.resolve();
      };
      onSync = () => {
        resolve(proceed);
        return held.promise;
      };
      return promise;
    },
    async [Symbol.asyncDispose]() {
      await store.close();
      await other.close();
      fs.fdatasync = fdatasync;
      syncBuiltinESMExports();
      fs.rmSync(folder, { recursive: true });
    },
  };
}
