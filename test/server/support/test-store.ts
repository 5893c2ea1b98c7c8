import { createHash, randomUUID } from 'node:crypto';
import { sqliteStore, postgresStore, type Store } from '@treadle/store';
import { onTestFinished } from 'vitest';
import { databaseUrl } from '../../store/shared-postgres.ts';

/** `npm run test:long` sets it, and so runs the tests of the server on PostgreSQL too. */
const IS_POSTGRES = process.env['TREADLE_TEST_STORE'] === 'PostgreSQL';

/** What a store of these tests is opened by: the name of its file, or the URL of a database that stands for it. */
export function testStoreName(file: string): string | Promise<string> {
  if (!IS_POSTGRES) return file;
  const name = file === ':memory:' ? randomUUID() : file;
  return databaseUrl(`server_${createHash('sha1').update(name).digest('hex').slice(0, 20)}`);
}

/** Opens a store by a `testStoreName`. */
export async function openNamedStore(name: string): Promise<Store> {
  return name.startsWith('postgres:') ? postgresStore(name) : sqliteStore(name);
}

/** Opens the store of a file, or a new one, of which nothing is left. */
export async function openTestStore(file: string = ':memory:'): Promise<Store> {
  return openNamedStore(await testStoreName(file));
}

/** A new store, which is closed after the test. */
export async function storeOfTest(): Promise<Store> {
  const store = await openTestStore();
  onTestFinished(() => store.close());
  return store;
}
