import { mkdirSync, mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { folderCache } from './folder-cache.ts';
import { scanFolder, type FolderFacts } from './visible.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'treadle-folders-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A minute later every change has settled. */
const later = (): number => Date.now() + 60_000;

/** The names in the folder, and how often it was read. */
function reader(now = later): () => Promise<readonly [names: string, reads: number]> {
  const cache = folderCache<string>(now);
  let reads = 0;
  return async () => {
    const names = await cache(folder, (entries) => {
      reads++;
      return entries?.map(({ name }) => name).join() ?? 'closed';
    });
    return [names, reads];
  };
}

test('a folder that has not changed is read once', async () => {
  const read = reader();
  writeFileSync(join(folder, 'a'), '');
  expect([await read(), await read()]).toEqual([
    ['a', 1],
    ['a', 1],
  ]);
});

test('a new, renamed or removed entry is seen, also if the time of the folder is set back', async () => {
  const read = reader();
  utimesSync(folder, 1, 1);
  await read();
  writeFileSync(join(folder, 'a'), '');
  utimesSync(folder, 1, 1);
  expect(await read()).toEqual(['a', 2]);
  renameSync(join(folder, 'a'), join(folder, 'b'));
  expect(await read()).toEqual(['b', 3]);
  rmSync(join(folder, 'b'));
  expect(await read()).toEqual(['', 4]);
});

test('another folder at the same place is read', async () => {
  const read = reader();
  await read();
  renameSync(folder, `${folder}-old`);
  mkdirSync(folder);
  rmSync(`${folder}-old`, { recursive: true });
  expect(await read()).toEqual(['', 2]);
});

test('a folder that has just changed is read again', async () => {
  const read = reader(Date.now);
  await read();
  expect(await read()).toEqual(['', 2]);
});

test('a folder that is gone has no entries, and is looked for again', async () => {
  const read = reader();
  rmSync(folder, { recursive: true });
  await read();
  expect(await read()).toEqual(['', 2]);
  mkdirSync(folder);
  writeFileSync(join(folder, 'a'), '');
  expect(await read()).toEqual(['a', 3]);
});

test('a scan finds a private file that was made after the scan before', async () => {
  const cache = folderCache<FolderFacts>(later);
  const options = { folder, rules: {}, expose: [], protect: [], hide: [] };
  mkdirSync(join(folder, 'deep', 'er'), { recursive: true });
  expect((await scanFolder(options, cache)).masked).toEqual([]);
  const path = join(folder, 'deep', 'er', '.env');
  writeFileSync(path, '');
  expect((await scanFolder(options, cache)).masked).toEqual([{ path, type: 'file' }]);
});
