import { describe, expect, test } from 'vitest';
import { globPattern } from './glob-pattern.ts';

test.each([
  ['*', 'a.txt', true],
  ['*', '.hidden', true],
  ['*', 'a/b', false],
  ['*.ts', 'a.ts', true],
  ['*.ts', 'a.tsx', false],
  ['a?c', 'abc', true],
  ['a?c', 'ac', false],
  ['?', '🙂', true],
  ['**', 'a/b/c', true],
  ['**/*.ts', 'a.ts', true],
  ['**/*.ts', 'a/b/c.ts', true],
  ['src/**', 'src/a/b', true],
  ['src/**/x.ts', 'src/x.ts', true],
  ['src/**/x.ts', 'src/a/b/x.ts', true],
  ['src/**/x.ts', 'lib/x.ts', false],
  ['**/a/**/b', 'x/a/y/z/b', true],
  ['**/a/*/b', 'x/a/y/z/b', false],
  ['./src/*.ts', 'src/a.ts', true],
  ['src//a', 'src/a', true],
  ['*.{ts,js}', 'a.js', true],
  ['*.{ts,js}', 'a.css', false],
  ['{a,b{c,d}}/x', 'bd/x', true],
  ['{a,}x', 'x', true],
  ['[a-c]1', 'b1', true],
  ['[!a-c]1', 'b1', false],
  ['[^a-c]1', 'd1', true],
  ['[]a]', ']', true],
  ['[a', '[a', true],
  ['a.b', 'axb', false],
  ['(a|b)+', '(a|b)+', true],
  ['\\*', '*', true],
  ['\\*', 'a', false],
  ['\\{a,b\\}', '{a,b}', true],
])('%s matches %s: %s', (pattern, path, expected) => {
  expect(globPattern(pattern).matches(path)).toBe(expected);
});

test.each([
  ['*', 'src', false],
  ['src/*.ts', 'src', true],
  ['src/*.ts', 'lib', false],
  ['src/*.ts', 'src/deep', false],
  ['src/**', 'src/deep/er', true],
  ['src/**/x/*.ts', 'src/deep', true],
  ['**/*.ts', 'any/thing', true],
  ['{a,b}/c/*', 'b', true],
  ['{a,b}/c/*', 'b/d', false],
])('%s leads into %s: %s', (pattern, folder, expected) => {
  expect(globPattern(pattern).leadsInto(folder)).toBe(expected);
});

describe('rejects', () => {
  test.each(['../x', 'a/../../x', '/etc/*', 'C:\\x', 'C:/x', '{a,../b}/*', '{.,x}./y'])(
    '%s, which leaves the folder',
    (pattern) => {
      expect(() => globPattern(pattern)).toThrow(/leads out of the working folder/);
    },
  );
  test('invalid patterns', () => {
    expect(() => globPattern('')).toThrow(/empty/);
    expect(() => globPattern('{a,b')).toThrow(/without a "}"/);
    expect(() => globPattern('{a,b}'.repeat(20))).toThrow(/too many alternatives/);
    expect(() => globPattern('a'.repeat(1_001))).toThrow(/longer than 1000 characters/);
  });
});

test('is fast for patterns with many stars', () => {
  const pattern = globPattern(`${'*a'.repeat(100)}b`);
  const folders = globPattern(`${'**/a/'.repeat(100)}b`);
  const before = performance.now();
  expect(pattern.matches('a'.repeat(250))).toBe(false);
  expect(folders.matches('a/'.repeat(1000) + 'c')).toBe(false);
  expect(performance.now() - before).toBeLessThan(2_000);
});
