import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { PathFacts } from '@treadle/core/policy';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { asStored, inside, pathFacts, pathFactsIn, type FileSystem } from './path-facts.ts';

let base: string;

beforeAll(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-facts-')));
  mkdirSync(join(base, 'work/src/deep'), { recursive: true });
  mkdirSync(join(base, 'out/dir'), { recursive: true });
  mkdirSync(join(base, 'me'));
  writeFileSync(join(base, 'work/src/a.txt'), '');
  writeFileSync(join(base, 'work/caf\u00e9.txt'), '');
  symlinkSync('src/a.txt', join(base, 'work/good'));
  symlinkSync('../out/dir', join(base, 'work/led'));
  symlinkSync('good', join(base, 'work/twice'));
  symlinkSync(join(base, 'out/new.txt'), join(base, 'work/dangling'));
  symlinkSync('loop', join(base, 'work/loop'));
  symlinkSync('work', join(base, 'also'));
});

afterAll(() => rmSync(base, { recursive: true }));

function factsOf(path: string, folder = 'work'): PathFacts {
  const facts = pathFacts(path.replace('$', base), { folder: join(base, folder), home: join(base, 'me') });
  const short = (text: string): string => text.replace(base, '$');
  return { ...facts, path: short(facts.path), ...(facts.target !== undefined && { target: short(facts.target) }) };
}

test.each([
  ['src/a.txt', '$/work/src/a.txt', undefined],
  ['./src//./a.txt', '$/work/src/a.txt', undefined],
  ['src/deep/../a.txt', '$/work/src/a.txt', undefined],
  ['src/', '$/work/src', undefined],
  ['.', '$/work', undefined],
  ['..', '$', undefined],
  ['../../../../../../../../etc/passwd', '/etc/passwd', undefined],
  ['$/out/dir', '$/out/dir', undefined],
  ['~', '$/me', undefined],
  ['~/.ssh', '$/me/.ssh', undefined],
  ['./~/x', '$/work/~/x', undefined],
  ['a~', '$/work/a~', undefined],
  ['good', '$/work/good', '$/work/src/a.txt'],
  ['twice', '$/work/twice', '$/work/src/a.txt'],
  ['led', '$/work/led', '$/out/dir'],
  ['led/..', '$/work', '$/out'],
  ['led/../x', '$/work/x', '$/out/x'],
  ['dangling', '$/work/dangling', '$/out/new.txt'],
  ['missing/new.txt', '$/work/missing/new.txt', undefined],
  ['missing/../../out', '$/out', undefined],
  ['src/a.txt/x', '$/work/src/a.txt/x', undefined],
  ['led/new/file', '$/work/led/new/file', '$/out/dir/new/file'],
  ['cafe\u0301.txt', '$/work/caf\u00e9.txt', undefined],
  ['a\\..\\..\\b', '$/work/a\\..\\..\\b', undefined],
  ['%2e%2e/x', '$/work/%2e%2e/x', undefined],
  ['...', '$/work/...', undefined],
  ['/', '/', undefined],
])('%j leads to %s', (path, shown, target) => {
  expect(factsOf(path)).toEqual({ path: shown, ...(target !== undefined && { target }) });
});

test('agrees with the kernel on every path that exists', () => {
  mkdirSync(join(base, 'tree/a/b'), { recursive: true });
  writeFileSync(join(base, 'tree/a/file'), '');
  const links = {
    l: 'a',
    'a/up': '..',
    'a/b/top': '../..',
    'a/abs': join(base, 'tree'),
    'a/b/chain': '../up/l/b',
    self: '.',
  };
  for (const [name, target] of Object.entries(links)) symlinkSync(target, join(base, 'tree', name));
  const names = ['a', 'b', 'l', 'up', 'top', 'abs', 'chain', 'self', 'file', '..', '.', '', 'tree', 'none'];
  const folder = join(base, 'tree');
  const paths = fc
    .array(fc.constantFrom(...names), { minLength: 1, maxLength: 7 })
    .map((parts) => `./${parts.join('/')}`);
  let existing = 0;
  fc.assert(
    fc.property(paths, (path) => {
      let real: string;
      try {
        real = realpathSync.native(`${folder}/${path}`);
      } catch {
        return;
      }
      existing++;
      const { path: shown, target = shown } = pathFacts(path, { folder });
      expect(target).toBe(real);
    }),
    { numRuns: 3000 },
  );
  expect(existing).toBeGreaterThan(100);
});

