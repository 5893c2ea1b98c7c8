import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { postgresStore, sqliteStore, type SqliteOptions, type Store } from '@treadle/store';
import { testDatabase } from './shared-postgres.ts';
import type { SharedOptions } from './contract/temp-stores.ts';

/** The kinds of stores. Suites that run on both take one of them. */
export const STORE_KINDS = ['SQLite', 'PostgreSQL'] as const;
export type StoreKind = (typeof STORE_KINDS)[number];

/** An empty store, which any process can open by its URL. Nobody may have it open when it is disposed. */
export interface NewStore extends AsyncDisposable {
  readonly url: string;
}

export async function newStore(kind: StoreKind): Promise<NewStore> {
  if (kind === 'PostgreSQL') return testDatabase();
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-store-'));
  return {
    url: `sqlite:${path.join(folder, 'runs.db')}`,
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Opens a store by the URL of a `NewStore`. `files`: options for those in a file. */
export async function openWith(
  url: string,
  options: SharedOptions,
  files: Pick<SqliteOptions, 'busyTimeoutMs'> = {},
): Promise<Store> {
  const file = /^sqlite:(.*)$/s.exec(url)?.[1];
  return file === undefined ? postgresStore(url, options) : sqliteStore(file, { ...options, ...files });
}
