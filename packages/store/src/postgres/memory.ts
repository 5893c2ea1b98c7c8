import {
  similarityTo,
  type Forgetting,
  type MemoryItem,
  type MemoryPort,
  type MemoryReader,
  type NearVector,
  type Observation,
} from '@treadle/core/memory';
import {
  bestOf,
  bodyWithTag,
  columnFilters,
  COMMON,
  memoryRow,
  PRIVATE_BODY,
  queryWords,
  rankingWords,
  storedReader,
  toItem,
  weight,
  type StoredReader,
  type WordCount,
} from '../records/memory.ts';
import { storedTenant } from '../records/metrics.ts';
import { bytes, bytesOrNull, type Database, type Query } from './connection.ts';
import type { Migration } from './migrate.ts';
import { fitsNear, hasAllNear, MISSING, nearSchema, openNearVectors } from './near.ts';

/** The tables of memory, as in SQLite. */
export const MEMORY_MIGRATIONS: readonly Migration[] = [
  `
  -- Observations and notes.
  CREATE TABLE treadle.memories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    memory bytea NOT NULL UNIQUE,
    tenant bytea NOT NULL,
    audience bytea NOT NULL,
    type text NOT NULL,
    run bytea,
    session bytea,
    subject bytea,
    agent bytea,
    at float8 NOT NULL,
    owners text NOT NULL,
    words text NOT NULL,
    body text NOT NULL,
    terms tsvector GENERATED ALWAYS AS (array_to_tsvector(string_to_array(btrim(owners || ' ' || words), ' '))) STORED
  );
  CREATE INDEX memories_by_time ON treadle.memories (tenant, at, memory);
  CREATE INDEX memories_by_run ON treadle.memories (run) WHERE run IS NOT NULL;
  CREATE INDEX memories_by_session ON treadle.memories (tenant, session) WHERE session IS NOT NULL;
  CREATE INDEX memories_by_terms ON treadle.memories USING gin (terms);

  CREATE TABLE treadle.memory_vectors (
    model bytea NOT NULL,
    memory bigint NOT NULL REFERENCES treadle.memories (id) ON DELETE CASCADE,
    vector bytea NOT NULL,
    PRIMARY KEY (model, memory)
  );
  CREATE INDEX memory_vectors_by_memory ON treadle.memory_vectors (memory);

  -- What is not to be remembered again: of a tenant, everything that is not younger and to which the others apply. Null: all.
  CREATE TABLE treadle.memory_forgotten (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bytea NOT NULL,
    memory bytea,
    session bytea,
    subject bytea,
    until float8 NOT NULL
  );
  CREATE INDEX memory_forgotten_by_memory ON treadle.memory_forgotten (tenant, memory);

  ALTER TABLE treadle.metric_runs ADD COLUMN remembered integer NOT NULL DEFAULT 0;

  CREATE OR REPLACE FUNCTION treadle.forget_counted_run() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
  BEGIN
    DELETE FROM treadle.metric_runs m WHERE m.run = OLD.run;
    DELETE FROM treadle.memories m WHERE m.run = OLD.run AND m.type <> 'note';
    RETURN NULL;
  END $$;
  `,
];

/** So that what is forgotten is not added meanwhile. "Trdr". */
const MEMORY_LOCK = 0x54_72_64_72;

/** How many items are removed in one transaction. */
const REMOVED_AT_ONCE = 1_000;

/** How many vectors are read at once. */
const VECTORS_AT_ONCE = 10_000;

