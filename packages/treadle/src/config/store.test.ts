import { mkdtemp, rm, stat } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createStoreFolder, parseStoreUrl } from './store.ts';

const locate = (url: string): object => parseStoreUrl(url, { from: '--store', folder: '/project' });

test.each([
  ['sqlite:runs.db', '/project/runs.db'],
  ['sqlite:.treadle/treadle.db', '/project/.treadle/treadle.db'],
  ['sqlite:../x.db', '/x.db'],
  ['sqlite:/abs/x.db', '/abs/x.db'],
  ['sqlite:///abs/x.db', '/abs/x.db'],
  ['SQLite:x y.db', '/project/x y.db'],
  ['sqlite:~/x.db', join(homedir(), 'x.db')],
])('parses %s', (url, file) => {
  expect(locate(url)).toEqual({ type: 'sqlite', file });
});

test.each(['memory:', 'sqlite::memory:'])('parses %s', (url) => {
  expect(locate(url)).toEqual({ type: 'memory' });
});

test.each([
  ['postgres://u:secret@h:port/d', '--store must be postgres://USER:PASSWORD@HOST:PORT/DATABASE'],
  ['mysql://u:secret@h/d', '--store must be sqlite:PATH, postgres://HOST/DATABASE or memory:, not mysql:.'],
  ['runs.db', 'If runs.db is a file, write sqlite:runs.db.'],
  ['/abs/runs.db', 'If /abs/runs.db is a file, write sqlite:/abs/runs.db.'],
  ['sqlite:', '--store needs a path: sqlite:runs.db, or sqlite:/folder/runs.db.'],
  ['sqlite://runs.db', '--store needs a path'],
])('rejects %s', (url, message) => {
  expect(() => locate(url)).toThrow(message);
  expect(() => locate(url)).not.toThrow('secret');
});

test.skipIf(process.platform === 'win32')('creates the folder of the store for this user alone', async () => {
  const parent = await mkdtemp(join(tmpdir(), 'treadle-store-'));
  try {
    await createStoreFolder(join(parent, '.treadle'));
    expect((await stat(join(parent, '.treadle'))).mode & 0o777).toBe(0o700);
  } finally {
    await rm(parent, { recursive: true });
  }
});
