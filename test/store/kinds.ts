import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { postgresStore, sqliteStore, type SqliteOptions, type Store } from '@treadle/store';
import { testDatabase } from './shared-postgres.ts';
import type { SharedOptions } from './contract/temp-stores.ts';

/** The kinds of stores. Suites that run on both take one of them. */
export const STORE_KINDS = ['SQLite', 'PostgreSQL'] as const;
export type StoreKind = (typeof STORE_KINDS)[number];

/** The kind for suites that `npm test` runs on SQLite, and `npm run test:long` on PostgreSQL too. */
export const TEST_STORE: StoreKind = process.env['TREADLE_TEST_STORE'] === 'PostgreSQL' ? 'PostgreSQL' : 'SQLite';

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

/** Empty stores, of which one is open at a time. Closing it removes all that it contains. */
export interface EmptyStores extends AsyncDisposable {
  readonly open: () => Promise<Store>;
}

export async function emptyStores(kind: StoreKind): Promise<EmptyStores> {
  if (kind === 'SQLite') return { open: async () => sqliteStore(':memory:'), [Symbol.asyncDispose]: async () => {} };
  const database = await testDatabase();
  return {
    open: async () => ({ ...(await database.open()), close: () => database.clear() }),
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
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
