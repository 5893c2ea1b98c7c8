import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { place } from '../../test/place.ts';
import { remote } from '../../test/remote.ts';
import { sqliteStore } from './store.ts';

// Starting processes takes a while on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

test('a new store is readable by its user only, and so is what SQLite puts beside it', async () => {
  await using at = place();
  await at.open().append('a', [entry(0)]);
  const modes = readdirSync(at.folder).map((name) => [name, statSync(path.join(at.folder, name)).mode & 0o777]);
  expect(modes).toEqual([
    ['runs.db', 0o600],
    ['runs.db-shm', 0o600],
    ['runs.db-wal', 0o600],
  ]);
});

test('missing folders are made', async () => {
  await using at = place();
  const file = path.join(at.folder, 'some', 'where', 'runs.db');
  const store = sqliteStore(file);
  await store.append('a', [entry(0)]);
  await store.close();
  expect(readdirSync(path.dirname(file))).toEqual(['runs.db']);
});

test('a relative path stays where it was, wherever the process goes', async () => {
  await using at = place();
  const store = sqliteStore(path.relative(process.cwd(), at.file));
  await store.append('a', [entry(0)]);
  await store.close();
  await expect(store.read('a')).rejects.toThrow(at.file);
  expect(await at.open().read('a')).toEqual([entry(0)]);
});

test('what was stored is there when it is opened again', async () => {
  await using at = place();
  const store = at.open();
  await store.append('a', entries(3));
  await store.writeSnapshot('a', { seq: 2, state: { turn: 1 } });
  const id = await store.blobs.put('a', 'long');
  const [summary] = await store.list();
  await store.close();
  const again = at.open();
  expect(await again.read('a')).toEqual(entries(3));
  expect(await again.readSnapshot('a')).toEqual({ seq: 2, state: { turn: 1 } });
  expect(await again.blobs.read('a', id, 0, 9)).toEqual({ text: 'long', length: 4 });
  expect(await again.list()).toEqual([summary]);
});

test('a commit is synced', async () => {
  await using at = place();
  const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
  at.open();
  const db = exec.mock.contexts[0] as DatabaseSync;
  exec.mockRestore();
  expect(db.prepare('PRAGMA journal_mode').get()).toEqual({ journal_mode: 'wal' });
  expect(db.prepare('PRAGMA synchronous').get()).toEqual({ synchronous: 2 });
  expect(db.prepare('PRAGMA fullfsync').get()).toEqual({ fullfsync: 1 });
});

test('a store of a newer version is refused, with both versions, and left as it is', async () => {
  await using at = place();
  const store = at.open();
  await store.append('a', entries(2));
  await store.close();
  const raw = at.raw();
  raw.exec('PRAGMA user_version = 3');
  expect(() => at.open()).toThrow(expect.objectContaining({ name: 'TreadleError', code: 'store-newer' }));
  expect(() => at.open()).toThrow(
    `The store ${at.file} has version 3, and this Treadle knows up to version 2. Update Treadle, or choose another store.`,
  );
  raw.exec('PRAGMA user_version = 2');
  expect(await at.open().read('a')).toEqual(entries(2));
});

test('processes that open a new store at the same time all get it', async () => {
  await using at = place();
  await using processes = new AsyncDisposableStack();
  const opening = Array.from({ length: 4 }, async () => processes.use(await remote(at.file)));
  const remotes = await Promise.all(opening);
  await Promise.all(remotes.map((one, index) => one.append(`run ${index}`, entries(2))));
  expect(await at.open().list()).toHaveLength(4);
});
