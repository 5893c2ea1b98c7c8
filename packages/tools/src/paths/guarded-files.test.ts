import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  closeSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { DeniedError } from '../denied.ts';
import type { FileOps } from '../ops.ts';
import { guardedFilesWith, holdByComparison, holdByHandle, type PathCheck } from './guarded-files.ts';

let base: string;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-guard-')));
  mkdirSync(join(base, 'work/src'), { recursive: true });
  mkdirSync(join(base, 'out'));
  writeFileSync(join(base, 'work/src/a.txt'), 'a');
  writeFileSync(join(base, 'out/secret.txt'), 'secret');
  symlinkSync('src/a.txt', join(base, 'work/good'));
  symlinkSync('../out', join(base, 'work/out-folder'));
  symlinkSync('../out/secret.txt', join(base, 'work/out-file'));
  symlinkSync('../out/new.txt', join(base, 'work/out-new'));
  symlinkSync('src/new.txt', join(base, 'work/in-new'));
});

afterEach(() => rmSync(base, { recursive: true }));

/** Both ways of holding a file. That of Linux is left out elsewhere. */
const WAYS = [
  ['by an open handle', holdByHandle],
  ['by comparison', holdByComparison],
] as const;

describe.each(WAYS.slice(process.platform === 'linux' ? 0 : 1))('guarded files, held %s', (_, hold) => {
  const guard = (check?: PathCheck): FileOps =>
    guardedFilesWith(hold, { folder: join(base, 'work'), home: join(base, 'out'), ...(check && { check }) });

  async function read(files: FileOps, path: string): Promise<string> {
    const { handle } = await files.open(path);
    try {
      const buffer = Buffer.alloc(1_000);
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, null);
      return buffer.toString('utf8', 0, bytesRead);
    } finally {
      await handle.close();
    }
  }

  const outsideNow = (): string[] =>
    (readdirSync(join(base, 'out')) as string[]).map(
      (name) => `${name}=${readFileSync(join(base, 'out', name), 'utf8')}`,
    );

  test('reads, lists and describes what is inside', async () => {
    const files = guard();
    expect(await read(files, 'src/a.txt')).toBe('a');
    expect(await read(files, 'good')).toBe('a');
    expect(await read(files, join(base, 'work/src/../src/a.txt'))).toBe('a');
    expect(await files.stat('good')).toMatchObject({ path: join(base, 'work/src/a.txt'), type: 'file', size: 1 });
    expect(await files.stat('.')).toMatchObject({ path: join(base, 'work'), type: 'folder' });
    expect((await files.list('.')).toSorted((a, b) => (a.name < b.name ? -1 : 1))).toEqual([
      { name: 'good', type: 'link' },
      { name: 'in-new', type: 'link' },
      { name: 'out-file', type: 'link' },
      { name: 'out-folder', type: 'link' },
      { name: 'out-new', type: 'link' },
      { name: 'src', type: 'folder' },
    ]);
  });

  test.each([
    'out-file',
    'out-folder/secret.txt',
    '../out/secret.txt',
    '~/secret.txt',
    'out-folder/../work/../out/secret.txt',
  ])('denies every use of %s', async (path) => {
    const files = guard();
    await expect(files.open(path)).rejects.toThrow(DeniedError);
    await expect(files.stat(path)).rejects.toThrow(/is outside/);
    await expect(files.list(path)).rejects.toThrow(DeniedError);
    await expect(files.write(path, 'x')).rejects.toThrow(DeniedError);
    await expect(files.rename('src/a.txt', `${path}/../new.txt`)).rejects.toThrow(/is outside|ENOTDIR/);
    if (path !== 'out-file') await expect(files.remove(path)).rejects.toThrow(DeniedError);
    expect(outsideNow()).toEqual(['secret.txt=secret']);
  });

  test('does not tell what exists outside', async () => {
    const files = guard();
    for (const path of ['../none', '../none/deep', 'out-folder/none', 'out-new', '~/none']) {
      await expect(files.open(path), path).rejects.toThrow(DeniedError);
      await expect(files.write(path, 'x'), path).rejects.toThrow(DeniedError);
    }
    await expect(files.open('none')).rejects.toMatchObject({ code: 'ENOENT' });
    // The kernel complains about the name only if the folder exists.
    mkdirSync(join(base, 'out/deep'));
    for (const path of ['out-folder/none', 'out-folder/deep']) {
      const tooLong = `${path}/${'x'.repeat(300)}`;
      await expect(files.stat(tooLong), path).rejects.toThrow(DeniedError);
      await expect(files.write(tooLong, 'x'), path).rejects.toThrow(DeniedError);
      await expect(files.remove(tooLong), path).rejects.toThrow(DeniedError);
      await expect(files.rename('src/a.txt', tooLong), path).rejects.toThrow(DeniedError);
    }
    rmSync(join(base, 'out/deep'), { recursive: true });
    expect(outsideNow()).toEqual(['secret.txt=secret']);
  });

  test.each(['', 'a\0b', '~nobody/x', 'x'.repeat(5000)])('denies %j', async (path) => {
    await expect(guard().open(path)).rejects.toThrow(/cannot be used/);
    await expect(guard().write(path, '')).rejects.toThrow(/cannot be used/);
  });

  test('replaces files and leaves nothing behind', async () => {
    const files = guard();
    chmodSync(join(base, 'work/src/a.txt'), 0o640);
    await files.write('good', 'through a link');
    expect(readFileSync(join(base, 'work/src/a.txt'), 'utf8')).toBe('through a link');
    expect(statSync(join(base, 'work/src/a.txt')).mode & 0o777).toBe(0o640);
    expect(lstatSync(join(base, 'work/good')).isSymbolicLink()).toBe(true);
    await files.write('new/folders/b.txt', Buffer.from('b'));
    expect(await read(files, 'new/folders/b.txt')).toBe('b');
    expect(readdirSync(join(base, 'work/src'))).toEqual(['a.txt']);
    expect(readdirSync(join(base, 'work/new/folders'))).toEqual(['b.txt']);
  });

  test.skipIf(process.getuid?.() !== 0)('a file that root replaces keeps its owner', async () => {
    chownSync(join(base, 'work/src/a.txt'), 1234, 5678);
    await guard().write('src/a.txt', 'new');
    expect(statSync(join(base, 'work/src/a.txt'))).toMatchObject({ uid: 1234, gid: 5678 });
  });

  test('creates a file only if there is none', async () => {
    const files = guard();
    await expect(files.write('src/a.txt', 'x', { create: true })).rejects.toMatchObject({ code: 'EEXIST' });
    await files.write('src/b.txt', 'b', { create: true });
    expect(await read(files, 'src/b.txt')).toBe('b');
    expect(readdirSync(join(base, 'work/src')).toSorted()).toEqual(['a.txt', 'b.txt']);
  });

  test('replaces and removes a file only if it has not changed, if it is told so', async () => {
    const files = guard();
    const { stamp } = await files.stat('src/a.txt');
    const [first, second] = await Promise.allSettled([
      files.write('src/a.txt', 'one', { stamp }),
      files.write('src/a.txt', 'two', { stamp }),
    ]);
    expect([first.status, second.status].toSorted()).toEqual(['fulfilled', 'rejected']);
    const written = first.status === 'fulfilled' ? 'one' : 'two';
    expect(await read(files, 'src/a.txt')).toBe(written);
    await expect(files.remove('src/a.txt', { stamp })).rejects.toMatchObject({ code: 'ESTALE' });
    await files.remove('src/a.txt', { stamp: (await files.stat('src/a.txt')).stamp });
    await expect(files.write('src/a.txt', 'x', { stamp })).rejects.toMatchObject({ code: 'ESTALE' });
    expect(readdirSync(join(base, 'work/src'))).toEqual([]);
  });

  test('refuses places that no file can have', async () => {
    const files = guard();
    await expect(files.write('src', 'x')).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(files.write('src/a.txt/x', 'x')).rejects.toMatchObject({ code: 'ENOTDIR' });
    await expect(files.write('none/', 'x')).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(files.write('none/../x', 'x')).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(files.write('in-new', 'x')).rejects.toThrow(/symbolic link to a file that does not exist/);
    await expect(files.open('src')).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(files.list('src/a.txt')).rejects.toMatchObject({ code: 'ENOTDIR' });
    await expect(files.remove('src/..')).rejects.toMatchObject({ code: 'EINVAL' });
    expect(readdirSync(join(base, 'work')).toSorted()).toEqual([
      'good',
      'in-new',
      'out-file',
      'out-folder',
      'out-new',
      'src',
    ]);
  });

  test('removes and renames names, not what they lead to', async () => {
    const files = guard();
    await files.remove('out-file');
    await files.rename('good', 'src/renamed');
    await files.rename('src/a.txt', 'src/b.txt');
    expect(readdirSync(join(base, 'work/src')).toSorted()).toEqual(['b.txt', 'renamed']);
    await expect(files.rename('src/b.txt', 'out-folder/b.txt')).rejects.toThrow(DeniedError);
    await expect(files.rename('out-folder/secret.txt', 'mine.txt')).rejects.toThrow(DeniedError);
    await expect(files.rename(join(base, 'work'), join(base, 'work/x'))).rejects.toThrow(DeniedError);
    expect(outsideNow()).toEqual(['secret.txt=secret']);
  });

  test('asks the check about the path and the place, for each use', async () => {
    const asked: unknown[] = [];
    const files = guard((facts, use) => {
      asked.push([use, facts]);
      return use === 'write' ? 'read only' : undefined;
    });
    await read(files, 'out-file');
    await expect(files.write('good', 'x')).rejects.toThrow('read only');
    await expect(files.rename('good', 'x')).rejects.toThrow('read only');
    expect(asked).toEqual([
      ['read', { path: join(base, 'work/out-file'), target: join(base, 'out/secret.txt') }],
      ['write', { path: join(base, 'work/good'), target: join(base, 'work/src/a.txt') }],
      ['read', { path: join(base, 'work/good') }],
      ['write', { path: join(base, 'work/good') }],
    ]);
  });

  test.skipIf(process.platform === 'win32')('does not open pipes and devices', async () => {
    execFileSync('/usr/bin/env', ['mkfifo', join(base, 'work/pipe')]);
    const files = guard();
    expect(await files.stat('pipe')).toMatchObject({ type: 'other' });
    await expect(files.open('pipe')).rejects.toMatchObject({ code: 'ENXIO' });
    await expect(files.write('pipe', 'x')).rejects.toMatchObject({ code: 'ENXIO' });
    await expect(guard(() => undefined).open('/dev/zero')).rejects.toMatchObject({ code: 'ENXIO' });
  });

  test('does not change what is in a folder that is moved away during the check', async () => {
    // The number of the check during which the folder is moved: the last one before the change.
    const changes: readonly [check: number, (files: FileOps) => Promise<void>][] = [
      [2, (files) => files.write('src/b.txt', 'x')],
      [1, (files) => files.write('src/a.txt', 'x')],
      [1, (files) => files.remove('src/a.txt')],
      [3, (files) => files.rename('src/a.txt', 'mine.txt')],
      [3, (files) => files.rename('good', 'src/mine')],
    ];
    for (const [last, change] of changes) {
      let checks = 0;
      const files = guard(() => {
        if (++checks === last) renameSync(join(base, 'work/src'), join(base, 'out/src'));
        return undefined;
      });
      await expect(change(files)).rejects.toThrow(/was replaced|ENOENT/);
      expect(readdirSync(join(base, 'out/src'))).toEqual(['a.txt']);
      expect(readFileSync(join(base, 'out/src/a.txt'), 'utf8')).toBe('a');
      renameSync(join(base, 'out/src'), join(base, 'work/src'));
    }
  });

  test.skipIf(process.platform !== 'linux')('does not use a removed name of a file that has another', async () => {
    writeFileSync(join(base, 'work/src/b (deleted)'), 'b');
    expect(await read(guard(), 'src/b (deleted)')).toBe('b');
    linkSync(join(base, 'work/src/a.txt'), join(base, 'work/src/other.txt'));
    const fd = openSync(join(base, 'work/src/a.txt'), 'r');
    try {
      unlinkSync(join(base, 'work/src/a.txt'));
      const files = guard(() => undefined);
      await expect(files.open(`/proc/self/fd/${fd}`)).rejects.toMatchObject({ code: 'ENOENT' });
      await expect(files.write(`/proc/self/fd/${fd}`, 'x')).rejects.toThrow(/ENOENT|EACCES|ENOTDIR|symbolic link/);
    } finally {
      closeSync(fd);
    }
    expect(readdirSync(join(base, 'work/src')).toSorted()).toEqual(['b (deleted)', 'other.txt']);
  });

  test.skipIf(process.platform !== 'linux')(
    'closes what it opened after 10,000 errors',
    { timeout: 60_000 },
    async () => {
      const files = guard();
      const opened = (): number => readdirSync('/proc/self/fd').length;
      await files.open('out-file').catch(() => {});
      const before = opened();
      const ignore = (): void => {};
      for (let i = 0; i < 2000; i++) {
        await files.open(i % 2 ? 'src' : 'out-file').catch(ignore);
        await files.list('src/a.txt').catch(ignore);
        await files.write(i % 2 ? 'src/a.txt/x' : 'in-new', 'x').catch(ignore);
        await files.rename('src/a.txt', i % 2 ? 'out-folder/x' : 'src/a.txt/x').catch(ignore);
        await files.remove(i % 2 ? 'src' : 'out-folder/x').catch(ignore);
      }
      // Other parts of the process open a few files.
      expect(opened() - before).toBeLessThan(100);
    },
  );

  test('a write does not change other hard links', async () => {
    linkSync(join(base, 'out/secret.txt'), join(base, 'work/hard'));
    await guard().write('hard', 'x');
    expect(outsideNow()).toEqual(['secret.txt=secret']);
  });
});
