import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Box } from './engine.ts';
import { seatbelt, seatbeltProfile } from './seatbelt.ts';

const BOX: Box = {
  folder: '/w',
  workdir: '/w',
  readable: ['/people/me/.nvm'],
  writable: [],
  pinned: ['/w/.git'],
  protected: ['/w/.git/hooks', '/w/.git/config', '/w/treadle.toml'],
  masked: [
    { path: '/w/.env', type: 'file' },
    { path: '/w/a/b/secrets', type: 'folder' },
  ],
  home: '/people/me',
  room: { tmp: '/room/tmp', home: '/room/home', scratch: '/room/engine' },
  blank: { file: '/room/file', folder: '/room/folder' },
  files: [{ from: '/room/gitconfig', to: '/people/me/.gitconfig', variable: 'GIT_CONFIG_GLOBAL' }],
  limits: {
    cpuSeconds: 1,
    memoryBytes: 1024,
    fileBytes: 512,
    processes: 5,
    reserveBytes: 1,
    reserveFiles: 1,
    reserveMemoryBytes: 1,
  },
};

type Rule = readonly [verdict: string, operations: readonly string[], filters: readonly (readonly [string, string])[]];

/** Reads a profile: a second implementation of what the text means, as far as paths are concerned. */
function rulesOf(profile: string): readonly Rule[] {
  const tokens = [...profile.matchAll(/"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+/gs)].map(([token]) => token);
  let at = 0;
  const read = (): unknown => {
    const token = tokens[at++]!;
    if (token !== '(') return token.startsWith('"') ? { text: JSON.parse(token) as string } : token;
    const list: unknown[] = [];
    while (tokens[at] !== ')') list.push(read());
    at++;
    return list;
  };
  const forms: unknown[][] = [];
  while (at < tokens.length) forms.push(read() as unknown[]);
  return forms.map(([verdict, ...rest]) => [
    verdict as string,
    rest.filter((one) => typeof one === 'string'),
    rest.flatMap((one) =>
      Array.isArray(one) && ['subpath', 'literal'].includes(one[0] as string)
        ? [[one[0] as string, (one[1] as { text: string }).text] as const]
        : [],
    ),
  ]);
}

function allows(box: Box, operation: string, path: string): boolean {
  let isAllowed = false;
  for (const [verdict, operations, filters] of rulesOf(seatbeltProfile(box))) {
    const isMeant = operations.some(
      (one) => one === operation || (one.endsWith('*') && operation.startsWith(one.slice(0, -1))),
    );
    const matches = filters.some(
      ([filter, place]) => path === place || (filter === 'subpath' && path.startsWith(`${place}/`)),
    );
    if (isMeant && matches) isAllowed = verdict === 'allow';
  }
  return isAllowed;
}

describe('the profile of macOS', () => {
  it('refuses what it does not name', () => {
    expect(seatbeltProfile(BOX)).toMatch(/^\(version 1\)\n\(deny default\)\n/);
    for (const path of [
      '/people/me/.ssh/id_ed25519',
      '/private/tmp/x',
      '/private/etc/hosts',
      '/w2',
      '/dev/disk0',
      '/dev/tty',
    ]) {
      expect([path, allows(BOX, 'file-read-data', path)]).toEqual([path, path.startsWith('/private/etc/')]);
      expect([path, allows(BOX, 'file-write-data', path)]).toEqual([path, false]);
    }
  });

  it('allows no network, socket, keychain or Apple event', () => {
    expect(seatbeltProfile(BOX)).not.toMatch(/network|socket|appleevent|lsopen|Security|securityd|task-port|iokit/);
  });

  it('allows the working folder, the room and the tools', () => {
    for (const path of ['/w/src/a.ts', '/room/tmp/x', '/room/home/x', '/dev/null']) {
      expect([path, allows(BOX, 'file-read-data', path), allows(BOX, 'file-write-data', path)]).toEqual([
        path,
        true,
        true,
      ]);
    }
    for (const path of ['/usr/bin/git', '/people/me/.nvm/node', '/room/gitconfig']) {
      expect([path, allows(BOX, 'file-read-data', path), allows(BOX, 'file-write-data', path)]).toEqual([
        path,
        true,
        false,
      ]);
    }
  });

  it('keeps hooks and configuration from being written, replaced or moved', () => {
    for (const path of ['/w/.git/hooks/pre-commit', '/w/.git/hooks', '/w/.git/config', '/w/treadle.toml']) {
      expect([path, allows(BOX, 'file-read-data', path)]).toEqual([path, true]);
      for (const operation of ['file-write-data', 'file-write-create', 'file-write-unlink'])
        expect([path, operation, allows(BOX, operation, path)]).toEqual([path, operation, false]);
    }
    expect(allows(BOX, 'file-write-unlink', '/w/.git')).toBe(false);
    expect(allows(BOX, 'file-write-create', '/w/.git/index.lock')).toBe(true);
  });

  it('masks private files, and fixes the folders that lead to them', () => {
    for (const path of ['/w/.env', '/w/a/b/secrets', '/w/a/b/secrets/key']) {
      for (const operation of ['file-read-data', 'file-read-metadata', 'file-write-data', 'file-write-unlink'])
        expect([path, operation, allows(BOX, operation, path)]).toEqual([path, operation, false]);
    }
    for (const path of ['/w', '/w/a', '/w/a/b'])
      expect([path, allows(BOX, 'file-write-unlink', path)]).toEqual([path, false]);
    expect(allows(BOX, 'file-write-unlink', '/w/a/c')).toBe(true);
    expect(seatbeltProfile(BOX)).not.toContain('file-link');
  });

  it('keeps paths with quotes, parentheses, backslashes and newlines as they are', () => {
    for (const name of ['a"b', 'a") (allow default) ("', 'a\\', 'a\\"b', 'a\nb', '; a', '#"a"', 'ä ö'] as const) {
      const path = `/w/${name}`;
      const box = { ...BOX, masked: [{ path, type: 'file' }] } as const;
      expect([name, allows(box, 'file-read-data', path)]).toEqual([name, false]);
      expect(rulesOf(seatbeltProfile(box)).map(([, operations]) => operations)).not.toContainEqual([
        'default',
        'default',
      ]);
      expect(rulesOf(seatbeltProfile(box)).filter(([, [first]]) => first === 'default')).toEqual([
        ['deny', ['default'], []],
      ]);
    }
    const box = { ...BOX, masked: [{ path: '/w/\u0007', type: 'file' }] } as const;
    expect(() => seatbeltProfile(box)).toThrow('cannot name');
  });

  it('has no rule without a path', () => {
    const box = { ...BOX, protected: [], masked: [], pinned: [] };
    expect(seatbeltProfile(box)).not.toMatch(/\((allow|deny) file-(read|write)[^()\n]*\)/);
    expect(allows(box, 'file-write-data', '/w/.env')).toBe(true);
  });
});

describe('seatbelt', () => {
  let scratch: string;
  beforeEach(() => (scratch = mkdtempSync(join(tmpdir(), 'treadle-seatbelt-'))));
  afterEach(() => rmSync(scratch, { recursive: true }));

  it('starts sandbox-exec with the profile, and gives the folders of the room as variables', () => {
    const engine = seatbelt({ program: '/usr/bin/sandbox-exec', version: '1' });
    const box = { ...BOX, room: { ...BOX.room, scratch } };
    const { argv, env } = engine.wrap({ argv: ['bash', '-c', 'true'], env: { A: '1' } }, box);
    expect(argv.slice(0, 5)).toEqual(['/usr/bin/sandbox-exec', '-f', join(scratch, 'profile.sb'), '/bin/sh', '-c']);
    expect(argv.slice(-3)).toEqual(['bash', '-c', 'true']);
    expect(env).toEqual({ HOME: '/room/home', TMPDIR: '/room/tmp', GIT_CONFIG_GLOBAL: '/room/gitconfig', A: '1' });
    expect(readFileSync(argv[2]!, 'utf8')).toBe(seatbeltProfile(box));
  });

  it('promises neither the hosts, the loopback, the end of all processes nor a limit of memory', () => {
    const { promises } = seatbelt({ program: '', version: '' });
    for (const name of ['hosts', 'loopback', 'tree', 'memory', 'ptrace', 'keyring'] as const)
      expect(promises).not.toContain(name);
  });
});
