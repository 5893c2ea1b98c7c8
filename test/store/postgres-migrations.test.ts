import { expect, test } from 'vitest';
import { entry } from './entries.ts';
import { fillStore, readFullStore } from './full-store.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase, type TestDatabase } from './shared-postgres.ts';

type Migration = string | { readonly alone: readonly string[] };

interface Connections {
  close(): Promise<void>;
}

/** What the tests need of the inside of the package. */
interface PostgresCode {
  readonly openConnections: (options: object) => Promise<Connections>;
  readonly migrate: (db: Connections, options: { readonly migrations: readonly Migration[] }) => Promise<void>;
  readonly MIGRATIONS: readonly Migration[];
}

const load = async (file: string): Promise<object> =>
  (await import(new URL(`../../packages/store/src/postgres/${file}.ts`, import.meta.url).href)) as object;
const { openConnections, migrate, MIGRATIONS } = {
  ...(await load('connection')),
  ...(await load('migrate')),
  ...(await load('schema')),
} as PostgresCode;
const VERSION = MIGRATIONS.length;

const dropped = async (): Promise<TestDatabase> => {
  const database = await testDatabase();
  await withClient(database.url, (client) => client.query('DROP SCHEMA treadle CASCADE'));
  return database;
};

async function migrateTo(url: string, migrations: readonly Migration[]): Promise<void> {
  const db = await openConnections({ url, connections: 2, retryMs: 0 });
  try {
    await migrate(db, { migrations });
  } finally {
    await db.close();
  }
}

const query = async (url: string, text: string): Promise<readonly Readonly<Record<string, unknown>>[]> =>
  (await withClient(url, (client) => client.query(text))).rows as Readonly<Record<string, unknown>>[];

/** Everything that defines the tables, so that two stores can be compared. */
const SCHEMA = `
  SELECT table_name || '.' || column_name AS name, concat_ws(' ', data_type, is_nullable, column_default, is_identity) AS definition
    FROM information_schema.columns WHERE table_schema = 'treadle'
  UNION ALL SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'treadle'
  UNION ALL SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p WHERE pronamespace = 'treadle'::regnamespace
  UNION ALL SELECT c.relname, array_to_string(c.reloptions, ',') FROM pg_class c
    WHERE relnamespace = 'treadle'::regnamespace AND relkind IN ('r', 'S')
  UNION ALL SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'treadle'::regnamespace
  ORDER BY 1, 2`;

/** Copies what a store has, without the columns that the other version does not have. */
async function copyRows(from: string, to: string): Promise<void> {
  const columns = `SELECT table_name, column_name, is_identity = 'YES' AS is_id FROM information_schema.columns
    WHERE table_schema = 'treadle' AND table_name <> 'store' AND is_generated = 'NEVER'`;
  const known = new Set((await query(from, columns)).map((row) => `${row['table_name']}.${row['column_name']}`));
  const shared = (await query(to, columns)).filter((row) => known.has(`${row['table_name']}.${row['column_name']}`));
  await withClient(to, async (client) => {
    // Without foreign keys, so that the order of the tables does not matter.
    await client.query('SET session_replication_role = replica');
    for (const [table, found] of Map.groupBy(shared, (row) => `treadle.${String(row['table_name'])}`)) {
      const names = found.map((row) => `"${row['column_name']}"`).join(', ');
      const [rows] = await query(from, `SELECT json_agg(t)::text AS json FROM ${table} t`);
      await client.query(
        `INSERT INTO ${table} (${names}) OVERRIDING SYSTEM VALUE SELECT ${names} FROM json_populate_recordset(NULL::${table}, $1)`,
        [rows!['json']],
      );
      for (const row of found.filter((one) => one['is_id'])) {
        const name = String(row['column_name']);
        await client.query(
          `SELECT setval(pg_get_serial_sequence('${table}', '${name}'), (SELECT coalesce(max("${name}"), 0) + 1 FROM ${table}))`,
        );
      }
    }
  });
}

/** A database for each takes a second: `npm test` tries the first and the last version, `npm run test:long` all. */
const OLD_VERSIONS =
  process.env['TREADLE_CASES'] === undefined ? [1, VERSION - 1] : [...Array(VERSION).keys()].slice(1);

