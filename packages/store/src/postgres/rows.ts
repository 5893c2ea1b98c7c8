import {
  CONVERSATIONS,
  type ConversationParts,
  type Row,
  type StoreRows,
  type Table,
  type Value,
} from '../migrate/tables.ts';
import { bytes, text, type Database, type Query } from './connection.ts';

/** The places of requests have another name here. */
const columnOf = (table: Table, name: string): string => (name === 'place' && table.name === 'requests' ? 'id' : name);

const TYPES = {
  name: 'bytea',
  text: 'text',
  json: 'text',
  number: 'float8',
  boolean: 'boolean',
  bytes: 'bytea',
} as const;

/** The rows of the tables of a store in PostgreSQL. */
export function postgresRows(db: Database): StoreRows {
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
