import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { testDatabase } from './shared-postgres.ts';

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
