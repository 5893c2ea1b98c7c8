import { bytes, type Database, type Query } from './connection.ts';

/**
 * Vectors in the database itself, where it has the extension `vector` (pgvector). There `memory_near` has a copy of what is in
 * `memory_vectors`, which the database can compare.
 *
 * 1. It is not part of the migrations: a database without the extension has the same store, and so has a backup that is restored to
 *    one.
 * 2. It may lack vectors, such as those of processes that do not know of it, or that may not write it: those are compared by the
 *    process that searches. So a search finds the same with it, without it, and while it is filled.
 * 3. A vector goes with its row of `memory_vectors`, by a foreign key.
 * 4. There is no approximate index: a search that is restricted to one of several tenants would miss what is near.
 */
export interface NearVectors {
  /** In the transaction that adds these vectors. */
  readonly add: (query: Query, model: string, rows: readonly number[]) => Promise<void>;
  /** Creates the table, if the database has or can have the extension, and fills it, for a limited time. Never rejects. */
  readonly prepare: (model: string) => Promise<void>;
}

/** `halfvec` came with 0.7. It represents the whole numbers of a vector exactly, and has at most so many. */
const MOST_NUMBERS = 16_000;

export function fitsNear(numbers: number): boolean {
  return numbers > 0 && numbers <= MOST_NUMBERS;
}

/** One that needs a lock gives way to others. */
const LOCK_MS = 1_000;
/** What was refused is not asked for again for so long. */
const REFUSED_MS = 600_000;

const FILLED_AT_ONCE = 1_000;
const FILL_MS = 1_000;

export function openNearVectors(db: Pick<Database, 'write'>): NearVectors {
  let refusedUntil = -Infinity;
  /** Of which models all vectors were there. */
  const filled = new Set<string>();

  async function fill(model: string): Promise<void> {
    const until = performance.now() + FILL_MS;
    while (performance.now() < until) {
      const count = await db.write(
        async (query) => {
          const schema = await nearSchema(query);
          return schema === undefined ? 0 : copyVectors(query, { schema, model, which: MISSING });
        },
        'written',
        'repeated',
      );
      if (count < FILLED_AT_ONCE) return void filled.add(model);
    }
  }

  return {
    async add(query, model, rows) {
      const schema = await nearSchema(query);
      if (schema !== undefined) await copyVectors(query, { schema, model, which: 'v.memory = ANY ($2)', rows });
    },

    async prepare(model) {
      if (filled.has(model) || performance.now() < refusedUntil) return;
      try {
        if (!(await db.write(createNear, 'durable', 'repeated'))) refusedUntil = performance.now() + REFUSED_MS;
        else await fill(model);
      } catch {
        // One who may not create it can do without it.
        refusedUntil = performance.now() + REFUSED_MS;
      }
    },
  };
}

/** The schema of the extension, quoted. Undefined: the table is not there, or not for this user. */
export async function nearSchema(query: Query): Promise<string | undefined> {
  const { rows } = await query<{ readonly schema: string }>(
    `SELECT quote_ident(n.nspname) AS schema FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       JOIN pg_namespace n ON n.oid = t.typnamespace
     WHERE a.attrelid = to_regclass('treadle.memory_near') AND a.attname = 'vector' AND t.typname = 'halfvec'
       AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(a.attrelid, 'SELECT')
       AND has_table_privilege(a.attrelid, 'INSERT')`,
    [],
  );
  return rows[0]?.schema;
}

/** Whether a row `v` of `memory_vectors` is not there. */
export const MISSING =
  'NOT EXISTS (SELECT 1 FROM treadle.memory_near e WHERE e.model = v.model AND e.memory = v.memory)';

/** Counting is faster than looking for what is missing. By rule 3, there is nothing that is only there. */
export async function hasAllNear(query: Query, model: string): Promise<boolean> {
  const { rows } = await query<{ readonly has_all: boolean }>(
    `SELECT (SELECT count(*) FROM treadle.memory_near WHERE model = $1)
       = (SELECT count(*) FROM treadle.memory_vectors WHERE model = $1) AS has_all`,
    [bytes(model)],
  );
  return rows[0]!.has_all;
}

/** In a transaction. Resolves to whether the table is there. */
async function createNear(query: Query): Promise<boolean> {
  if ((await nearSchema(query)) !== undefined) return true;
  await query('SELECT pg_advisory_xact_lock($1)', [NEAR_LOCK]);
  await query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
  if ((await nearSchema(query)) !== undefined) return true;
  const { rows: available } = await query(`SELECT 1 FROM pg_available_extensions WHERE name = 'vector'`, []);
  if (available.length === 0) return false;
  // Where others look for it. By default it could be in the schema of the store, if the user has the same name.
  await query('CREATE EXTENSION IF NOT EXISTS vector SCHEMA public');
  const { rows } = await query<{ readonly type: string }>(
    `SELECT format('%I.%I', n.nspname, t.typname) AS type FROM pg_extension e
       JOIN pg_namespace n ON n.oid = e.extnamespace JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = 'halfvec'
     WHERE e.extname = 'vector'`,
    [],
  );
  if (!rows[0]) return false;
  // What is left of it if the extension was removed with all that depends on it.
  await query('DROP TABLE IF EXISTS treadle.memory_near');
  await query(
    `CREATE TABLE treadle.memory_near (
       model bytea NOT NULL,
       memory bigint NOT NULL,
       vector ${rows[0].type} NOT NULL,
       PRIMARY KEY (model, memory),
       FOREIGN KEY (model, memory) REFERENCES treadle.memory_vectors ON DELETE CASCADE
     ) WITH (toast_tuple_target = 8160)`,
  );
  return true;
}

/** So that of several processes one creates the table. "Trdn". */
const NEAR_LOCK = 0x54_72_64_6e;

interface Copied {
  readonly schema: string;
  readonly model: string;
  /** A condition for a row `v` of `memory_vectors`. */
  readonly which: string;
  /** The value of `$2`; absent: so many as are copied at once. */
  readonly rows?: readonly number[];
}

/** Resolves to how many were copied. A byte is a number from -128 to 127. */
async function copyVectors(query: Query, { schema, model, which, rows }: Copied): Promise<number> {
  const { count } = await query(
    `INSERT INTO treadle.memory_near (model, memory, vector)
     SELECT v.model, v.memory,
       ARRAY(SELECT (get_byte(v.vector, i) # 128) - 128 FROM generate_series(0, length(v.vector) - 1) i ORDER BY i)::${schema}.halfvec
     FROM (SELECT v.* FROM treadle.memory_vectors v
       WHERE v.model = $1 AND length(v.vector) BETWEEN 1 AND ${MOST_NUMBERS} AND ${which}
       ORDER BY v.memory LIMIT ${rows ? 'ALL' : FILLED_AT_ONCE} FOR KEY SHARE) v
     ON CONFLICT DO NOTHING`,
    [bytes(model), ...(rows ? [rows] : [])],
  );
  return count;
}
