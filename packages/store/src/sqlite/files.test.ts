import fs, {
  copyFileSync,
  existsSync,
  fstatSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { runLoop, tool, type TreadleError } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { response } from '../../test/responses.ts';
import { tempStore, type TempStore } from '../../test/temp-store.ts';
import { backupStore, restoreStore, type Restored } from './backup.ts';
import { checkStore } from './check.ts';
import { openDatabase } from './database.ts';
import { openStore } from '../open.ts';
import { sqliteStore, storeOn, thisMachine, type SqliteStore } from './store.ts';
import { openWal, SYSTEM } from './wal.ts';

/** Opens the store at a path below the folder of the test. */
function openAt(temp: TempStore, file: string): SqliteStore {
  return temp.adopt(sqliteStore(path.join(temp.folder, file)));
}

const named = (folder: string, part: string): readonly string[] =>
  readdirSync(folder).filter((name) => name.includes(part));

describe('a store behind a symbolic link', () => {
  test.each([
    ['to the file', 'link.db', (temp: TempStore) => symlinkSync('data/runs.db', path.join(temp.folder, 'link.db'))],
    ['to its folder', 'link/runs.db', (temp: TempStore) => symlinkSync('data', path.join(temp.folder, 'link'))],
    [
      'to a link in a linked folder',
      'link/second.db',
      ({ folder }: TempStore) => {
        symlinkSync('data', path.join(folder, 'link'));
        symlinkSync('../data/runs.db', path.join(folder, 'data', 'second.db'));
      },
    ],
  ])('%s is synced and shared with those who open the file itself', async (_, link, create) => {
    await using temp = tempStore();
    const data = path.join(temp.folder, 'data');
    mkdirSync(data);
    create(temp);
    // Two times: the first one creates the file.
    for (const seq of [0, 2]) {
      const behind = openAt(temp, link);
      await behind.append('a', [entry(seq)]);
      const direct = openAt(temp, 'data/runs.db');
      await direct.append('a', [entry(seq + 1)]);
      expect(await behind.read('a')).toEqual(entries(seq + 2));
      expect(existsSync(path.join(data, 'runs.db-wal'))).toBe(true);
      await Promise.all([behind.close(), direct.close()]);
    }
    expect(named(temp.folder, '-wal')).toEqual([]);
  });

  test('syncs its own log, and not a file that lies beside the link', async () => {
    await using temp = tempStore();
    const link = path.join(temp.folder, 'link.db');
    symlinkSync('runs.db', link);
    writeFileSync(`${link}-wal`, 'of another program');
    const synced: bigint[] = [];
    const syncFile = async (descriptor: number): Promise<void> => {
      synced.push(fstatSync(descriptor, { bigint: true }).ino);
    };
    const db = openDatabase(link, 5_000);
    const store = temp.adopt(storeOn(db, { ...thisMachine(link), ...openWal(db, link, { ...SYSTEM, syncFile }) }));
    await store.append('a', [entry(0)]);
    expect(synced).toEqual([statSync(`${temp.file}-wal`, { bigint: true }).ino]);
    expect(readFileSync(`${link}-wal`, 'utf8')).toBe('of another program');
  });

  test('stays open if the link is changed, and its checkpoints go to the same file', async () => {
    await using temp = tempStore();
    const link = path.join(temp.folder, 'link.db');
    symlinkSync('runs.db', link);
    const store = openAt(temp, 'link.db');
    await store.append('a', [entry(0)]);
    unlinkSync(link);
    symlinkSync('other.db', link);
    for (let seq = 1; seq < 300; seq++) await store.append('a', [entry(seq)], undefined, 'written');
    await store.append('a', [entry(300)]);
    const other = openAt(temp, 'link.db');
    expect(await other.read('a')).toEqual([]);
    await other.close();
    await store.close();
    expect(await temp.open().read('a')).toHaveLength(301);
  });

  test('is backed up, checked and restored; the link stays', async () => {
    await using temp = tempStore();
    const at = (name: string): string => path.join(temp.folder, name);
    mkdirSync(at('data'));
    symlinkSync('data/runs.db', at('link.db'));
    symlinkSync('data/backup.db', at('backup.db'));
    const store = openAt(temp, 'link.db');
    await store.append('a', entries(1));
    expect(await backupStore(at('link.db'), at('backup.db'))).toMatchObject({ entries: 1 });
    await store.append('a', [entry(1)]);
    await backupStore(at('link.db'), at('backup.db'), { force: true });
    await store.append('a', [entry(2)]);
    await store.close();
    // These entries are not those of a run, which the check reports.
    const restore = (): Promise<Restored> => restoreStore(at('link.db'), at('backup.db'), { force: true });
    const { replaced } = await restore();
    expect(path.dirname(replaced!)).toBe(at('data'));
    expect(await checkStore(at('link.db'))).toMatchObject({ entries: 2 });
    // The store is lost, and the link is still there.
    rmSync(at('data/runs.db'));
    writeFileSync(at('data/runs.db-wal'), 'what was left');
    await expect(restore()).rejects.toThrow('runs.db-wal belongs to another database');
    rmSync(at('data/runs.db-wal'));
    await restore();
    for (const link of ['link.db', 'backup.db']) expect(lstatSync(at(link)).isSymbolicLink()).toBe(true);
    const restored = openAt(temp, 'data/runs.db');
    expect(await restored.read('a')).toEqual(entries(2));
  });
});

test('the folders of a new store are synced with it, each in the one above', async () => {
  await using temp = tempStore();
  const synced: string[] = [];
  const { fsync, fsyncSync } = fs;
  const note = (descriptor: number): void =>
    void synced.push(path.resolve(readlinkSync(`/proc/self/fd/${descriptor}`)));
  fs.fsync = ((descriptor, done) => (note(descriptor), fsync(descriptor, done))) as typeof fsync;
  fs.fsyncSync = (descriptor) => (note(descriptor), fsyncSync(descriptor));
  syncBuiltinESMExports();
  try {
    await openAt(temp, 'one/two/runs.db').append('a', [entry(0)]);
  } finally {
    Object.assign(fs, { fsync, fsyncSync });
    syncBuiltinESMExports();
  }
  const folder = realpathSync(temp.folder);
  expect(synced).toEqual([folder, path.join(folder, 'one'), path.join(folder, 'one', 'two')]);
});

test('a relative path stays the same file if the process changes its folder', async () => {
  await using temp = tempStore();
  const store = temp.adopt(sqliteStore(path.relative(process.cwd(), temp.file)));
  const before = process.cwd();
  try {
    process.chdir(temp.folder);
    await store.append('a', [entry(0)]);
  } finally {
    process.chdir(before);
  }
  expect(await temp.open().read('a')).toEqual(entries(1));
});

test('a file: URL is rejected with the function that converts it', async () => {
  await using temp = tempStore();
  const { href } = pathToFileURL(temp.file);
  const error = { code: 'invalid-options', message: expect.stringContaining('fileURLToPath') as string };
  expect(() => sqliteStore(href)).toThrow(expect.objectContaining(error));
  await expect(openStore(`sqlite:${href}`)).rejects.toMatchObject(error);
  expect(readdirSync(temp.folder)).toEqual([]);
});

test('a store with a second hard link is rejected, because SQLite keeps a log for each name', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0)]);
  const second = path.join(temp.folder, 'second.db');
  linkSync(temp.file, second);
  const rejected = { code: 'store-failed', message: expect.stringContaining('has 2 names (hard links)') as string };
  expect(() => sqliteStore(second)).toThrow(expect.objectContaining(rejected));
  const backup = path.join(temp.folder, 'backup.db');
  await expect(backupStore(second, backup)).rejects.toMatchObject(rejected);
  // The one that is open continues: nobody has opened the other name.
  await store.append('a', [entry(1)]);
  rmSync(second);
  // What a restore leaves behind that was killed just after it had given the store its name.
  linkSync(temp.file, `${temp.file}.restore.partial-0a1b2c3d`);
  expect(await temp.open().read('a')).toEqual(entries(2));
  linkSync(temp.file, second);
  expect(() => temp.open()).toThrow(expect.objectContaining(rejected));
  rmSync(second);
  // A backup has no log.
  await backupStore(temp.file, backup);
  linkSync(backup, second);
  expect(await checkStore(second)).toMatchObject({ entries: 2 });
});

