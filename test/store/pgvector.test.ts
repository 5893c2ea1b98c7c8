import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { audience, memoryOn, quantised, type MemoryReader, type NewNote } from '@treadle/core/memory';
import { sqliteStore, type Store } from '@treadle/store';
import type { ClientBase } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { uses } from '../needs.ts';
import { memoryContract } from './contract/memory.ts';
import { pgvectorFolder, startPostgres, withClient, type PostgresServer } from './postgres-server.ts';
import { testDatabase, type TestDatabase } from './shared-postgres.ts';

/* Search by meaning in a database that has the extension `vector`. The other tests of PostgreSQL are about one without it. */

const folder = pgvectorFolder();
const cleanUp = new AsyncDisposableStack();
afterAll(() => cleanUp.disposeAsync());

/** `npm run test:long` tries more. */
const isLong = process.env['TREADLE_CASES'] !== undefined;

const ALL = 1_000;
const READERS: readonly MemoryReader[] = [
  { tenant: 'acme' },
  { tenant: 'acme', audiences: [audience('user', 'ann'), audience('tenant', '')] },
  { tenant: 'acme', audiences: [audience('user', 'bob')] },
  { tenant: 'other' },
  { tenant: 'nobody' },
];

/** Models with vectors of different lengths; one whose vectors have several; one whose vectors are too long for the database. */
const MODELS: Readonly<Record<string, (index: number) => number>> = {
  short: () => 3,
  longer: () => 40,
  mixed: (index) => 3 + (index % 2),
  huge: () => 16_001,
};

/** Few different numbers, so that some are equally near. */
function vectorOf(index: number, length: number): Int8Array {
  return quantised(Array.from({ length }, (_, n) => ((index * 7 + n * (1 + (index % 5)) * 3) % 11) - 5.5));
}

function note(index: number): NewNote {
  return {
    tenant: index % 3 === 0 ? 'other' : 'acme',
    subject: index % 2 === 0 ? 'ann' : 'bob',
    scope: index % 7 === 0 ? 'tenant' : 'user',
    key: `k${index}`,
    content: `Note ${index}`,
    ...(index % 10 === 9 && { private: true }),
  };
}

async function write(store: Store, from: number, to: number): Promise<void> {
  const memory = memoryOn({ port: store.memory, now: () => 1 });
  for (let index = from; index < to; index++) await memory.remember(note(index));
  for (const [model, lengthOf] of Object.entries(MODELS)) {
    const rows = await store.memory.unembedded(model, ALL);
    await store.memory.addVectors(
      model,
      rows.map(({ row, content }) => {
        const index = Number(content.slice('Note '.length));
        return { row, vector: vectorOf(index, lengthOf(index)) };
      }),
    );
  }
}

/** What each reader finds of each model, with the nearest first. */
async function found(store: Store): Promise<readonly (readonly string[])[]> {
  const all: (readonly string[])[] = [];
  for (const reader of READERS) {
    for (const [model, lengthOf] of Object.entries(MODELS)) {
      for (const index of isLong && model !== 'huge' ? [0, 7, 60] : [7]) {
        for (const limit of isLong ? [1, 6, ALL] : [6, ALL]) {
          const vector = vectorOf(index, lengthOf(index));
          const items = await store.memory.nearest(reader, { model, vector, limit });
          all.push(items.map(({ content }) => content));
        }
      }
    }
  }
  return all;
}