test('paths below a folder that is reached by a link are spelled as the folder is given', () => {
  expect(factsOf('src/a.txt', 'also')).toEqual({ path: '$/also/src/a.txt' });
  expect(factsOf('$/work/src/a.txt', 'also')).toEqual({ path: '$/also/src/a.txt' });
  expect(factsOf('good', 'also')).toEqual({ path: '$/also/good', target: '$/also/src/a.txt' });
  expect(factsOf('../out', 'also')).toEqual({ path: '$/out' });
});

test.each([
  ['', /empty/],
  ['a\0b', /NUL/],
  ['\ud800', /not valid Unicode/],
  ['~root/x', /whose home folder/],
  ['loop', /too many symbolic links/],
  ['x'.repeat(5000), /longer than/],
  ['x'.repeat(300), /ENAMETOOLONG/],
])('%j is unclear', (path, unclear) => {
  expect(factsOf(path).unclear).toMatch(unclear);
});

test
  .runIf(process.platform === 'linux')
  .each([
    '/proc/self/root/etc/passwd',
    '/proc/self/cwd',
    '/proc/thread-self/cwd/x',
    `/proc/${process.pid}/root`,
    '/proc/self/fd/0',
    '/dev/fd/0',
    '/dev/stdin',
    '/proc/self/task/../root',
  ])('%s is unclear, because it is another place for each process', (path) => {
  expect(factsOf(path).unclear).toMatch(/another place for each process/);
});

describe('a file system that ignores case and Unicode forms', () => {
  const stored = ['/work', '/work/.git', '/work/.git/config', '/work/.env', '/work/caf\u00e9', '/etc'];
  const key = (path: string): string => path.normalize('NFC').toLowerCase();
  const files: FileSystem = {
    lstat(path) {
      const at = stored.findIndex((one) => key(one) === key(path));
      return at < 0 ? undefined : { dev: 1n, ino: BigInt(at), isSymbolicLink: () => false };
    },
    readlink: (path) => path,
    readdir: (folder) =>
      stored
        .filter((one) => key(one).replace(/\/[^/]*$/, '') === (folder === '/' ? '' : key(folder)))
        .map((one) => one.slice(one.lastIndexOf('/') + 1)),
  };
  test.each([
    ['.ENV', '/work/.ENV', '/work/.env'],
    ['.Git/Config', '/work/.Git/Config', '/work/.git/config'],
    ['.GIT/hooks/Post', '/work/.GIT/hooks/Post', '/work/.git/hooks/post'],
    ['CAFE\u0301', '/work/CAF\u00c9', '/work/caf\u00e9'],
    ['/ETC', '/ETC', '/etc'],
    ['.env', '/work/.env', undefined],
  ])('%s is judged as it is stored', (path, shown, target) => {
    expect(pathFactsIn(files, path, { folder: '/work' })).toEqual({
      path: shown,
      ...(target !== undefined && { target }),
    });
    expect(asStored(shown, files)).toBe(target ?? shown);
  });
});

test('inside compares whole names', () => {
  expect(inside('/project', '/project')).toBe(true);
  expect(inside('/project', '/project/a')).toBe(true);
  expect(inside('/project', '/project/..a')).toBe(true);
  expect(inside('/project', '/projecting')).toBe(false);
  expect(inside('/project', '/')).toBe(false);
  expect(inside('/', '/etc')).toBe(true);
});