export function openMemories(db: Database): MemoryPort {
  const near = openNearVectors(db);

  async function matching(given: MemoryReader, text: string, limit: number): Promise<readonly MemoryItem[]> {
    const reader = storedReader(given);
    return db.read(async (query) => {
      const words = rankingWords(await countWords(query, reader, queryWords(text)));
      if (words.length === 0) return [];
      const { rows } = await query<{ readonly body: string }>(
        `SELECT m.body FROM treadle.memories m
         WHERE m.terms @@ $1::tsquery AND ${isReader(2)}
         ORDER BY (SELECT sum(i.weight) FROM unnest($5::text[], $6::float8[]) AS i (word, weight)
             WHERE m.terms @@ i.word::tsquery) / (1 + length(m.terms) / 200.0) DESC, m.id DESC
         LIMIT $7`,
        [
          ownedBy(reader, words.map(({ word }) => `'${word}'`).join(' | ')),
          ...readerValues(reader),
          words.map(({ word }) => `'${word}'`),
          words.map(weight),
          limit,
        ],
      );
      return rows.map(({ body }) => toItem(body));
    });
  }

  async function nearest(given: MemoryReader, wanted: NearVector): Promise<readonly MemoryItem[]> {
    const reader = storedReader(given);
    const { model, vector, limit } = wanted;
    const similarity = similarityTo(vector);
    const find = async (query: Query): Promise<readonly MemoryItem[]> => {
      const schema = fitsNear(vector.length) ? await nearSchema(query) : undefined;
      const best = bestOf(limit);
      const add = (rows: readonly VectorRow[]): void => {
        for (const row of rows) best.add(Number(row.id), similarity(int8(row.vector)));
      };
      if (schema !== undefined) add(await nearestInDatabase(query, { schema, reader, wanted }));
      const hasAll = schema !== undefined && (await hasAllNear(query, model));
      for (let after = 0; !hasAll;) {
        const { rows } = await query<VectorRow>(
          `SELECT m.id, v.vector FROM treadle.memory_vectors v JOIN treadle.memories m ON m.id = v.memory
           WHERE v.model = $1 AND v.memory > $5 AND ${isReader(2)} ${schema === undefined ? '' : `AND ${MISSING}`}
           ORDER BY v.memory LIMIT ${VECTORS_AT_ONCE}`,
          [bytes(model), ...readerValues(reader), after],
        );
        add(rows);
        if (rows.length < VECTORS_AT_ONCE) break;
        after = Number(rows.at(-1)!.id);
      }
      const { rows } = await query<{ readonly body: string }>(
        `SELECT m.body FROM unnest($1::bigint[]) WITH ORDINALITY AS n (id, place) JOIN treadle.memories m ON m.id = n.id
         ORDER BY n.place`,
        [best.best()],
      );
      return rows.map(({ body }) => toItem(body));
    };
    // A vector that is copied meanwhile is found once.
    return db.read(find, { isAtOnce: true });
  }

  return {
    matching,
    nearest,
    vectorsComparedBy: () =>
      db.read(async (query) => ((await nearSchema(query)) === undefined ? 'process' : 'database')),

    get: (given, id) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly body: string }>(
          `SELECT m.body FROM treadle.memories m WHERE m.memory = $1 AND ${isReader(2)}`,
          [bytes(id.toWellFormed()), ...readerValues(storedReader(given))],
        );
        return rows[0] && toItem(rows[0].body);
      }),

    list: (filter) =>
      db.read(async (query) => {
        const { since = -Infinity, until = Infinity, limit, after } = filter;
        const columns = columnFilters(filter);
        const { rows } = await query<{ readonly body: string }>(
          `SELECT m.body FROM treadle.memories m WHERE ${isReader(1)} AND m.at >= $4 AND m.at < $5
             AND (m.at, m.memory) < ($6, $7)
             ${columns.map(([column], index) => `AND m.${column} = $${index + 9}`).join(' ')}
           ORDER BY m.at DESC, m.memory DESC LIMIT $8`,
          [
            ...readerValues(storedReader(filter)),
            since,
            until,
            after?.at ?? Infinity,
            bytes(after?.id.toWellFormed() ?? ''),
            limit,
            ...columns.map(([column, value]) => (column === 'type' ? value : bytes(value))),
          ],
        );
        return rows.map(({ body }) => toItem(body));
      }),

    put: (note) =>
      db.write(
        async (query) => {
          await query('DELETE FROM treadle.memories WHERE memory = $1', [bytes(note.id.toWellFormed())]);
          await insert(query, [note]);
        },
        'durable',
        'repeated',
      ),

    async forget({ tenant, id, session, subject, until }: Forgetting) {
      const key = [
        bytes(storedTenant(tenant)),
        bytesOrNull(id?.toWellFormed()),
        bytesOrNull(session?.toWellFormed()),
        bytesOrNull(subject?.toWellFormed()),
        until,
      ];
      await db.write(
        async (query) => {
          await query('SELECT pg_advisory_xact_lock($1)', [MEMORY_LOCK]);
          await query(
            'INSERT INTO treadle.memory_forgotten (tenant, memory, session, subject, until) VALUES ($1, $2, $3, $4, $5)',
            key,
          );
        },
        'durable',
        'repeated',
      );
      for (let count = 0; ;) {
        const removed = await db.write(
          async (query) =>
            (
              await query(
                `DELETE FROM treadle.memories WHERE id IN (SELECT m.id FROM treadle.memories m
                   WHERE m.tenant = $1 AND ($2::bytea IS NULL OR m.memory = $2) AND ($3::bytea IS NULL OR m.session = $3)
                     AND ($4::bytea IS NULL OR m.subject = $4) AND m.at <= $5 LIMIT ${REMOVED_AT_ONCE})`,
                key,
              )
            ).count,
          'durable',
          'repeated',
        );
        count += removed;
        if (removed < REMOVED_AT_ONCE) return count;
      }
    },

    unembedded: (model, limit) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly id: string; readonly body: string }>(
          `SELECT m.id, m.body FROM treadle.memories m WHERE NOT EXISTS
             (SELECT 1 FROM treadle.memory_vectors v WHERE v.model = $1 AND v.memory = m.id)
             AND NOT (m.type = 'note' AND m.body LIKE '${PRIVATE_BODY}') ORDER BY m.id LIMIT $2`,
          [bytes(model), limit],
        );
        return rows.map(({ id, body }) => ({ row: Number(id), content: toItem(body).content }));
      }),

    async addVectors(model, vectors) {
      const ids = vectors.map(({ row }) => row);
      await db.write(
        async (query) => {
          await query(
            `INSERT INTO treadle.memory_vectors (model, memory, vector)
             SELECT $1, m.id, n.vector FROM unnest($2::bigint[], $3::bytea[]) AS n (id, vector)
               JOIN (SELECT id FROM treadle.memories WHERE id = ANY ($2) ORDER BY id FOR KEY SHARE) m ON m.id = n.id
             ON CONFLICT DO NOTHING`,
            [
              bytes(model),
              ids,
              vectors.map(({ vector }) => Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength)),
            ],
          );
          await near.add(query, model, ids);
        },
        'written',
        'repeated',
      );
      await near.prepare(model);
    },

    async restart() {
      // If the process dies in between, those that were removed are made again.
      await db.write(noteAll, 'durable', 'repeated');
      const remove = (query: Query): ReturnType<Query> =>
        query(
          `DELETE FROM treadle.memories WHERE id IN
             (SELECT id FROM treadle.memories WHERE type <> 'note' LIMIT ${REMOVED_AT_ONCE})`,
        );
      while ((await db.write(remove, 'durable', 'repeated')).count > 0);
      await db.write(noteAll, 'durable', 'repeated');
    },
  };
}

