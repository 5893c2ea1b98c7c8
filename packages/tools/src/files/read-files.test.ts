import { expect, test } from 'vitest';
import { fileKey, readFiles, versionOf } from './read-files.ts';
import { workspace } from './workspace.ts';

const space = workspace({ folder: '/work' } as never);

test('tells files that were not read and files that have changed from those that are known', () => {
  const memory = {};
  const first = versionOf('first');
  readFiles(space, { memory }).note('a', first);
  const later = readFiles(space, { memory: JSON.parse(JSON.stringify(memory)) as Record<string, unknown> });
  expect(later.compare('a', first)).toBe('same');
  expect(later.compare('a', versionOf('second'))).toBe('changed');
  expect(later.compare('b', first)).toBe('unread');
  later.forget('a');
  expect(later.compare('a', first)).toBe('unread');
});

test.each([
  ['a', './a', '/work/a', 'x/../a', 'a/', '//work/./a'],
  ['../a', '/a', '../work/../a'],
  ['.', '', '/work', 'x/..'],
  ['a b', './a b'],
])('%j has one key, however it is written', (...paths) => {
  expect(new Set(paths.map((path) => fileKey(space, path)))).toEqual(new Set([`files_read:${paths[0]}`]));
});

test('a text and its bytes have the same version, and large files one by size and time', () => {
  expect(versionOf('ü')).toBe(versionOf(Buffer.from('ü')));
  const large = { size: 5e9, modifiedMs: 1 };
  expect(versionOf({ ...large, modifiedMs: 2 })).not.toBe(versionOf(large));
});

test.each([{}, [], 1, ['v']])('a file of which the memory has %j has changed', (value) => {
  expect(readFiles(space, { memory: { 'files_read:a': value } }).compare('a', 'v')).toBe('changed');
});

test('works without a run', () => {
  const files = readFiles(space, { memory: undefined });
  files.note('a', 'v');
  expect(files.compare('a', 'v')).toBe('same');
});
