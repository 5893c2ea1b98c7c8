import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { runLoop, userText, type JournalEntry } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test, vi } from 'vitest';
import { entries, entry, startedWith } from '../../test/entries.ts';
import { remote } from '../../test/remote.ts';
import { response } from '../../test/responses.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { sqliteStore } from './store.ts';

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

test('creates all files with access for their owner only', async () => {
  await using temp = tempStore();
  await temp.open().append('a', [entry(0)]);
  const modes = readdirSync(temp.folder).map((name) => [name, statSync(path.join(temp.folder, name)).mode & 0o777]);
  expect(modes).toEqual([
    ['runs.db', 0o600],
    ['runs.db-shm', 0o600],
    ['runs.db-wal', 0o600],
  ]);
});

test('creates missing folders', async () => {
  await using temp = tempStore();
  const file = path.join(temp.folder, 'some', 'where', 'runs.db');
  const store = sqliteStore(file);
  await store.append('a', [entry(0)]);
  await store.close();
  expect(readdirSync(path.dirname(file))).toEqual(['runs.db']);
});

test('resolves a relative path when the store is opened', async () => {
  await using temp = tempStore();
  const store = sqliteStore(path.relative(process.cwd(), temp.file));
  await store.append('a', [entry(0)]);
  await store.close();
  await expect(store.read('a')).rejects.toThrow(temp.file);
  expect(await temp.open().read('a')).toEqual([entry(0)]);
});

test('a reopened store has all its content', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(3));
  await store.writeSnapshot('a', { seq: 2, state: { turn: 1 } });
  const id = await store.blobs.put('a', 'long');
  const [summary] = await store.list();
  await store.close();
  const again = temp.open();
  expect(await again.read('a')).toEqual(entries(3));
  expect(await again.readSnapshot('a')).toEqual({ seq: 2, state: { turn: 1 } });
  expect(await again.blobs.read('a', id, 0, 9)).toEqual({ text: 'long', length: 4 });
  expect(await again.list()).toEqual([summary]);
});

test('neither syncs nor moves the log nor waits for a lock inside of SQLite', async () => {
  await using temp = tempStore();
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  temp.open();
  const db = exec.mock.contexts[0] as DatabaseSync;
  exec.mockRestore();
  expect(db.prepare('PRAGMA journal_mode').get()).toEqual({ journal_mode: 'wal' });
  expect(db.prepare('PRAGMA synchronous').get()).toEqual({ synchronous: 1 });
  expect(db.prepare('PRAGMA wal_autocheckpoint').get()).toEqual({ wal_autocheckpoint: 0 });
  expect(db.prepare('PRAGMA busy_timeout').get()).toEqual({ timeout: 0 });
  expect(db.prepare('PRAGMA fullfsync').get()).toEqual({ fullfsync: 1 });
});

test('rejects a store of a newer version and does not change it', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(2));
  await store.close();
  const raw = temp.raw();
  const version = raw.prepare('PRAGMA user_version').get()!['user_version'] as number;
  raw.exec(`PRAGMA user_version = ${version + 1}`);
  expect(() => temp.open()).toThrow(expect.objectContaining({ name: 'TreadleError', code: 'store-newer' }));
  expect(() => temp.open()).toThrow(
    `The store ${temp.file} has version ${version + 1}, but this Treadle supports versions up to ${version}. Update Treadle, or choose another store.`,
  );
  raw.exec(`PRAGMA user_version = ${version}`);
  expect(await temp.open().read('a')).toEqual(entries(2));
});

test('several processes can create the same store at the same time', async () => {
  await using temp = tempStore();
  await using processes = new AsyncDisposableStack();
  const opening = Array.from({ length: 4 }, async () => processes.use(await remote(temp.file)));
  const remotes = await Promise.all(opening);
  await Promise.all(remotes.map((one, index) => one.append(`run ${index}`, entries(2))));
  expect(await temp.open().list()).toHaveLength(4);
});

function createVersion1({ raw }: TempStore): void {
  const db = raw();
  db.exec(readFileSync(new URL('../../test/version-1.sql', import.meta.url), 'utf8'));
  db.close();
}