interface VectorRow {
  readonly id: string;
  readonly vector: Buffer;
}

interface NearInDatabase {
  readonly schema: string;
  readonly reader: StoredReader;
  readonly wanted: NearVector;
}

/**
 * Those that are the nearest of `memory_near`. Its distances are rounded, so there are more than are wanted. The vector is a text,
 * because a statement that is prepared with a type of the extension fails when that is created again; and it is read once.
 */
async function nearestInDatabase(
  query: Query,
  { schema, reader, wanted: { model, vector, limit } }: NearInDatabase,
): Promise<readonly VectorRow[]> {
  const { rows } = await query<VectorRow>(
    `SELECT v.memory AS id, v.vector FROM treadle.memory_vectors v
     JOIN (SELECT n.memory FROM treadle.memory_near n JOIN treadle.memories m ON m.id = n.memory
       WHERE n.model = $1 AND ${isReader(2)}
       ORDER BY CASE WHEN ${schema}.vector_dims(n.vector) = $5
         THEN n.vector OPERATOR(${schema}.<=>) (SELECT $6::text::${schema}.halfvec) ELSE 2 END, n.memory LIMIT $7) best ON best.memory = v.memory
     WHERE v.model = $1 ORDER BY v.memory`,
    [bytes(model), ...readerValues(reader), vector.length, `[${vector.join(',')}]`, 2 * limit],
  );
  return rows;
}