describe.runIf(uses('PostgreSQL with pgvector', folder !== undefined))('pgvector', () => {
  let server: PostgresServer;
  let database: TestDatabase;

  beforeAll(async () => {
    server = cleanUp.use(await startPostgres({ ...(folder !== undefined && { folder }), settings: ['fsync=off'] }));
    database = cleanUp.use(await testDatabase(server.url()));
  });

  const query = <T>(work: (client: ClientBase) => Promise<T>, url = database.url): Promise<T> => withClient(url, work);

  beforeEach(async () => {
    await query((client) => client.query('DROP TABLE IF EXISTS treadle.memory_near'));
  });

  /** How many vectors there are, and how many of them the database can compare. */
  async function counts(url = database.url): Promise<{ readonly vectors: number; readonly near: number | undefined }> {
    return query(async (client) => {
      const count = async (table: string): Promise<number> =>
        Number((await client.query<{ n: string }>(`SELECT count(*) AS n FROM treadle.${table}`)).rows[0]!.n);
      const { rows } = await client.query<{ has: boolean }>(
        `SELECT to_regclass('treadle.memory_near') IS NOT NULL AS has`,
      );
      return { vectors: await count('memory_vectors'), near: rows[0]!.has ? await count('memory_near') : undefined };
    }, url);
  }

  if (isLong) {
    memoryContract(async () => ({
      open: database.open,
      [Symbol.asyncDispose]: () => database.clear(),
    }));
  }

  test('finds what is found without it, whatever the database has of it', async () => {
    const without = sqliteStore(':memory:');
    const store = await database.open();
    const same = async (): Promise<void> => expect(await found(store)).toEqual(await found(without));
    const change = async (work: (one: Store) => Promise<unknown>): Promise<void> => {
      for (const one of [without, store]) await work(one);
      await same();
    };
    try {
      expect(await store.memory.vectorsComparedBy()).toBe('process');
      await change((one) => write(one, 0, 80));
      expect(await store.memory.vectorsComparedBy()).toBe('database');
      expect(await counts()).toEqual({ vectors: 4 * 72, near: 3 * 72 });

      await change((one) => one.memory.forget({ tenant: 'acme', subject: 'ann', until: 1 }));
      await change((one) => one.memory.forget({ tenant: 'other', id: 'note:["other","user","bob","k3"]', until: 1 }));
      const { vectors, near } = await counts();
      expect(near).toBe((vectors / 4) * 3);

      // As if a process that does not know of it had written them. They are copied when vectors are added by another one.
      await query((client) => client.query('DELETE FROM treadle.memory_near WHERE memory % 3 = 0'));
      await same();
      const restarted = await database.open();
      await write(restarted, 80, 82);
      await write(without, 80, 82);
      await same();
      expect(await counts()).toEqual({ vectors: vectors + 8, near: near! + 6 });

      await query((client) => client.query('DROP EXTENSION vector CASCADE'));
      await same();
      expect(await store.memory.vectorsComparedBy()).toBe('process');
      await change(async (one) => write(one === store ? await database.open() : one, 82, 84));
      expect(await counts()).toEqual({ vectors: vectors + 16, near: near! + 12 });
      await query((client) => client.query('DROP TABLE treadle.memory_near'));
      await same();
    } finally {
      await without.close();
      await database.clear();
    }
  });

  test('is what compares the vectors, as doctor says', async () => {
    const store = await database.open();
    await write(store, 0, 30);
    const home = cleanUp.adopt(mkdtempSync(path.join(tmpdir(), 'treadle-doctor-')), (made) =>
      rmSync(made, { recursive: true }),
    );
    const config = '[memory]\nenabled = true\n[memory.embeddings]\nprovider = "ollama"\nmodel = "m"\n';
    writeFileSync(path.join(home, 'treadle.toml'), config);
    const { stdout } = await command(['doctor', '--no-test', '--store', database.url], home);
    expect(stdout).toContain('; it compares the vectors of memory (pgvector)\n');
    const nearest = async (): Promise<readonly string[]> => {
      const items = await store.memory.nearest(
        { tenant: 'acme' },
        { model: 'longer', vector: vectorOf(7, 40), limit: 1 },
      );
      return items.map(({ content }) => content);
    };
    expect(await nearest()).toEqual(['Note 7']);
    await query((client) =>
      client.query(`UPDATE treadle.memory_near n SET vector = (SELECT vector FROM treadle.memory_near o WHERE o.model = n.model
          AND o.memory = (SELECT id FROM treadle.memories WHERE body LIKE '%"Note 1"%'))
        WHERE n.model = 'longer' AND memory = (SELECT id FROM treadle.memories WHERE body LIKE '%"Note 7"%')`),
    );
    expect(await nearest()).not.toEqual(['Note 7']);
    await database.clear();
  });

  test('is created once by several processes, and used in whatever schema it is', async () => {
    await using other = await testDatabase(server.url());
    await query(
      (client) => client.query('CREATE SCHEMA "Own extensions"; CREATE EXTENSION vector SCHEMA "Own extensions"'),
      other.url,
    );
    const [first, second] = [await other.open(), await other.open()];
    await Promise.all([write(first, 0, 20), write(second, 20, 40)]);
    await write(first, 40, 41);
    const { vectors, near } = await counts(other.url);
    expect(near).toBe((vectors / 4) * 3);
    const without = sqliteStore(':memory:');
    await write(without, 0, 41);
    const inOrder = async (store: Store): Promise<readonly (readonly string[])[]> =>
      (await found(store)).map((contents) => contents.toSorted()).filter(({ length }) => length > 6);
    expect(await inOrder(second)).toEqual(await inOrder(without));
    await without.close();
  });

  test('is not used by one who may not create it, until it is there', async () => {
    await using other = await testDatabase(server.url());
    const url = new URL(other.url);
    [url.username, url.password] = ['plain', 'any'];
    await query(
      (client) =>
        client.query('DROP SCHEMA treadle CASCADE; CREATE ROLE plain LOGIN; CREATE SCHEMA treadle AUTHORIZATION plain'),
      other.url,
    );
    await using plain = await openAs(url.href);
    await write(plain.store, 0, 20);
    const before = await found(plain.store);
    expect(before.flat()).toContain('Note 7');
    expect(await counts(other.url)).toEqual({ vectors: 4 * 18, near: undefined });

    await query((client) => client.query('CREATE EXTENSION vector'), other.url);
    await using later = await openAs(url.href);
    await write(later.store, 20, 21);
    expect(await counts(other.url)).toEqual({ vectors: 4 * 19, near: 3 * 19 });
    await later.store.memory.forget({ tenant: 'acme', id: 'note:["acme","user","ann","k20"]', until: 1 });
    expect(await found(later.store)).toEqual(before);
  });
});

async function openAs(url: string): Promise<AsyncDisposable & { readonly store: Store }> {
  const { postgresStore } = await import('@treadle/store');
  const store = await postgresStore(url, { connections: 2 });
  return { store, [Symbol.asyncDispose]: () => store.close() };
}
