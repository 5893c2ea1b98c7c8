import type { DatabaseSync } from 'node:sqlite';
import {
  similarityTo,
  type Forgetting,
  type MemoryFilter,
  type MemoryItem,
  type MemoryPort,
  type MemoryReader,
  type NearVector,
  type Observation,
} from '@treadle/core/memory';
import {
  bestOf,
  columnFilters,
  COMMON,
  memoryRow,
  PRIVATE_BODY,
  queryWords,
  rankingWords,
  storedReader,
  toItem,
  type StoredReader,
} from '../records/memory.ts';
import { storedTenant } from '../records/metrics.ts';
import type { GroupCommit } from './group-commit.ts';

/** Creates the tables of memory. Observations of earlier versions are made when somebody asks for it. */
export function createMemoryTables(db: DatabaseSync): void {
  db.exec(`
    -- Observations and notes. AUTOINCREMENT: a vector that is made meanwhile is never that of another item.
    CREATE TABLE memories (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      memory TEXT NOT NULL UNIQUE,
      tenant TEXT NOT NULL,
      audience TEXT NOT NULL,
      type TEXT NOT NULL,
      run TEXT,
      session TEXT,
      subject TEXT,
      agent TEXT,
      at REAL NOT NULL,
      owners TEXT NOT NULL,
      words TEXT NOT NULL,
      body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX memories_by_time ON memories (tenant, at, memory);
    CREATE INDEX memories_by_run ON memories (run) WHERE run IS NOT NULL;
    CREATE INDEX memories_by_session ON memories (tenant, session) WHERE session IS NOT NULL;

    CREATE TABLE memory_vectors (
      model TEXT NOT NULL,
      memory INTEGER NOT NULL,
      vector BLOB NOT NULL,
      PRIMARY KEY (model, memory)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX memory_vectors_by_memory ON memory_vectors (memory);

    -- What is not to be remembered again: of a tenant, everything that is not younger and to which the others apply. Null: all.
    CREATE TABLE memory_forgotten (
      id INTEGER PRIMARY KEY,
      tenant TEXT NOT NULL,
      memory TEXT,
      session TEXT,
      subject TEXT,
      until REAL NOT NULL
    ) STRICT;
    CREATE INDEX memory_forgotten_by_memory ON memory_forgotten (tenant, memory);

    CREATE VIRTUAL TABLE memory_words USING fts5 (owners, words, content = 'memories', content_rowid = 'id');

    CREATE TRIGGER memory_added AFTER INSERT ON memories BEGIN
      INSERT INTO memory_words (rowid, owners, words) VALUES (NEW.id, NEW.owners, NEW.words);
    END;
    CREATE TRIGGER memory_removed AFTER DELETE ON memories BEGIN
      INSERT INTO memory_words (memory_words, rowid, owners, words) VALUES ('delete', OLD.id, OLD.owners, OLD.words);
      DELETE FROM memory_vectors WHERE memory = OLD.id;
    END;

    ALTER TABLE metric_runs ADD COLUMN remembered INTEGER NOT NULL DEFAULT 0;
  `);
}

/** The methods of a `MemoryPort`. Those that read are synchronous and need a transaction of the caller. */
export interface Memories extends Pick<MemoryPort, 'put' | 'forget' | 'addVectors' | 'restart'> {
  /** Inside a transaction: adds what was not forgotten. */
  readonly addObservations: (observations: readonly Observation[]) => void;
  /** Inside a transaction: removes the observations of a run that is deleted. */
  readonly removeOfRun: (run: string) => void;
  readonly matching: (reader: MemoryReader, text: string, limit: number) => readonly MemoryItem[];
  /** Called until it returns the items: it looks at a part of the vectors each time. */
  readonly nearestInParts: (reader: MemoryReader, near: NearVector) => () => readonly MemoryItem[] | undefined;
  readonly get: (reader: MemoryReader, id: string) => MemoryItem | undefined;
  readonly list: (filter: MemoryFilter) => readonly MemoryItem[];
  readonly unembedded: (model: string, limit: number) => readonly { readonly row: number; readonly content: string }[];
}

/** How many vectors are compared in one turn of the event loop. */
const VECTORS_AT_ONCE = 4_000;

/** How many items are removed in one transaction. */
const REMOVED_AT_ONCE = 500;

