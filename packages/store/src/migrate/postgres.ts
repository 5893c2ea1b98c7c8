import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { TreadleError } from '@treadle/core';
import { openConnections, type Database } from '../postgres/connection.ts';
import { migrate, setVersion } from '../postgres/migrate.ts';
import { postgresRows } from '../postgres/rows.ts';
import { MIGRATIONS } from '../postgres/schema.ts';
import { openPostgres } from '../postgres/store.ts';
import { CONVERSATIONS, TABLES, type Filling, type OpenedStore, type Progress } from './tables.ts';

/** Opens a store for a migration. The tables of a target are created if they do not exist. */
export async function openPostgresDatabase(given: string, role: 'source' | 'target'): Promise<OpenedStore> {
  const isFilled = role === 'target';
  const name = `treadle migrate ${randomUUID()}`;
  const named = withParameter(given, 'application_name', name);
  const db = await openConnections({ url: named, connections: 2, retryMs: 10_000 });
  try {
    await requireDirect(db);
    await migrate(db, { isFilled });
    const store = await openPostgres(named, {}, { isFilled });
    return {
      location: db.location,
      store,
      rows: postgresRows(db),
      filling: postgresFilling(db),
      requireUnused: () => requireUnused(db, name),
      async close() {
        await store.close();
        await db.close();
      },
    };
  } catch (error) {
    await db.close();
    throw error;
  }
}

function withParameter(given: string, name: string, value: string): string {
  const url = new URL(given);
  url.searchParams.set(name, value);
  return url.href;
}

async function requireDirect(db: Database): Promise<void> {
  await db.read((query) => query('SELECT 1', []));
  if (db.isDirect()) return;
  throw new TreadleError(
    'invalid-options',
    `${db.location} is a pooler, which hides who uses the store. Name the database itself.`,
  );
}

/** A connection that was closed is listed until the database has noticed. */
const LEAVE_MS = 1_000;
const LOOK_MS = 50;

async function requireUnused(db: Database, name: string): Promise<void> {
  const until = performance.now() + LEAVE_MS;
  let users = await usersOf(db, name);
  while (users.length > 0 && performance.now() < until) {
    await delay(LOOK_MS);
    users = await usersOf(db, name);
  }
  if (users.length === 0) return;
  const from = users.map((address) => address ?? 'this machine').join(', ');
  throw new TreadleError(
    'store-locked',
    `The store ${db.location} is in use: other processes of Treadle are connected to it, from ${from}. Stop them, and retry.`,
  );
}

/** Where other processes of Treadle are. This one has a name of its own for the time of the migration. */
async function usersOf(db: Database, name: string): Promise<readonly (string | null)[]> {
  const { rows } = await db.read((query) =>
    query<{ readonly address: string | null }>(
      `SELECT DISTINCT host(client_addr) AS address FROM pg_stat_activity
       WHERE datname = current_database() AND application_name LIKE 'treadle%' AND application_name <> $1`,
      [name],
    ),
  );
  return rows.map(({ address }) => address);
}

function postgresFilling(db: Database): Filling {
  const VERSION = MIGRATIONS.length;
  return {
    source: () =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly is_begun: boolean }>(
          `SELECT to_regclass('treadle.filling') IS NOT NULL AS is_begun`,
          [],
        );
        if (!rows[0]!.is_begun) return undefined;
        return (await query<{ readonly source: string }>('SELECT source FROM treadle.filling')).rows[0]!.source;
      }),
    async begin(source) {
      await db.write(async (query) => {
        await query('CREATE TABLE treadle.filling (source text NOT NULL, progress text NOT NULL)');
        await query(`INSERT INTO treadle.filling VALUES ($1, '{}')`, [source]);
        await setVersion(query, -VERSION);
      });
    },
    progress: () =>
      db.read(
        async (query) =>
          JSON.parse(
            (await query<{ readonly progress: string }>('SELECT progress FROM treadle.filling')).rows[0]!.progress,
          ) as Progress,
      ),
    setProgress: async (progress) =>
      void (await db.write(
        (query) => query('UPDATE treadle.filling SET progress = $1', [JSON.stringify(progress)]),
        'written',
      )),
    async complete(token) {
      await db.write(async (query) => {
        for (const { name } of [...TABLES.filter(({ columns }) => 'id' in columns), CONVERSATIONS]) {
          await query(
            `SELECT setval(pg_get_serial_sequence('treadle.${name}', 'id'), greatest((SELECT max(id) FROM treadle.${name}), 1))`,
          );
        }
        await query(`SELECT setval('treadle.lease_tokens', $1)`, [token]);
        await query('DROP TABLE treadle.filling');
        await setVersion(query, VERSION);
      });
    },
    async cancel() {
      await db.write(async (query) => {
        await query('DROP TABLE treadle.filling');
        await setVersion(query, VERSION);
      });
    },
  };
}
