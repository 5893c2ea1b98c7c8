import { execFileSync } from 'node:child_process';
import {
  chownSync,
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { DeniedError } from '../denied.ts';
import type { FileOps } from '../ops.ts';
import { fileContract, filesPlace, readWhole } from '../testing/ops-contract.ts';
import { guardedFilesWith, holdByComparison, holdByHandle, type PathCheck } from './guarded-files.ts';

const place = filesPlace({ beforeEach, afterEach });
const { outsideNow } = place;

/** Both ways of holding a file. That of Linux is left out elsewhere. */
const WAYS = [
  ['by an open handle', holdByHandle],
  ['by comparison', holdByComparison],
] as const;

describe.each(WAYS.slice(process.platform === 'linux' ? 0 : 1))('guarded files, held %s', (_, hold) => {
  const guard = (check?: PathCheck): FileOps =>
    guardedFilesWith(hold, {
      folder: join(place.base(), 'work'),
      home: join(place.base(), 'out'),
      ...(check && { check }),
    });

  fileContract({ test }, place, () => guard());

  test('does not tell what exists outside', async () => {
    const files = guard();
    for (const path of ['../none', '../none/deep', 'out-folder/none', 'out-new', '~/none']) {
      await expect(files.open(path), path).rejects.toThrow(DeniedError);
      await expect(files.write(path, 'x'), path).rejects.toThrow(DeniedError);
    }
    await expect(files.open('none')).rejects.toMatchObject({ code: 'ENOENT' });
    // The kernel complains about the name only if the folder exists.
    mkdirSync(join(place.base(), 'out/deep'));
    for (const path of ['out-folder/none', 'out-folder/deep']) {
      const tooLong = `${path}/${'x'.repeat(300)}`;
      await expect(files.stat(tooLong), path).rejects.toThrow(DeniedError);
      await expect(files.write(tooLong, 'x'), path).rejects.toThrow(DeniedError);
      await expect(files.remove(tooLong), path).rejects.toThrow(DeniedError);
      await expect(files.rename('src/a.txt', tooLong), path).rejects.toThrow(DeniedError);
    }
    rmSync(join(place.base(), 'out/deep'), { recursive: true });
    expect(outsideNow()).toEqual(['secret.txt=secret']);
  });

  test.each(['', 'a\0b', '~nobody/x', 'x'.repeat(5000)])('denies %j', async (path) => {
    await expect(guard().open(path)).rejects.toThrow(/cannot be used/);
    await expect(guard().write(path, '')).rejects.toThrow(/cannot be used/);
  });

  test.skipIf(process.getuid?.() !== 0)('a file that root replaces keeps its owner', async () => {
    chownSync(join(place.base(), 'work/src/a.txt'), 1234, 5678);
    await guard().write('src/a.txt', 'new');
    expect(statSync(join(place.base(), 'work/src/a.txt'))).toMatchObject({ uid: 1234, gid: 5678 });
  });

  test('asks the check about the path and the place, for each use', async () => {
    const asked: unknown[] = [];
    const files = guard((facts, use) => {
      asked.push([use, facts]);
      return use === 'write' ? 'read only' : undefined;
    });
    await readWhole(files, 'out-file');
    await expect(files.write('good', 'x')).rejects.toThrow('read only');
    await expect(files.rename('good', 'x')).rejects.toThrow('read only');
    expect(asked).toEqual([
      ['read', { path: join(place.base(), 'work/out-file'), target: join(place.base(), 'out/secret.txt') }],
      ['write', { path: join(place.base(), 'work/good'), target: join(place.base(), 'work/src/a.txt') }],
      ['read', { path: join(place.base(), 'work/good') }],
      ['write', { path: join(place.base(), 'work/good') }],
    ]);
  });

  test.skipIf(process.platform === 'win32')('does not open pipes and devices', async () => {
    execFileSync('/usr/bin/env', ['mkfifo', join(place.base(), 'work/pipe')]);
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
        if (++checks === last) renameSync(join(place.base(), 'work/src'), join(place.base(), 'out/src'));
        return undefined;
      });
      await expect(change(files)).rejects.toThrow(/was replaced|ENOENT/);
      expect(readdirSync(join(place.base(), 'out/src'))).toEqual(['a.txt']);
      expect(readFileSync(join(place.base(), 'out/src/a.txt'), 'utf8')).toBe('a');
      renameSync(join(place.base(), 'out/src'), join(place.base(), 'work/src'));
    }
  });

  test.skipIf(process.platform !== 'linux')('does not use a removed name of a file that has another', async () => {
    writeFileSync(join(place.base(), 'work/src/b (deleted)'), 'b');
    expect(await readWhole(guard(), 'src/b (deleted)')).toBe('b');
    linkSync(join(place.base(), 'work/src/a.txt'), join(place.base(), 'work/src/other.txt'));
    const fd = openSync(join(place.base(), 'work/src/a.txt'), 'r');
    try {
      unlinkSync(join(place.base(), 'work/src/a.txt'));
      const files = guard(() => undefined);
      await expect(files.open(`/proc/self/fd/${fd}`)).rejects.toMatchObject({ code: 'ENOENT' });
      await expect(files.write(`/proc/self/fd/${fd}`, 'x')).rejects.toThrow(/ENOENT|EACCES|ENOTDIR|symbolic link/);
    } finally {
      closeSync(fd);
    }
    expect(readdirSync(join(place.base(), 'work/src')).toSorted()).toEqual(['b (deleted)', 'other.txt']);
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
    linkSync(join(place.base(), 'out/secret.txt'), join(place.base(), 'work/hard'));
    await guard().write('hard', 'x');
    expect(outsideNow()).toEqual(['secret.txt=secret']);
  });
});