export function openMemories(db: DatabaseSync, { write }: Pick<GroupCommit, 'write'>): Memories {
  const hasOfRun = db.prepare('SELECT 1 FROM memories WHERE run = ? LIMIT 1');
  let prepared: Statements | undefined;
  const sql = (): Statements => (prepared ??= prepareStatements(db));

  function add(item: MemoryItem): void {
    const { memory, tenant, audience, type, run, session, subject, agent, at, owners, words, body } = memoryRow(item);
    sql().insert.run(memory, tenant, audience, type, run, session, subject, agent, at, owners, words, body);
  }

  /** Notes all runs, so that all of their observations are added that are not there. */
  function noteAll(): void {
    db.exec(`
      INSERT INTO metric_notes (run) SELECT run FROM runs
        WHERE status <> 'running' OR run IN (SELECT run FROM metric_runs) ORDER BY id;
      UPDATE metric_runs SET remembered = 0;
    `);
  }

  function readerValues({ tenant, audiences, tag }: StoredReader): readonly (string | null)[] {
    return [tenant, audiences ? JSON.stringify(audiences) : null, tag ?? null];
  }

  return {
    addObservations(observations) {
      for (const one of observations) {
        const { memory, tenant, session, subject, at } = memoryRow(one);
        const isForgotten = sql().isForgotten.get(tenant, memory, session, subject, at) !== undefined;
        if (!isForgotten) add(one);
      }
    },

    removeOfRun(run) {
      if (hasOfRun.get(run)) sql().removeOfRun.run(run);
    },

    matching(given, text, limit) {
      const reader = storedReader(given);
      const owned = `owners : (${reader.owners.join(' OR ')})`;
      const counts = queryWords(text).map((word) => ({
        word,
        count: sql().countWord.get(`${owned} AND words : "${word}"`)!['count'] as number,
      }));
      const words = rankingWords(counts).map(({ word }) => `"${word}"`);
      if (words.length === 0) return [];
      const rows = sql().findMatching.all(
        `${owned} AND words : (${words.join(' OR ')})`,
        ...readerValues(reader),
        limit,
      );
      return rows.map(({ body }) => toItem(body as string));
    },

    nearestInParts(given, { model, vector, limit }) {
      const reader = storedReader(given);
      const similarity = similarityTo(vector);
      const best = bestOf(limit);
      let after = 0;
      return () => {
        const rows = sql().findVectors.all(model, after, ...readerValues(reader));
        for (const { id, vector: bytes } of rows) {
          const { buffer, byteOffset, byteLength } = bytes as Uint8Array;
          best.add(id as number, similarity(new Int8Array(buffer, byteOffset, byteLength)));
        }
        after = (rows.at(-1)?.['id'] as number | undefined) ?? after;
        if (rows.length === VECTORS_AT_ONCE) return undefined;
        return best.best().flatMap((id) => {
          const row = sql().findRow.get(id);
          return row ? [toItem(row['body'] as string)] : [];
        });
      };
    },

    get(given, id) {
      const reader = storedReader(given);
      const row = sql().find.get(id.toWellFormed(), ...readerValues(reader));
      return row && toItem(row['body'] as string);
    },

    list(filter) {
      const reader = storedReader(filter);
      const columns = columnFilters(filter);
      const { since = -Infinity, until = Infinity, limit, after } = filter;
      const rows = db
        .prepare(
          `SELECT m.body FROM memories m WHERE ${isReader(1)} AND m.at >= ?4 AND m.at < ?5 AND (m.at, m.memory) < (?6, ?7)
             ${columns.map(([column], index) => `AND m.${column} = ?${index + 9}`).join(' ')}
           ORDER BY m.at DESC, m.memory DESC LIMIT ?8`,
        )
        .all(
          ...readerValues(reader),
          since,
          until,
          after?.at ?? Infinity,
          after?.id.toWellFormed() ?? '',
          limit,
          ...columns.map(([, value]) => value),
        );
      return rows.map(({ body }) => toItem(body as string));
    },

    put: (note) =>
      write(() => {
        sql().removeNamed.run(note.id.toWellFormed());
        add(note);
      }),

    async forget({ tenant: name, id, session, subject, until }: Forgetting) {
      const key = [
        storedTenant(name),
        id?.toWellFormed() ?? null,
        session?.toWellFormed() ?? null,
        subject?.toWellFormed() ?? null,
        until,
      ] as const;
      await write(() => sql().forget.run(...key));
      for (let count = 0; ;) {
        const removed = await write(() => Number(sql().removeForgotten.run(...key).changes));
        count += removed;
        if (removed < REMOVED_AT_ONCE) return count;
      }
    },

    unembedded: (model, limit) =>
      sql()
        .findUnembedded.all(model, limit)
        .map(({ id, body }) => ({ row: id as number, content: toItem(body as string).content })),

    addVectors: (model, vectors) =>
      write(() => {
        for (const { row, vector } of vectors) {
          sql().addVector.run(model, new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength), row);
        }
      }, 'written'),

    async restart() {
      // If the process dies in between, those that were removed are made again.
      await write(noteAll);
      while ((await write(() => Number(sql().removeObservations.run().changes))) > 0);
      await write(noteAll);
    },
  };
}