test('migrates a store of version 1 with all its content', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const store = temp.open();
  expect(await store.list()).toEqual([
    {
      runId: 'a',
      status: 'completed',
      startedAt: 1_000,
      updatedAt: 1_001,
      entries: 2,
      model: 'scripted',
      title: 'How many?',
    },
  ]);
  expect((await store.read('a')).map(({ event }) => event.type)).toEqual(['run-started', 'model-replied']);
  expect(await store.readSnapshot('a')).toEqual({ seq: 1, state: { turn: 1 } });
  const [blob] = await store.blobs.list('a');
  expect(await store.blobs.read('a', blob!, 0, 99)).toEqual({ text: 'a long text', length: 11 });
  const resumed = await runLoop({ model: scriptedModel([]), journal: store, runId: 'a' });
  expect(resumed.text).toBe('Four.');

  await store.requests.create(response('resp'));
  await store.close();
  const again = temp.open();
  expect(await again.requests.get('acme', 'resp')).toEqual(response('resp'));
  expect(await again.prune(Infinity)).toBe(1);
});

test('a migrated store has the same schema as a new one, and as the next new one', async () => {
  await using old = tempStore();
  await using fresh = tempStore();
  await using next = tempStore();
  createVersion1(old);
  const [migrated, ...created] = [old, fresh, next].map((temp) => {
    temp.open();
    const db = temp.raw();
    const tables = db.prepare(`SELECT type, name, sql FROM sqlite_schema ORDER BY name`).all();
    return { tables, version: db.prepare('PRAGMA user_version').get() };
  });
  expect(created).toEqual([migrated, migrated]);
});

test('a migration finds what runs belong to in their first entries', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const facts = { session: 's', task: 't', labels: { team: 'sales' } };
  const started = { type: 'run-started', at: 0, runId: 'b', model: 'm', input: [], instructions: 'x'.repeat(5_000) };
  addRun(temp.raw(), 'b', [{ v: 1, seq: 0, event: { ...started, ...facts }, issued: [] } as unknown as JournalEntry]);
  const store = temp.open();
  expect(await store.list({ session: 's', task: 't', labels: { team: 'sales' } })).toMatchObject([
    { runId: 'b', ...facts },
  ]);
});

test('several processes can migrate the same store at the same time', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  await using processes = new AsyncDisposableStack();
  const remotes = await Promise.all(Array.from({ length: 4 }, async () => processes.use(await remote(temp.file))));
  await Promise.all(remotes.map((one, index) => one.requests.create(response(`resp ${index}`))));
  expect(await temp.open().requests.unfinished()).toHaveLength(4);
});

test('a failed migration changes nothing', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const db = temp.raw();
  db.exec('CREATE TABLE responses_ended (x)');
  expect(() => temp.open()).toThrow(expect.objectContaining({ name: 'TreadleError', code: 'store-failed' }));
  expect(db.prepare('PRAGMA user_version').get()).toEqual({ user_version: 1 });
  expect(db.prepare(`SELECT name FROM sqlite_schema WHERE name = 'responses'`).all()).toEqual([]);
  db.exec('DROP TABLE responses_ended');
  expect(await temp.open().list()).toHaveLength(1);
});

/** Adds a run to a store of version 1 or 2. */
function addRun(db: DatabaseSync, runId: string, added: readonly JournalEntry[]): void {
  const { lastInsertRowid: id } = db
    .prepare(
      "INSERT INTO runs (run, status, started_at, updated_at, entries, model, title) VALUES (?, 'running', 0, 0, ?, '', '')",
    )
    .run(runId, added.length);
  const insert = db.prepare('INSERT INTO entries (run, seq, entry, sum) VALUES (?, ?, ?, ?)');
  for (const one of added) insert.run(id, one.seq, JSON.stringify(one), crc32(JSON.stringify(one)));
}

test('a migrated run can be continued, and damage to it is found', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  // Long and short texts, so that the rows of a run are on many pages.
  const long = Array.from({ length: 500 }, (_, seq) => entry(seq, 'x'.repeat((seq * 997) % 9_000)));
  const db = temp.raw();
  addRun(db, 'long', long);
  addRun(db, 'short', entries(3));
  const store = temp.open();
  expect(await store.read('long')).toEqual(long);
  expect(await store.read('short')).toEqual(entries(3));
  await store.append('short', [entry(3)]);
  expect(await store.read('short')).toEqual(entries(4));
  db.exec('DELETE FROM entries WHERE seq = 499');
  await expect(store.read('long')).rejects.toThrow('Entry 499 of run "long" is missing');
  db.exec("UPDATE entries SET entry = replace(entry, 'entry 1', 'Entry 1')");
  await expect(store.read('short')).rejects.toThrow('Entry 1 of run "short" is damaged');
});

