import { homedir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { storePlace } from './store.ts';

const place = (url: string): object => storePlace(url, { from: '--store', folder: '/project' });

test.each([
  ['sqlite:runs.db', '/project/runs.db'],
  ['sqlite:.treadle/treadle.db', '/project/.treadle/treadle.db'],
  ['sqlite:../x.db', '/x.db'],
  ['sqlite:/abs/x.db', '/abs/x.db'],
  ['sqlite:///abs/x.db', '/abs/x.db'],
  ['SQLite:x y.db', '/project/x y.db'],
  ['sqlite:~/x.db', join(homedir(), 'x.db')],
])('%s', (url, file) => {
  expect(place(url)).toEqual({ type: 'sqlite', file });
});

test.each(['memory:', 'sqlite::memory:'])('%s', (url) => {
  expect(place(url)).toEqual({ type: 'memory' });
});

test.each([
  ['postgres://u:secret@h/d', '--store names PostgreSQL, which comes in a later version.'],
  ['postgresql://h/d', '--store names PostgreSQL'],
  ['mysql://u:secret@h/d', '--store must be sqlite:PATH or memory:, not mysql:.'],
  ['runs.db', 'If runs.db is a file, write sqlite:runs.db.'],
  ['/abs/runs.db', 'If /abs/runs.db is a file, write sqlite:/abs/runs.db.'],
  ['sqlite:', '--store needs a path: sqlite:runs.db, or sqlite:/folder/runs.db.'],
  ['sqlite://runs.db', '--store needs a path'],
])('%s is refused', (url, message) => {
  expect(() => place(url)).toThrow(message);
  expect(() => place(url)).not.toThrow('secret');
});
