import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { guardedFiles } from '../paths/guarded-files.ts';
import { workspace, type Workspace } from './workspace.ts';

let base: string;
let space: Workspace;

beforeAll(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), 'treadle-space-')));
  await mkdir(join(base, 'work/src'), { recursive: true });
  await mkdir(join(base, 'work-besides'));
  await writeFile(join(base, 'work/src/a.txt'), 'a');
  await writeFile(join(base, 'work/..dots'), 'dots');
  await writeFile(join(base, 'secret.txt'), 'secret');
  await writeFile(join(base, 'work-besides/b.txt'), 'b');
  await symlink('src/a.txt', join(base, 'work/good-link'));
  await symlink('../secret.txt', join(base, 'work/file-link'));
  await symlink('..', join(base, 'work/folder-link'));
  await symlink('/etc', join(base, 'work/etc-link'));
  await symlink('file-link', join(base, 'work/link-to-link'));
  await symlink('loop', join(base, 'work/loop'));
  await symlink('nowhere', join(base, 'work/dangling'));
  await symlink(join(base, 'work'), join(base, 'also-work'));
  space = workspace(guardedFiles({ folder: join(base, 'work') }));
});

afterAll(() => rm(base, { recursive: true }));

describe('accepts paths inside the folder', () => {
  test.each([
    ['src/a.txt', 'src/a.txt', 'file'],
    ['./src/../src/a.txt', 'src/a.txt', 'file'],
    ['.', '.', 'folder'],
    ['src', 'src', 'folder'],
    ['src/', 'src', 'folder'],
    ['good-link', 'src/a.txt', 'file'],
    ['..dots', '..dots', 'file'],
  ])('%s', async (path, shown, kind) => {
    expect(await space.locate(path)).toMatchObject({ shown, kind, real: join(base, 'work', shown) });
  });

  test('absolute paths', async () => {
    expect(await space.locate(join(base, 'work/src/a.txt'))).toMatchObject({ shown: 'src/a.txt' });
  });

  test('both names of a folder that is reached through a link', async () => {
    const linked = workspace(guardedFiles({ folder: join(base, 'also-work') }));
    expect(await linked.locate('src/a.txt')).toMatchObject({ shown: 'src/a.txt' });
    expect(await linked.locate(join(base, 'also-work/src/a.txt'))).toMatchObject({ shown: 'src/a.txt' });
    expect(await linked.locate(join(base, 'work/src/a.txt'))).toMatchObject({ shown: 'src/a.txt' });
  });
});

describe('rejects paths outside the folder', () => {
  test.each([
    '../secret.txt',
    '..',
    'src/../../secret.txt',
    '../work-besides/b.txt',
    '/etc/passwd',
    '/',
    'file-link',
    'link-to-link',
    'folder-link',
    'folder-link/secret.txt',
    'folder-link/work/src/../../secret.txt',
    'etc-link/passwd',
  ])('%s', async (path) => {
    await expect(space.locate(path)).rejects.toThrow(/is outside the working folder\. Only files inside/);
  });

  test('with the same error whether they exist or not', async () => {
    await expect(space.locate('../nothing-here')).rejects.toThrow(/is outside/);
    await expect(space.locate('/nothing/here')).rejects.toThrow(/is outside/);
  });
});

test.each([
  ['', /path is empty/],
  ['a\0b', /NUL byte/],
  ['/etc/passwd\0.txt', /NUL byte/],
  ['missing.txt', /There is no "missing.txt".*Use glob/],
  ['src/a.txt/b', /There is no/],
  ['dangling', /There is no/],
  ['loop', /symbolic link to itself/],
  ['x'.repeat(5000), /longer than/],
  ['x'.repeat(300), /longer than/],
])('rejects the path %j', async (path, message) => {
  await expect(space.locate(path)).rejects.toThrow(message);
});