test('the migration stores the messages of continued conversations once', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const input = Array.from({ length: 40 }, (_, n) => userText(`${n} `.repeat(500)));
  const started = (count: number): JournalEntry[] => [startedWith(input.slice(0, count)), entry(1)];
  const db = temp.raw();
  for (const count of [10, 20, 30, 40]) addRun(db, `run ${count}`, started(count));
  addRun(db, 'damaged', started(40));
  db.exec(`UPDATE entries SET entry = replace(entry, '7 7', '8 8') WHERE run = (SELECT max(run) FROM entries)`);
  const store = temp.open();
  expect(db.prepare('SELECT count(*) AS n FROM messages').get()).toEqual({ n: 40 });
  for (const count of [10, 20, 30, 40]) expect(await store.read(`run ${count}`)).toEqual(started(count));
  await expect(store.read('damaged')).rejects.toThrow('Entry 0 of run "damaged" is damaged');
  await store.append('run 10', [entry(2)]);
  expect(await store.read('run 10', 1)).toEqual([entry(1), entry(2)]);
  for (const runId of ['run 20', 'run 30', 'run 40', 'damaged']) await store.delete(runId);
  expect(db.prepare('SELECT count(*) AS n FROM messages').get()).toEqual({ n: 10 });
});

test('damage in a store of version 1 is still found after the migration', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const db = temp.raw();
  for (const runId of ['torn last', 'missing last', 'changed', 'missing', 'intact']) addRun(db, runId, entries(5));
  const damage = (sql: string, runId: string, seq: number): unknown =>
    db.prepare(`${sql} WHERE run = (SELECT id FROM runs WHERE run = ?) AND seq = ?`).run(runId, seq);
  damage('UPDATE entries SET entry = substr(entry, 1, 20)', 'torn last', 4);
  damage('DELETE FROM entries', 'missing last', 4);
  damage("UPDATE entries SET entry = replace(entry, 'entry 2', 'Entry 2')", 'changed', 2);
  damage('DELETE FROM entries', 'missing', 2);
  const store = temp.open();
  await expect(store.read('torn last')).rejects.toThrow('Entry 4 of run "torn last" is damaged');
  await expect(store.read('missing last')).rejects.toThrow('Entry 4 of run "missing last" is missing');
  await expect(store.read('changed')).rejects.toThrow('Entry 2 of run "changed" is damaged');
  await expect(store.read('missing')).rejects.toThrow('Entry 2 of run "missing" is missing');
  expect(await store.read('intact')).toEqual(entries(5));
});

test('damaged pages do not prevent the migration of the other runs', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const db = temp.raw();
  addRun(db, 'entry', [entry(0), entry(1, 'x'.repeat(50_000)), entry(2, 'damage me '.repeat(5_000)), entry(3)]);
  addRun(db, 'snapshot', entries(3));
  addRun(db, 'intact', entries(3));
  const snapshot = JSON.stringify('damage me, too '.repeat(5_000));
  db.prepare(`INSERT INTO snapshots SELECT id, 2, ?, ? FROM runs WHERE run = 'snapshot'`).run(
    snapshot,
    crc32(snapshot),
  );
  db.close();
  temp.damageText('damage me ');
  temp.damageText('damage me, too ');
  const store = temp.open();
  await expect(store.read('entry')).rejects.toThrow('Entry 2 of run "entry" is damaged');
  expect(await store.read('snapshot')).toEqual(entries(3));
  expect(await store.readSnapshot('snapshot')).toBeUndefined();
  expect(await store.read('intact')).toEqual(entries(3));
  expect(await store.readSnapshot('a')).toEqual({ seq: 1, state: { turn: 1 } });
});

test('a process of an older version that has the store open can neither read nor append after the migration', async () => {
  await using temp = tempStore();
  createVersion1(temp);
  const old = temp.raw();
  const insert = old.prepare('INSERT INTO entries (run, seq, entry, sum) VALUES (?, ?, ?, ?)');
  old.exec('ALTER TABLE runs ADD COLUMN chain INTEGER');
  const findRun = old.prepare('SELECT id, entries, status, chain FROM runs WHERE run = ?');
  old.exec('ALTER TABLE runs DROP COLUMN chain');
  const store = temp.open();
  const before = await store.read('a');
  expect(() => insert.run(1, 2, '{}', crc32('{}'))).toThrow('no column named sum');
  expect(() => findRun.get('a')).toThrow('no such column: chain');
  // Since version 6, and since version 18.
  expect(() => old.exec('DELETE FROM runs RETURNING last_message')).toThrow('no such column: last_message');
  expect(() => old.exec('SELECT request FROM responses')).toThrow('no such table: responses');
  expect(await store.read('a')).toEqual(before);
});
