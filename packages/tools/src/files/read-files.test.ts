import { expect, test } from 'vitest';
import { readFiles, versionOf } from './read-files.ts';

test('tells files that were not read and files that have changed from those that are known', () => {
  const memory = {};
  const first = versionOf('first');
  readFiles({ memory }).note('a', first);
  const later = readFiles({ memory: JSON.parse(JSON.stringify(memory)) as Record<string, unknown> });
  expect(later.compare('a', first)).toBe('same');
  expect(later.compare('a', versionOf('second'))).toBe('changed');
  expect(later.compare('b', first)).toBe('unread');
  later.forget('a');
  expect(later.compare('a', first)).toBe('unread');
});

test('a text and its bytes have the same version, and large files one by size and time', () => {
  expect(versionOf('ü')).toBe(versionOf(Buffer.from('ü')));
  const large = { size: 5e9, modifiedMs: 1 };
  expect(versionOf({ ...large, modifiedMs: 2 })).not.toBe(versionOf(large));
});

test('keeps the last 100 files in order, also if they are named by numbers', () => {
  const memory: Record<string, unknown> = {};
  for (let i = 150; i > 0; i--) readFiles({ memory }).note(String(i), 'v');
  const known = readFiles({ memory });
  expect([known.compare('1', 'v'), known.compare('100', 'v'), known.compare('101', 'v')]).toEqual([
    'same',
    'same',
    'unread',
  ]);
});

test.each([undefined, {}, 'x', [['a']], [['a', 1]]])('starts again if the memory has %j', (files_read) => {
  const memory: Record<string, unknown> = { files_read };
  readFiles({ memory }).note('__proto__', 'v');
  expect(readFiles({ memory }).compare('__proto__', 'v')).toBe('same');
});

test('works without a run', () => {
  const files = readFiles({ memory: undefined });
  files.note('a', 'v');
  expect(files.compare('a', 'v')).toBe('same');
});
