import { chownSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hostSockets, ownFiles, scanFolder, toolFolders } from './visible.ts';

const HEADER = 'Num       RefCount Protocol Flags    Type St Inode Path\n';

let folder: string;
const server = createServer();
beforeEach(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-visible-')));
  await new Promise<void>((done) => server.listen(join(folder, 'a b.sock'), done));
});
afterEach(async () => {
  await new Promise((done) => server.close(done));
  rmSync(folder, { recursive: true });
});

describe.runIf(process.platform === 'linux')('sockets of the host', () => {
  const lineOf = (inode: string, name: string): string =>
    `${HEADER}000000000c865b56: 00000002 00000000 00010000 0001 01 ${inode}${name}\n`;

  it('are found by the names in the table, whatever the width of the inode', () => {
    const path = join(folder, 'a b.sock');
    for (const inode of ['    7', ' 1062', '12345', '123456789'])
      expect([inode, hostSockets([folder], lineOf(inode, ` ${path}`))]).toEqual([inode, [path]]);
    expect(hostSockets([folder])).toEqual([path]);
    expect(hostSockets([join(folder, 'other')])).toEqual([]);
  });

  it('are found by a name relative to the working folder of a process', () => {
    const path = join(folder, 'a b.sock');
    expect(hostSockets([folder], lineOf(' 1062', ` ${relative(process.cwd(), path)}`))).toEqual([path]);
  });

  it('have names: lines without one and abstract names are left out', () => {
    for (const line of [lineOf(' 1062', ''), lineOf('12345', ''), lineOf(' 1062', ' @abstract'), HEADER])
      expect(hostSockets(['/'], line)).toEqual([]);
  });
});

it('protects the files that tell git where hooks and settings are', async () => {
  const worktree = join(folder, '.git/worktrees/other');
  mkdirSync(worktree, { recursive: true });
  writeFileSync(join(worktree, 'commondir'), '../..\n');
  const scan = await scanFolder({ folder, rules: {}, expose: [], protect: [], hide: [] });
  expect(scan.absent).toContain(join(folder, '.git/commondir'));
  expect(scan.protected).toContain(join(worktree, 'commondir'));
});

function put(name: string): string {
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), '');
  return join(folder, name);
}

it('shows of PATH what programs need, and nothing that may be something else', () => {
  const shown = (...entries: string[]): string[] =>
    toolFolders(entries.map((entry) => join(folder, entry)).join(':'), {
      home: join(folder, 'home'),
      folder: join(folder, 'work'),
    }).map((path) => relative(folder, path));
  for (const name of [
    'home/.nvm/v20/bin/node',
    'home/.fly/bin/fly',
    'home/.fly/config.yml',
    'go/bin/go',
    'go/pkg/tool/x',
  ])
    put(name);
  for (const name of ['project/bin/x', 'project/lib/x', 'project/.env', 'work/bin/x', 'home/bin/x', 'own/x']) put(name);
  expect(shown('home/.nvm/v20/bin')).toEqual(['home/.nvm']);
  expect(shown('home/.fly/bin', 'home/bin')).toEqual(['home/.fly/bin', 'home/bin']);
  expect(shown('project/bin')).toEqual(['project/bin', 'project/lib']);
  expect(shown('go/bin', 'own', 'work/bin', 'missing')).toEqual(['go', 'own']);
});

describe('private files', () => {
  const scanned = (): ReturnType<typeof scanFolder> =>
    scanFolder({ folder, rules: { private: { paths: ['deploy/keys/**'] } }, expose: [], protect: [], hide: [] });

  it('stay where they are private', async () => {
    for (const name of ['.docker/config.json', 'deploy/keys/one', 'a/b/.env']) put(name);
    const { masked, pinned } = await scanned();
    expect(masked.map(({ path }) => relative(folder, path)).toSorted()).toEqual([
      '.docker/config.json',
      'a/b/.env',
      'deploy/keys',
    ]);
    expect(pinned.map((path) => relative(folder, path))).toEqual(['.docker', 'a', 'a/b', 'deploy']);
  });

  it('are what a link with a private name leads to', async () => {
    const file = put('settings/local.txt');
    symlinkSync('settings/local.txt', join(folder, '.env'));
    symlinkSync('.', join(folder, '.npmrc'));
    symlinkSync('missing', join(folder, '.netrc'));
    expect((await scanned()).masked).toEqual([{ path: file, type: 'file' }]);
    mkdirSync(join(folder, 'keys'));
    symlinkSync('keys', join(folder, '.ssh'));
    symlinkSync('../settings', join(folder, 'keys', '.aws'));
    expect((await scanned()).masked.map(({ path }) => relative(folder, path)).toSorted()).toEqual(['keys', 'settings']);
  });

  it('may be in folders that are too deep to be looked at', async () => {
    const name = 'd'.repeat(199);
    const file = put(`${`${name}/`.repeat(9)}.env`);
    put(`${`${name}/`.repeat(11)}.env`);
    const { masked, unnamed } = await scanned();
    const deep = join(folder, `${name}/`.repeat(11).slice(0, -1));
    expect(masked).toEqual([
      { path: file, type: 'file' },
      { path: deep, type: 'folder' },
    ]);
    expect(unnamed).toEqual([deep]);
  });
});

it.runIf(process.getuid?.() === 0)('hides what the user can read without capabilities, and others cannot', () => {
  const files = { open: 0o644, own: 0o600, 'of-another': 0o600, 'by-group': 0o640, 'of-other-group': 0o640 };
  for (const [name, mode] of Object.entries(files)) writeFileSync(join(folder, name), '', { mode });
  for (const name of ['of-another', 'by-group']) chownSync(join(folder, name), 12_345, 0);
  chownSync(join(folder, 'of-other-group'), 12_345, 12_345);
  mkdirSync(join(folder, 'closed'), { mode: 0o710 });
  writeFileSync(join(folder, 'closed', 'own'), '', { mode: 0o600 });
  mkdirSync(join(folder, 'entered'), { mode: 0o711 });
  writeFileSync(join(folder, 'entered', 'own'), '', { mode: 0o600 });
  const found = ownFiles([folder]).map(({ path, type }) => `${type} ${relative(folder, path)}`);
  expect(found.toSorted()).toEqual(['file by-group', 'file entered/own', 'file own', 'folder closed']);
});