/** In a transaction: adds what was not forgotten. */
export async function addObservations(query: Query, observations: readonly Observation[]): Promise<void> {
  if (observations.length === 0) return;
  await query('SELECT pg_advisory_xact_lock($1)', [MEMORY_LOCK]);
  const rows = observations.map(memoryRow);
  const { rows: forgotten } = await query<{ readonly place: string }>(
    `SELECT n.place FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::float8[])
         WITH ORDINALITY AS n (tenant, memory, session, subject, at, place)
       WHERE EXISTS (SELECT 1 FROM treadle.memory_forgotten f
         WHERE f.tenant = n.tenant AND (f.memory IS NULL OR f.memory = n.memory) AND (f.session IS NULL OR f.session = n.session)
           AND (f.subject IS NULL OR f.subject = n.subject) AND f.until >= n.at)`,
    [
      rows.map(({ tenant }) => bytes(tenant)),
      rows.map(({ memory }) => bytes(memory)),
      rows.map(({ session }) => bytesOrNull(session)),
      rows.map(({ subject }) => bytesOrNull(subject)),
      rows.map(({ at }) => at),
    ],
  );
  const left = new Set(forgotten.map(({ place }) => Number(place) - 1));
  await insert(
    query,
    observations.filter((_, index) => !left.has(index)),
  );
}

async function insert(query: Query, items: readonly MemoryItem[]): Promise<void> {
  const rows = items.map(memoryRow);
  await query(
    `INSERT INTO treadle.memories (memory, tenant, audience, type, run, session, subject, agent, at, owners, words, body)
     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[],
       $9::float8[], $10::text[], $11::text[], $12::text[]) ON CONFLICT DO NOTHING`,
    [
      rows.map(({ memory }) => bytes(memory)),
      rows.map(({ tenant }) => bytes(tenant)),
      rows.map(({ audience }) => bytes(audience)),
      rows.map(({ type }) => type),
      rows.map(({ run }) => bytesOrNull(run)),
      rows.map(({ session }) => bytesOrNull(session)),
      rows.map(({ subject }) => bytesOrNull(subject)),
      rows.map(({ agent }) => bytesOrNull(agent)),
      rows.map(({ at }) => at),
      rows.map(({ owners }) => owners),
      rows.map(({ words }) => words),
      rows.map(({ body }) => body),
    ],
  );
}

/** Notes all runs, so that all of their observations are added that are not there. */
async function noteAll(query: Query): Promise<void> {
  await query(
    `INSERT INTO treadle.metric_notes (run) SELECT run FROM treadle.runs
     WHERE status <> 'running' OR run IN (SELECT run FROM treadle.metric_runs) ORDER BY id`,
  );
  await query('UPDATE treadle.metric_runs SET remembered = 0');
}

/** Of the `readerValues`, `first` is the number of the first parameter. */
function isReader(first: number): string {
  const [tenant, audiences, tag] = [first, first + 1, first + 2].map((number) => `$${number}`);
  return `m.tenant = ${tenant} AND (${audiences}::bytea[] IS NULL OR m.audience = ANY (${audiences}))
    AND (${tag}::text IS NULL OR m.body ~ ${tag})`;
}

function readerValues({ tenant, audiences, tag }: StoredReader): readonly unknown[] {
  return [bytes(tenant), audiences?.map((one) => bytes(one)) ?? null, tag === undefined ? null : bodyWithTag(tag)];
}

/** A query for items of a reader that also match another one. */
function ownedBy({ owners }: StoredReader, other: string): string {
  return `(${owners.map((owner) => `'${owner}'`).join(' | ')}) & (${other})`;
}

async function countWords(query: Query, reader: StoredReader, words: readonly string[]): Promise<readonly WordCount[]> {
  if (words.length === 0) return [];
  const { rows } = await query<{ readonly count: string }>(
    `SELECT (SELECT count(*) FROM (SELECT 1 FROM treadle.memories m WHERE m.terms @@ n.query::tsquery LIMIT ${COMMON + 1}) found) AS count
     FROM unnest($1::text[]) WITH ORDINALITY AS n (query, place) ORDER BY n.place`,
    [words.map((word) => ownedBy(reader, `'${word}'`))],
  );
  return rows.map(({ count }, index) => ({ word: words[index]!, count: Number(count) }));
}

function int8({ buffer, byteOffset, byteLength }: Buffer): Int8Array {
  return new Int8Array(buffer, byteOffset, byteLength);
}
