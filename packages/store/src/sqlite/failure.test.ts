import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { remote } from '../../test/remote.ts';
import { sqliteStore } from './store.ts';

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

describe('a full disk', () => {
  test('rejects what does not fit, keeps what is stored, and works again when there is space', async () => {
    await using temp = tempStore();
    const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
    const store = temp.open();
    const db = exec.mock.contexts[0] as DatabaseSync;
    exec.mockRestore();
    await store.append('a', entries(3));
    const { page_count } = db.prepare('PRAGMA page_count').get() as { page_count: number };
    db.exec(`PRAGMA max_page_count = ${page_count + 2}`);
    const lease = await store.acquire('b');
    const long = entry(3, 'x'.repeat(100_000));
    await expect(store.append('a', [long])).rejects.toEqual(code('store-full'));
    await expect(store.append('b', [entry(0), { ...long, seq: 1 }], lease)).rejects.toThrow(
      `The store ${temp.file} cannot grow: the disk is full. Free some space and retry; everything stored before is intact.`,
    );
    expect(await store.read('a')).toEqual(entries(3));
    expect(await store.read('b')).toEqual([]);
    db.exec('PRAGMA max_page_count = 100000');
    await store.append('a', [long]);
    await store.append('b', [entry(0)], lease);
    expect(await store.read('a')).toEqual([...entries(3), long]);
  });

  /** A separate namespace in which any user may mount. It ends with the process that runs in it. */
  const [namespace, ...flags] = ['unshare', '--user', '--map-root-user', '--mount'] as const;
  const canMount = spawnSync(namespace, [...flags, 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0;

  if (!canMount) process.stderr.write('\nSKIPPED: a test needs unshare with mounts, which is not available here.\n');
  test.runIf(canMount || process.env['CI'] !== undefined)('of a mounted file system behaves the same', async () => {
    await using temp = tempStore();
    const main = fileURLToPath(new URL('../../test/full-disk-main.ts', import.meta.url));
    const script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" --conditions=treadle-source "$3" "$1"';
    const args = [...flags, 'sh', '-c', script, 'sh', temp.folder, process.execPath, main];
    const results = JSON.parse(execFileSync(namespace, args, { encoding: 'utf8' })) as { stored: number };
    const { stored } = results;
    expect(stored).toBeGreaterThan(5);
    expect(results).toEqual({
      stored,
      failure: 'store-full',
      again: 'store-full',
      readWhileFull: stored,
      readAfterOpening: stored,
      afterFreeing: 'done',
      readAtLast: stored + 1,
    });
  });
});

describe('a read-only store', () => {
  /** Root may write everything, so as root the tests use another user. */
  const asUser = process.getuid?.() === 0 ? { uid: 65_534 } : {};

  test('can be read', async () => {
    await using temp = tempStore();
    await temp.open().append('a', entries(3));
    chmodSync(temp.file, 0o444);
    chmodSync(temp.folder, 0o777);
    for (const name of readdirSync(temp.folder)) chmodSync(path.join(temp.folder, name), 0o444);
    await using reader = await remote(temp.file, asUser);
    expect(await reader.list()).toBe(1);
    await expect(reader.acquire('a')).rejects.toEqual(code('store-read-only'));
    await expect(reader.append('a', [entry(3)])).rejects.toThrow(
      `The store ${temp.file} cannot be written. Give this user write permission for the file and its folder, or choose another path.`,
    );
    expect(await reader.list()).toBe(1);
    expect(await temp.open().read('a')).toEqual(entries(3));
  });

  test('cannot be opened if SQLite cannot create its additional files', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', entries(3));
    await store.close();
    chmodSync(temp.file, 0o444);
    chmodSync(temp.folder, 0o555);
    await expect(remote(temp.file, asUser)).rejects.toEqual(code('store-read-only'));
  });

  test('cannot be created', async () => {
    await using temp = tempStore();
    chmodSync(temp.folder, 0o555);
    await expect(remote(temp.file, asUser)).rejects.toEqual(code('store-read-only'));
    await expect(remote(path.join(temp.folder, 'deeper', 'runs.db'), asUser)).rejects.toEqual(code('store-read-only'));
  });

  test.runIf(process.platform === 'linux')('cannot be created in /proc, and says so at once', () => {
    expect(() => sqliteStore('/proc/x/deeper/y.db')).toThrow(
      'The store /proc/x/deeper/y.db cannot be written: its folder does not exist and cannot be created. Choose another path.',
    );
  });
});

describe('a store locked by another process', () => {
  test('can be read, and written again after the lock is released', async () => {
    await using temp = tempStore();
    const store = temp.open({ busyTimeoutMs: 20 });
    await store.append('a', entries(2));
    await using other = await remote(temp.file);
    await other.lock('writing');
    const settled = await Promise.allSettled([
      store.append('a', [entry(2)]),
      store.append('b', [entry(0)]),
      store.acquire('c'),
    ]);
    expect(settled.map((one) => one.status === 'rejected' && one.reason.code)).toEqual(Array(3).fill('store-locked'));
    await expect(store.append('a', [entry(2)])).rejects.toThrow(
      `The store ${temp.file} is locked by another program. Stop the program that holds the lock, and retry.`,
    );
    expect(await store.read('a')).toEqual(entries(2));
    await other.unlock();
    await store.append('a', [entry(2)]);
    expect(await store.read('a')).toEqual(entries(3));
  });

  test('is written when the lock is released within the timeout, and the event loop is not blocked until then', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await using other = await remote(temp.file);
    await other.lock('writing');
    let isSettled = false;
    const written = [store.append('a', [entry(0)]), store.append('a', [entry(1)], undefined, 'written')];
    const added = Promise.all(written).finally(() => (isSettled = true));
    // A wait inside of SQLite would let no timer fire before the append is settled.
    for (let timers = 0; timers < 50; timers++) await new Promise((fire) => setTimeout(fire, 1));
    expect(isSettled).toBe(false);
    expect(await store.read('a')).toEqual([]);
    await other.unlock();
    await added;
    expect(await store.read('a')).toEqual(entries(2));
  });

  test('is closed after the writes before are done', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await using other = await remote(temp.file);
    await other.lock('writing');
    const added = store.append('a', [entry(0)]);
    await new Promise((fire) => setTimeout(fire, 5));
    const closed = store.close();
    await other.unlock();
    await Promise.all([added, closed]);
    expect(await temp.open().read('a')).toEqual([entry(0)]);
  });

  test('cannot be opened while reading is locked, too', async () => {
    await using temp = tempStore();
    await using other = await remote(temp.file);
    await other.lock('all');
    expect(() => temp.open({ busyTimeoutMs: 20 })).toThrow(code('store-locked'));
    await other.kill();
    await temp.open().append('a', [entry(0)]);
  });
});

