import { TreadleError } from '@treadle/core';
import type { Database, Query } from './connection.ts';
import { storeIncomplete } from '../records/errors.ts';
import { isLockTimeout, storeError } from './failure.ts';
import { MIGRATIONS } from './schema.ts';

/**
 * Brings the tables of a store to the version of this program.
 *
 * 1. One process migrates at a time, under an advisory lock of a transaction, which also works behind a pooler. The others wait.
 * 2. Each migration is recorded in the transaction that performs it. So one that is killed leaves a version, and the next process
 *    goes on from there.
 * 3. A statement that waits for a lock makes all others wait behind it. So it gives up after `LOCK_MS`, lets them pass, and is
 *    repeated.
 * 4. What takes long for a large table, such as an index, is done `alone`, without a transaction and without stopping writers. If
 *    it is killed, all of its statements are repeated.
 */
export type Migration = string | { readonly alone: readonly string[] };

/** So that of several processes one migrates. "Trdl". */
const MIGRATION_LOCK = 0x54_72_64_6c;

/** Older ones are not tested. */
const OLDEST_SERVER = 140_000;

const LOCK_MS = 1_000;
/** Then what holds the lock is not a transaction of a store. */
const MOST_LOCK_TIMEOUTS = 60;

export interface MigrateOptions {
  readonly migrations?: readonly Migration[];
  /** The store is created or continued by `migrateStore`. Nobody else opens it before it is complete. */
  readonly isFilled?: boolean;
}

/** Creates or migrates the tables. Does nothing if they have the newest version. */
export async function migrate(
  db: Pick<Database, 'location' | 'read' | 'connectAlone'>,
  { migrations = MIGRATIONS, isFilled = false }: MigrateOptions = {},
): Promise<void> {
  const newest = migrations.length;
  const current = (version: number): number => checkedVersion(db.location, version, { newest, isFilled });
  if (current(await db.read(async (query) => findVersion(db.location, query))) === newest) return;
  const connect = (): ReturnType<Database['connectAlone']> => db.connectAlone({ isPatient: true });
  const client = await connect();
  try {
    const query: Query = async <Row>(text: string, values?: readonly unknown[]) => {
      const { rows, rowCount } = await client.query(text, values as unknown[]);
      return { rows: rows as Row[], count: rowCount ?? 0 };
    };
    const step = migrationStep({ query, migrations, current, location: db.location, connect });
    for (let timeouts = 0; ;) {
      try {
        if (await step()) return;
      } catch (error) {
        await query('ROLLBACK').catch(() => {});
        if (!isLockTimeout(error) || ++timeouts >= MOST_LOCK_TIMEOUTS) throw storeError(error, db.location);
        await new Promise((resolve) => setTimeout(resolve, LOCK_MS * Math.random()));
      }
    }
  } finally {
    await client.end();
  }
}

interface StepParts {
  readonly query: Query;
  readonly migrations: readonly Migration[];
  /** Throws if this program cannot use the version. */
  readonly current: (version: number) => number;
  readonly location: string;
  readonly connect: Database['connectAlone'];
}

/** Returns a function that performs one migration, or all of them for an empty store. Resolves to true if nothing is left to do. */
function migrationStep({ query, migrations, current, location, connect }: StepParts): () => Promise<boolean> {
  return async () => {
    await query(
      'BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0',
    );
    // A statement that waited for the lock would have a snapshot, which a concurrent index of the other process waits for.
    const { rows } = await query<{ readonly is_free: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS is_free', [
      MIGRATION_LOCK,
    ]);
    if (!rows[0]!.is_free) {
      await query('ROLLBACK');
      await new Promise((resolve) => setTimeout(resolve, 20 + 80 * Math.random()));
      return false;
    }
    await query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
    // Read again: another process may have migrated the store since.
    const stored = await findVersion(location, query);
    const version = current(stored);
    const next = migrations[version];
    if (next === undefined) {
      await query('COMMIT');
      return true;
    }
    if (version === 0) {
      await createTables(query, migrations);
      await setVersion(query, migrations.length);
    } else {
      if (typeof next === 'string') await query(next);
      else await performAlone(next.alone, connect);
      await setVersion(query, stored < 0 ? -version - 1 : version + 1);
    }
    await query('COMMIT');
    return version === 0;
  };
}

/** Everything in one transaction: nobody waits for an empty table. */
async function createTables(query: Query, migrations: readonly Migration[]): Promise<void> {
  const { rows } = await query(`SELECT 1 FROM pg_namespace WHERE nspname = 'treadle'`);
  // One who may not create schemas can be given one.
  if (rows.length === 0) await query('CREATE SCHEMA treadle');
  await query('CREATE TABLE treadle.store (version integer NOT NULL)');
  await query('INSERT INTO treadle.store (version) VALUES (0)');
  for (const migration of migrations) {
    const statements = typeof migration === 'string' ? [migration] : migration.alone;
    for (const statement of statements) await query(statement.replace(' CONCURRENTLY', ''));
  }
}

/** The connection that has the lock waits meanwhile. It has no snapshot, which a concurrent index would wait for. */
async function performAlone(statements: readonly string[], connect: Database['connectAlone']): Promise<void> {
  const client = await connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

/** While a store is filled, its version is negative, so that nobody opens it. */
export async function setVersion(query: Query, version: number): Promise<void> {
  await query(`UPDATE treadle.store SET version = ${version}`);
}

async function findVersion(location: string, query: Query): Promise<number> {
  const { rows } = await query<{ readonly server: number; readonly encoding: string; readonly is_store: boolean }>(
    `SELECT current_setting('server_version_num')::integer AS server, current_setting('server_encoding') AS encoding,
       to_regclass('treadle.store') IS NOT NULL AS is_store`,
  );
  const { server, encoding, is_store: isStore } = rows[0]!;
  if (server < OLDEST_SERVER) {
    throw new TreadleError(
      'store-failed',
      `The store ${location} is on PostgreSQL ${Math.floor(server / 10_000)}, but Treadle needs version 14 or later. Use another server.`,
    );
  }
  if (encoding !== 'UTF8') {
    throw new TreadleError(
      'store-failed',
      `The store ${location} cannot be opened: its database has the encoding ${encoding}, which cannot represent every text. Create a database with UTF8: "createdb -E UTF8 -T template0 NAME".`,
    );
  }
  if (!isStore) return 0;
  const found = await query<{ readonly version: number }>('SELECT version FROM treadle.store');
  return found.rows[0]?.version ?? 0;
}

function checkedVersion(
  location: string,
  stored: number,
  { newest, isFilled }: { readonly newest: number; readonly isFilled: boolean },
): number {
  const version = Math.abs(stored);
  if (version > newest) {
    throw new TreadleError(
      'store-newer',
      `The store ${location} has version ${version}, but this Treadle supports versions up to ${newest}. Update Treadle, or choose another store.`,
    );
  }
  if (stored < 0 && !isFilled) throw storeIncomplete(location);
  return version;
}