test(
  `brings a store of the versions ${OLD_VERSIONS.join(', ')} to the tables that a new one has, with all that it contains`,
  { timeout: 300_000 },
  async () => {
    await using fresh = await testDatabase();
    const expected = await query(fresh.url, SCHEMA);
    const full = await fresh.open();
    await fillStore(full);
    const content = await readFullStore(full);
    await full.close();
    for (const version of OLD_VERSIONS) {
      await using database = await dropped();
      await migrateTo(database.url, MIGRATIONS.slice(0, version));
      await copyRows(fresh.url, database.url);
      const store = await database.open();
      expect(await readFullStore(store)).toEqual(content);
      const lease = await store.acquire('same');
      await store.append('next', [entry(0)], await store.acquire('next'));
      await lease.release();
      expect(await query(database.url, SCHEMA)).toEqual(expected);
      expect(await query(database.url, 'SELECT version FROM treadle.store')).toEqual([{ version: VERSION }]);
    }
  },
);

const ADD_TABLE = 'CREATE TABLE treadle.more (value integer)';
const ADD_INDEX: Migration = {
  alone: [
    'DROP INDEX CONCURRENTLY IF EXISTS treadle.runs_by_model',
    'CREATE INDEX CONCURRENTLY runs_by_model ON treadle.runs (model)',
  ],
};

test('several processes that start at once perform each migration once, also those outside of a transaction', async () => {
  await using database = await testDatabase();
  // Fails if it is performed twice.
  const migrations = [...MIGRATIONS, ADD_TABLE, ADD_INDEX, 'INSERT INTO treadle.more VALUES (1)'];
  await Promise.all(Array.from({ length: 5 }, () => migrateTo(database.url, migrations)));
  expect(await query(database.url, 'SELECT value FROM treadle.more')).toEqual([{ value: 1 }]);
  expect(await query(database.url, 'SELECT version FROM treadle.store')).toEqual([{ version: migrations.length }]);
  expect(
    await query(database.url, `SELECT indisvalid FROM pg_index WHERE indexrelid = 'treadle.runs_by_model'::regclass`),
  ).toEqual([{ indisvalid: true }]);
});

test('a migration that fails changes nothing, and the next process goes on from the last one', async () => {
  await using database = await testDatabase();
  const broken = 'CREATE TABLE treadle.half (value integer); SELECT 1 / 0';
  await expect(migrateTo(database.url, [...MIGRATIONS, ADD_TABLE, broken])).rejects.toMatchObject({
    code: 'store-failed',
  });
  expect(await query(database.url, 'SELECT version FROM treadle.store')).toEqual([{ version: VERSION + 1 }]);
  expect(await query(database.url, `SELECT to_regclass('treadle.half') AS half`)).toEqual([{ half: null }]);
  await migrateTo(database.url, [...MIGRATIONS, ADD_TABLE, 'CREATE TABLE treadle.half (value integer)']);
  expect(await query(database.url, 'SELECT version FROM treadle.store')).toEqual([{ version: VERSION + 2 }]);
});

test('repeats an index that was left incomplete', async () => {
  await using database = await testDatabase();
  // As a process leaves it that is killed meanwhile.
  await query(database.url, 'CREATE INDEX runs_by_model ON treadle.runs (model)');
  await query(
    database.url,
    `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'treadle.runs_by_model'::regclass`,
  );
  await migrateTo(database.url, [...MIGRATIONS, ADD_INDEX]);
  expect(
    await query(database.url, `SELECT indisvalid FROM pg_index WHERE indexrelid = 'treadle.runs_by_model'::regclass`),
  ).toEqual([{ indisvalid: true }]);
});

test('lets others pass while a long transaction keeps it from a table', async () => {
  await using database = await testDatabase();
  await withClient(database.url, async (client) => {
    await client.query('BEGIN; LOCK TABLE treadle.runs IN ACCESS SHARE MODE');
    const migrated = migrateTo(database.url, [...MIGRATIONS, 'ALTER TABLE treadle.runs ADD COLUMN more integer']);
    let waited = 0;
    // The migration waits for the lock, gives up, and waits again. Readers come through in between.
    for (; waited < 2; waited++) {
      await untilWaiting(client);
      expect(await query(database.url, 'SELECT count(*)::integer AS count FROM treadle.runs')).toEqual([{ count: 0 }]);
    }
    await client.query('COMMIT');
    await migrated;
  });
  expect(await query(database.url, 'SELECT version FROM treadle.store')).toEqual([{ version: VERSION + 1 }]);
});

async function untilWaiting(client: {
  query(text: string): Promise<{ readonly rowCount: number | null }>;
}): Promise<void> {
  for (;;) {
    const { rowCount } = await client.query(
      `SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'treadle.runs'::regclass`,
    );
    if (rowCount! > 0) return;
  }
}