describe('a file that is not a store', () => {
  test.each([undefined, 7])('rejects %j as a path', (file) => {
    expect(() => sqliteStore(file as never)).toThrow('sqliteStore: pass the path of a file, or ":memory:".');
  });

  test.each([
    [
      'a text file',
      Buffer.from('# Notes\n\nThis is not a database, but it is someone\u2019s work.\n'.repeat(20)),
      'is not an SQLite database',
    ],
    ['a store without its header', Buffer.alloc(8_192), 'is not an SQLite database'],
  ])('rejects %s and does not change it', async (_, content, message) => {
    await using temp = tempStore();
    writeFileSync(temp.file, content);
    expect(() => temp.open()).toThrow(code('store-failed'));
    expect(() => temp.open()).toThrow(message);
    expect(readFileSync(temp.file).equals(content)).toBe(true);
  });

  test('rejects a folder', async () => {
    await using temp = tempStore();
    mkdirSync(temp.file);
    expect(() => temp.open()).toThrow('cannot be opened. Check that it is a file and not a folder');
    expect(() => temp.open()).toThrow(code('store-failed'));
    expect(() => sqliteStore('')).toThrow(code('store-failed'));
  });

  test('rejects the database of another program and does not change it', async () => {
    await using temp = tempStore();
    const other = temp.raw();
    other.exec('CREATE TABLE customers (name TEXT); PRAGMA user_version = 7');
    expect(() => temp.open()).toThrow(code('store-failed'));
    expect(() => temp.open()).toThrow('is a database of another program. Choose another path for the store.');
    expect(other.prepare('SELECT name FROM sqlite_schema').all()).toEqual([{ name: 'customers' }]);
  });

  test('reports a damaged store', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', entries(100));
    const raw = temp.raw();
    const roots = raw.prepare('SELECT rootpage AS page FROM sqlite_schema WHERE rootpage > 0').all();
    raw.close();
    await store.close();
    const bytes = readFileSync(temp.file);
    // The first page of each table and index, but not the schema.
    for (const { page } of roots) bytes.fill(0xa5, (Number(page) - 1) * 4_096, Number(page) * 4_096);
    writeFileSync(temp.file, bytes);
    const damaged = temp.open();
    await expect(damaged.list()).rejects.toEqual(code('store-failed'));
    await expect(damaged.append('b', [entry(0)])).rejects.toThrow('is damaged (database disk image is malformed)');
  });
});
