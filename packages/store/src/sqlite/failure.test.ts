import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { place } from '../../test/place.ts';
import { remote } from '../../test/remote.ts';
import { sqliteStore } from './store.ts';

// Starting processes takes a while on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

describe('a full disk', () => {
  test('rejects what does not fit, keeps what is there, and works again when there is room', async () => {
    await using at = place();
    const exec = vi.spyOn(DatabaseSync.prototype, 'exec');
    const store = at.open();
    const db = exec.mock.contexts[0] as DatabaseSync;
    exec.mockRestore();
    await store.append('a', entries(3));
    const { page_count } = db.prepare('PRAGMA page_count').get() as { page_count: number };
    db.exec(`PRAGMA max_page_count = ${page_count + 2}`);
    const lease = await store.acquire('b');
    const long = entry(3, 'x'.repeat(100_000));
    await expect(store.append('a', [long])).rejects.toEqual(code('store-full'));
    await expect(store.append('b', [entry(0), { ...long, seq: 1 }], lease)).rejects.toThrow(
      `The store ${at.file} cannot grow: the disk is full. Free some space and try again; all that was stored is there.`,
    );
    expect(await store.read('a')).toEqual(entries(3));
    expect(await store.read('b')).toEqual([]);
    db.exec('PRAGMA max_page_count = 100000');
    await store.append('a', [long]);
    await store.append('b', [entry(0)], lease);
    expect(await store.read('a')).toEqual([...entries(3), long]);
  });

  /** A namespace of its own, in which anybody may mount, and which ends with what runs in it. */
  const [namespace, ...flags] = ['unshare', '--user', '--map-root-user', '--mount'] as const;
  const canMount = spawnSync(namespace, [...flags, 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0;

  if (!canMount) process.stderr.write('\nLEFT OUT: a test needs unshare with mounts, which is not to be had here.\n');
  test.runIf(canMount || process.env['CI'] !== undefined)('that is real', async () => {
    await using at = place();
    const main = fileURLToPath(new URL('../../test/full-disk-main.ts', import.meta.url));
    const script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" --conditions=treadle-source "$3" "$1"';
    const args = [...flags, 'sh', '-c', script, 'sh', at.folder, process.execPath, main];
    const said = JSON.parse(execFileSync(namespace, args, { encoding: 'utf8' })) as { stored: number };
    const { stored } = said;
    expect(stored).toBeGreaterThan(5);
    expect(said).toEqual({
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

describe('a store that cannot be written', () => {
  /** Root may write everything, so as root the tests ask somebody else to. */
  const asUser = process.getuid?.() === 0 ? { uid: 65_534 } : {};

  test('can be read', async () => {
    await using at = place();
    await at.open().append('a', entries(3));
    chmodSync(at.file, 0o444);
    chmodSync(at.folder, 0o777);
    for (const name of readdirSync(at.folder)) chmodSync(path.join(at.folder, name), 0o444);
    await using reader = await remote(at.file, asUser);
    expect(await reader.list()).toBe(1);
    await expect(reader.acquire('a')).rejects.toEqual(code('store-read-only'));
    await expect(reader.append('a', [entry(3)])).rejects.toThrow(
      `The store ${at.file} cannot be written. Give this user the right to write the file and its folder, or choose another place.`,
    );
    expect(await reader.list()).toBe(1);
    expect(await at.open().read('a')).toEqual(entries(3));
  });

  test('and cannot even be read where SQLite may not put its files beside it, says so', async () => {
    await using at = place();
    const store = at.open();
    await store.append('a', entries(3));
    await store.close();
    chmodSync(at.file, 0o444);
    chmodSync(at.folder, 0o555);
    await expect(remote(at.file, asUser)).rejects.toEqual(code('store-read-only'));
  });

  test('cannot be made either', async () => {
    await using at = place();
    chmodSync(at.folder, 0o555);
    await expect(remote(at.file, asUser)).rejects.toEqual(code('store-read-only'));
    await expect(remote(path.join(at.folder, 'deeper', 'runs.db'), asUser)).rejects.toEqual(code('store-read-only'));
  });
});

describe('a store that another process has locked', () => {
  test('can be read, and written again when the lock is gone', async () => {
    await using at = place();
    const store = at.open({ busyTimeoutMs: 20 });
    await store.append('a', entries(2));
    await using other = await remote(at.file);
    await other.lock('writing');
    const settled = await Promise.allSettled([
      store.append('a', [entry(2)]),
      store.append('b', [entry(0)]),
      store.acquire('c'),
    ]);
    expect(settled.map((one) => one.status === 'rejected' && one.reason.code)).toEqual(Array(3).fill('store-locked'));
    await expect(store.append('a', [entry(2)])).rejects.toThrow(
      `The store ${at.file} is locked by another program. End what writes to it for so long, and try again.`,
    );
    expect(await store.read('a')).toEqual(entries(2));
    await other.unlock();
    await store.append('a', [entry(2)]);
    expect(await store.read('a')).toEqual(entries(3));
  });

  test('is waited for', async () => {
    await using at = place();
    const store = at.open();
    await using other = await remote(at.file);
    await other.lock('writing');
    const added = store.append('a', [entry(0)]);
    // Sent now, done by the other process while this one waits for the lock.
    await Promise.all([other.unlock(), added]);
    expect(await store.read('a')).toEqual([entry(0)]);
  });

  test('as a whole cannot be opened', async () => {
    await using at = place();
    await using other = await remote(at.file);
    await other.lock('all');
    expect(() => at.open({ busyTimeoutMs: 20 })).toThrow(code('store-locked'));
    await other.kill();
    await at.open().append('a', [entry(0)]);
  });
});

describe('what is no store', () => {
  test.each([
    [
      'another file',
      Buffer.from('# Notes\n\nThis is not a database, but it is someone\u2019s work.\n'.repeat(20)),
      'is not an SQLite database',
    ],
    ['a store whose beginning is gone', Buffer.alloc(8_192), 'is not an SQLite database'],
  ])('%s is refused and left as it is', async (_, content, words) => {
    await using at = place();
    writeFileSync(at.file, content);
    expect(() => at.open()).toThrow(code('store-failed'));
    expect(() => at.open()).toThrow(words);
    expect(readFileSync(at.file).equals(content)).toBe(true);
  });

  test('a folder is refused', async () => {
    await using at = place();
    mkdirSync(at.file);
    expect(() => at.open()).toThrow(code('store-failed'));
    expect(() => sqliteStore('')).toThrow(code('store-failed'));
  });

  test('the database of another program is refused and left as it is', async () => {
    await using at = place();
    const other = at.raw();
    other.exec('CREATE TABLE customers (name TEXT); PRAGMA user_version = 7');
    expect(() => at.open()).toThrow(code('store-failed'));
    expect(() => at.open()).toThrow('is a database of another program. Choose another place for the store.');
    expect(other.prepare('SELECT name FROM sqlite_schema').all()).toEqual([{ name: 'customers' }]);
  });

  test('a store that is damaged says so', async () => {
    await using at = place();
    const store = at.open();
    await store.append('a', entries(100));
    await store.close();
    const bytes = readFileSync(at.file);
    // All but the first page.
    bytes.fill(0xa5, 4_096);
    writeFileSync(at.file, bytes);
    const damaged = at.open();
    await expect(damaged.list()).rejects.toEqual(code('store-failed'));
    await expect(damaged.append('b', [entry(0)])).rejects.toThrow('is damaged (database disk image is malformed)');
  });
});
