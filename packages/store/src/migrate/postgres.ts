import { randomUUID } from 'node:crypto';
import { TreadleError } from '@treadle/core';
import { bytes, openConnections, text, type Database, type Query } from '../postgres/connection.ts';
import { migrate, setVersion } from '../postgres/migrate.ts';
import { MIGRATIONS } from '../postgres/schema.ts';
import { openPostgres } from '../postgres/store.ts';
import {
  CONVERSATIONS,
  TABLES,
  type ConversationParts,
  type Filling,
  type OpenedStore,
  type Progress,
  type Row,
  type StoreRows,
  type Table,
  type Value,
} from './tables.ts';

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

/** This process has a name of its own for the time of the migration. */
async function requireUnused(db: Database, name: string): Promise<void> {
  const { rows } = await db.read((query) =>
    query<{ readonly address: string | null }>(
      `SELECT DISTINCT host(client_addr) AS address FROM pg_stat_activity
       WHERE datname = current_database() AND application_name LIKE 'treadle%' AND application_name <> $1`,
      [name],
    ),
  );
  if (rows.length === 0) return;
  const from = rows.map(({ address }) => address ?? 'this machine').join(', ');
  throw new TreadleError(
    'store-locked',
    `The store ${db.location} is in use: other processes of Treadle are connected to it, from ${from}. Stop them, and retry.`,
  );
}

/** The places of requests have another name here. */
const columnOf = (table: Table, name: string): string => (name === 'place' && table.name === 'requests' ? 'id' : name);

const TYPES = { name: 'bytea', text: 'text', number: 'float8', boolean: 'boolean', bytes: 'bytea' } as const;

function postgresRows(db: Database): StoreRows {
  async function read(query: Query, table: Table, after: Row | undefined, limit: number): Promise<readonly Row[]> {
    const key = table.key.map((name) => columnOf(table, name)).join(', ');
    const values = after ? table.key.map((name) => toPostgres(table, name, after[name]!)) : [];
    const condition = after ? `WHERE (${key}) > (${values.map((_, index) => `$${index + 1}`).join(', ')})` : '';
    const columns = Object.keys(table.columns).map((name) => `${columnOf(table, name)} AS "${name}"`);
    const { rows } = await query<Readonly<Record<string, unknown>>>(
      `SELECT ${columns.join(', ')} FROM treadle.${table.name} ${condition} ORDER BY ${key} LIMIT $${values.length + 1}`,
      [...values, limit],
    );
    return rows.map((row) => fromPostgres(table, row));
  }

  /** The columns of rows, as a table of a statement. */
  function unnested(
    table: Table,
    rows: readonly Row[],
  ): { readonly names: string; readonly list: string; readonly values: readonly unknown[] } {
    const names = Object.keys(table.columns);
    return {
      names: names.join(', '),
      list: `unnest(${names.map((name, index) => `$${index + 1}::${TYPES[table.columns[name]!]}[]`).join(', ')})`,
      values: names.map((name) => rows.map((row) => toPostgres(table, name, row[name] ?? null))),
    };
  }

  async function insert(query: Query, table: Table, rows: readonly Row[]): Promise<number> {
    const { names, list, values } = unnested(table, rows);
    const { count } = await query(
      `INSERT INTO treadle.${table.name} (${names}) OVERRIDING SYSTEM VALUE SELECT * FROM ${list} ON CONFLICT DO NOTHING`,
      values,
    );
    return count;
  }

  async function insertParts(query: Query, { row, parts }: ConversationParts): Promise<void> {
    for (const [place, { response, words }] of parts.entries()) {
      await query(
        `INSERT INTO treadle.conversation_parts (conversation, place, response, words)
         VALUES ($1, $2, $3, array_to_tsvector($4::text[]))`,
        [row['id'], place, response === null ? null : bytes(response), words],
      );
    }
  }

  return {
    rows: (table, after, limit) => db.read((query) => read(query, table, after, limit)),
    insert: async (table, rows) => void (await db.write((query) => insert(query, table, rows), 'written')),
    async update(table, name, rows) {
      const { names, list, values } = unnested(table, rows);
      const set = Object.keys(table.columns)
        .filter((column) => column !== name && !table.key.includes(column))
        .map((column) => `${column} = d.${column}`);
      await db.write(
        (query) =>
          query(
            `UPDATE treadle.${table.name} t SET ${set.join(', ')} FROM ${list} AS d (${names}) WHERE t.${name} = d.${name}`,
            values,
          ),
        'written',
      );
    },
    conversations: (after, limit) =>
      db.read(async (query) => {
        const found = await read(query, CONVERSATIONS, after, limit);
        const { rows: parts } = await query<{
          conversation: number;
          response: Buffer | null;
          words: readonly string[];
        }>(
          `SELECT conversation, response, tsvector_to_array(words) AS words FROM treadle.conversation_parts
           WHERE conversation = ANY ($1::bigint[]) ORDER BY conversation, place`,
          [found.map(({ id }) => id)],
        );
        const byId = Map.groupBy(parts, ({ conversation }) => conversation);
        return found.map((row) => ({
          row,
          parts: (byId.get(row['id'] as number) ?? []).map(({ response, words }) => ({
            response: response && text(response),
            words: words.toSorted(),
          })),
        }));
      }),
    async insertConversations(conversations) {
      await db.write(async (query) => {
        for (const one of conversations) {
          if ((await insert(query, CONVERSATIONS, [one.row])) > 0) await insertParts(query, one);
        }
      }, 'written');
    },
    count: (name) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly count: number }>(`SELECT count(*) AS count FROM treadle.${name}`, []);
        return rows[0]!.count;
      }),
    lastToken: () =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly token: number }>(
          'SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS token FROM treadle.lease_tokens',
          [],
        );
        return rows[0]!.token;
      }),
    version: async () => undefined,
  };
}

function fromPostgres(table: Table, row: Readonly<Record<string, unknown>>): Row {
  const valueOf = (name: string, value: unknown): Value => {
    if (!Buffer.isBuffer(value)) return value as Value;
    return table.columns[name] === 'bytes' ? new Uint8Array(value) : text(value);
  };
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, valueOf(name, value)]));
}

function toPostgres(table: Table, name: string, value: Value): unknown {
  if (value === null) return null;
  switch (table.columns[name]!) {
    case 'name':
      return Buffer.from(value as string);
    case 'bytes':
      return Buffer.from(value as Uint8Array);
    default:
      return value;
  }
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