type Statements = ReturnType<typeof prepareStatements>;

/** Of the `readerValues`, `first` is the number of the first parameter. */
function isReader(first: number): string {
  const [tenant, audiences, tag] = [first, first + 1, first + 2].map((number) => `?${number}`);
  return `m.tenant = ${tenant} AND (${audiences} IS NULL OR m.audience IN (SELECT value FROM json_each(${audiences})))
    AND (${tag} IS NULL OR EXISTS (SELECT 1 FROM json_each(m.body, '$.tags') WHERE value = ${tag}))`;
}

/** To which rows a row of `memory_forgotten` applies. */
const IS_FORGOTTEN = `tenant = ?1 AND (?2 IS NULL OR memory = ?2) AND (?3 IS NULL OR session = ?3)
  AND (?4 IS NULL OR subject = ?4) AND at <= ?5`;

/** Not prepared before they are needed: SQLite reads the index then, and one that is damaged must not affect runs. */
function prepareStatements(db: DatabaseSync) {
  return {
    insert: db.prepare(
      `INSERT INTO memories (memory, tenant, audience, type, run, session, subject, agent, at, owners, words, body)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    ),
    removeNamed: db.prepare('DELETE FROM memories WHERE memory = ?'),
    find: db.prepare(`SELECT m.body FROM memories m WHERE m.memory = ?1 AND ${isReader(2)}`),
    findRow: db.prepare('SELECT body FROM memories WHERE id = ?'),
    countWord: db.prepare(
      `SELECT count(*) AS count FROM (SELECT 1 FROM memory_words WHERE memory_words MATCH ? LIMIT ${COMMON + 1})`,
    ),
    findMatching: db.prepare(
      `SELECT m.body FROM memory_words JOIN memories m ON m.id = memory_words.rowid
       WHERE memory_words MATCH ?1 AND ${isReader(2)} ORDER BY bm25(memory_words, 0, 1), m.id DESC LIMIT ?5`,
    ),
    findVectors: db.prepare(
      `SELECT m.id, v.vector FROM memory_vectors v JOIN memories m ON m.id = v.memory
       WHERE v.model = ?1 AND v.memory > ?2 AND ${isReader(3)} ORDER BY v.memory LIMIT ${VECTORS_AT_ONCE}`,
    ),
    findUnembedded: db.prepare(
      `SELECT m.id, m.body FROM memories m
       WHERE NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.model = ?1 AND v.memory = m.id)
         AND NOT (m.type = 'note' AND m.body LIKE '${PRIVATE_BODY}') ORDER BY m.id LIMIT ?2`,
    ),
    addVector: db.prepare(
      `INSERT INTO memory_vectors (model, memory, vector) SELECT ?1, id, ?2 FROM memories WHERE id = ?3
       ON CONFLICT DO NOTHING`,
    ),
    isForgotten: db.prepare(
      `SELECT 1 FROM memory_forgotten f WHERE f.tenant = ?1 AND (f.memory IS NULL OR f.memory = ?2)
         AND (f.session IS NULL OR f.session = ?3) AND (f.subject IS NULL OR f.subject = ?4) AND f.until >= ?5 LIMIT 1`,
    ),
    forget: db.prepare('INSERT INTO memory_forgotten (tenant, memory, session, subject, until) VALUES (?, ?, ?, ?, ?)'),
    removeOfRun: db.prepare(`DELETE FROM memories WHERE run = ? AND type <> 'note'`),
    removeObservations: db.prepare(
      `DELETE FROM memories WHERE id IN (SELECT id FROM memories WHERE type <> 'note' LIMIT ${REMOVED_AT_ONCE})`,
    ),
    removeForgotten: db.prepare(
      `DELETE FROM memories WHERE id IN (SELECT id FROM memories WHERE ${IS_FORGOTTEN} LIMIT ${REMOVED_AT_ONCE})`,
    ),
  };
}