describe('a store whose files change while it is open', () => {
  const files = ['runs.db', 'runs.db-wal', 'runs.db-shm'];
  const all = (act: (file: string) => void) => (folder: string) =>
    files.forEach((name) => act(path.join(folder, name)));
  const replaceBy = (file: string): void => {
    copyFileSync(file, `${file}.new`);
    renameSync(`${file}.new`, file);
  };

  const changes: readonly (readonly [string, (folder: string) => void])[] = [
    ['all removed', all((file) => rmSync(file))],
    ['all moved away', all((file) => renameSync(file, `${file}.old`))],
    ['all replaced by copies', all(replaceBy)],
    ...files.map((name) => [`${name} removed`, (folder: string) => rmSync(path.join(folder, name))] as const),
    ['the folder moved away', (folder) => renameSync(folder, `${folder}.old`)],
  ];

  test.each(changes)('stops with an error that says what to do: %s', async (_, change) => {
    await using temp = tempStore();
    const folder = path.join(temp.folder, 'data');
    const store = openAt(temp, 'data/runs.db');
    await store.append('a', [entry(0)]);
    change(folder);
    const gone = {
      code: 'store-failed',
      message: expect.stringMatching(
        /^The file .*runs\.db(-wal|-shm)? was removed, moved or replaced while the store .*runs\.db was open, so nothing is stored any more\. Stop all processes that use the store, put its files back or restore a backup, and start them again\.$/,
      ) as string,
    };
    // It is noticed before the first append is acknowledged. From then on nothing is written.
    await expect(store.append('a', [entry(1)])).rejects.toMatchObject(gone);
    await expect(store.append('a', [entry(2)])).rejects.toMatchObject(gone);
    await expect(store.append('a', [entry(2)], undefined, 'written')).rejects.toMatchObject(gone);
    await expect(store.acquire('a')).rejects.toMatchObject(gone);
    await expect(store.requests.create(response('r'))).rejects.toMatchObject(gone);
    expect(await store.read('a')).toEqual(entries(2));
    await store.close();
  });

  test('is noticed in the background if nobody waits for a sync', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [entry(0)]);
    all((file) => rmSync(file))(temp.folder);
    let seq = 1;
    const write = async (): Promise<void> => store.append('a', [entry(seq++)], undefined, 'written');
    const outcome = (): Promise<unknown> => write().catch((error: TreadleError) => error.code);
    await expect.poll(outcome, { interval: 5, timeout: 30_000 }).toBe('store-failed');
  });

  test('is noticed by readers, although nothing is written', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [entry(0)]);
    await store.durable();
    all((file) => rmSync(file))(temp.folder);
    const told = async (): Promise<void> => {
      expect(await store.read('a')).toEqual([entry(0)]);
      await store.durable();
    };
    const outcome = (): Promise<unknown> => told().catch((error: TreadleError) => error.code);
    await expect.poll(outcome, { interval: 5, timeout: 30_000 }).toBe('store-failed');
    expect(await outcome()).toBe('store-failed');
  });

  test('stops a run before its next call that is not pure', async () => {
    await using temp = tempStore();
    const store = temp.open();
    const ran: string[] = [];
    const pay = tool({ name: 'pay', description: 'Pay', effect: 'once', execute: () => `paid ${ran.push('pay')}` });
    const model = scriptedModel([
      () => {
        all((file) => rmSync(file))(temp.folder);
        return { calls: [{ name: 'pay' }] };
      },
    ]);
    await expect(runLoop({ model, tools: [pay], journal: store, runId: 'a', input: 'Pay' })).rejects.toMatchObject({
      code: 'store-failed',
    });
    expect(ran).toEqual([]);
  });

  test('does not write to the store that took its place', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', [entry(0)]);
    const backup = path.join(temp.folder, 'backup.db');
    await backupStore(temp.file, backup);
    await store.append('a', [entry(1)]);
    all((file) => rmSync(file))(temp.folder);
    await restoreStore(temp.file, backup, { force: true });
    const next = temp.open();
    const restored = readFileSync(temp.file);
    await expect(store.append('a', [entry(2)])).rejects.toMatchObject({ code: 'store-failed' });
    await store.close();
    expect(readFileSync(temp.file)).toEqual(restored);
    await next.append('a', [entry(1, 'again')]);
    expect(await next.read('a')).toEqual([entry(0), entry(1, 'again')]);
  });
});
