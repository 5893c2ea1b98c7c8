import { createHash, randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { sqliteStore, postgresStore, type Store } from '@treadle/store';
import type { Client } from 'pg';
import { onTestFinished } from 'vitest';
import { withClient } from '../../store/postgres-server.ts';
import { TEST_STORE } from '../../store/kinds.ts';
import { databaseUrl } from '../../store/shared-postgres.ts';

/** What a store of these tests is opened by: the name of its file, or the URL of a database that stands for it. */
export function testStoreName(file: string): string | Promise<string> {
  if (TEST_STORE === 'SQLite') return file;
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

/** Performs a statement that means the same in both kinds on the store of a file, and resolves to its rows. */
export async function queryStored(
  file: string,
  statement: string,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const name = await testStoreName(file);
  if (name === file) {
    using db = new DatabaseSync(file);
    return db.prepare(statement).all();
  }
  return withClient(name, async (client) => {
    await client.query('SET search_path = treadle');
    return (await client.query<Record<string, unknown>>(statement)).rows;
  });
}

/** All that is in the store of a file, as the disk has it, to search for a text. */
export async function storedBytes(file: string): Promise<string> {
  const name = await testStoreName(file);
  if (name !== file) return withClient(name, allRows);
  const files = readdirSync(path.dirname(file)).filter((one) => one.startsWith(path.basename(file)));
  return files.map((one) => readFileSync(path.join(path.dirname(file), one), 'latin1')).join('');
}

async function allRows(client: Client): Promise<string> {
  // Names are bytes.
  await client.query(`SET bytea_output = 'escape'`);
  const { rows: tables } = await client.query<{ readonly name: string }>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c WHERE relnamespace = 'treadle'::regnamespace AND relkind = 'r'`,
  );
  const texts: string[] = [];
  for (const { name } of tables) {
    const { rows } = await client.query<{ readonly text: string }>(`SELECT t::text AS text FROM ${name} t`);
    texts.push(...rows.map(({ text }) => text));
  }
  return texts.join('\n');
}

/** A new store, which is closed after the test. */
export async function storeOfTest(): Promise<Store> {
  const store = await openTestStore();
  onTestFinished(() => store.close());
  return store;
}
