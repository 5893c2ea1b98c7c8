import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import type { Box } from './engine.ts';
import { firejail } from './firejail.ts';

const scratch = mkdtempSync(join(tmpdir(), 'treadle-firejail-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const limits = { cpuSeconds: 1, memoryBytes: 1, fileBytes: 1, processes: 1 };
const reserve = { reserveBytes: 1, reserveFiles: 1, reserveMemoryBytes: 1 };

function profileOf(box: Partial<Box>): string {
  const engine = firejail({ program: '/usr/bin/firejail', version: 'any' });
  engine.wrap(
    { argv: ['true'] },
    {
      folder: '/work',
      workdir: '/work',
      home: '/home/me',
      readable: [],
      writable: [],
      pinned: [],
      protected: [],
      masked: [],
      files: [],
      room: { tmp: '/tmp', home: '/tmp', scratch },
      blank: { file: '/tmp/file', folder: '/tmp/folder' },
      limits: { ...limits, ...reserve },
      ...box,
    },
  );
  return readFileSync(join(scratch, readdirSync(scratch)[0]!), 'utf8');
}

it.runIf(process.platform === 'linux')('names files as they are, not as patterns for others', () => {
  const names = ['a[1].key', 'b*.key', 'c?.key', 'd  e.key', 'f.key ', 'g h.key'];
  const profile = profileOf({ masked: names.map((name) => ({ path: `/work/${name}`, type: 'file' })) });
  const masked = profile.split('\n').filter((line) => line.startsWith('blacklist /work/'));
  expect(masked.map((line) => line.slice('blacklist /work/'.length))).toEqual([
    'a[[]1].key',
    'b[*].key',
    'c[?].key',
    'd[ ] e.key',
    'f.key[ ]',
    'g h.key',
  ]);
});

it.runIf(process.platform === 'linux').each(['x\nkeep-dev-shm\n#', 'a\tb'])(
  'refuses a name that would be more than a path: %j',
  (name) => {
    expect(() => profileOf({ pinned: [`/work/${name}`] })).toThrow('Firejail cannot name');
    expect(() => profileOf({ masked: [{ path: `/work/${name}/.env`, type: 'file' }] })).toThrow('Rename it.');
  },
);
