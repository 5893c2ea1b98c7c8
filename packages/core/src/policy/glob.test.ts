import fc from 'fast-check';
import { expect, test } from 'vitest';
import { compileGlob, componentsOf, matchesGlob } from './glob.ts';

const matches = (glob: string, path: string): boolean => matchesGlob(compileGlob(glob), componentsOf(path));

test.each<[string, string[], string[]]>([
  ['a', ['a', './a', 'a/'], ['b', 'a/b', '/a', 'A']],
  ['*', ['a', '.a'], ['a/b', '']],
  ['**', ['', 'a', 'a/b', '/a/b'], []],
  ['/**', ['/', '/a/b'], ['a']],
  ['a/**', ['a', 'a/b', 'a/b/c'], ['b', 'ab/c', 'b/a']],
  ['**/a', ['a', 'b/a', '/b/c/a'], ['a/b', 'ba']],
  ['a/**/b', ['a/b', 'a/x/b', 'a/x/y/b'], ['a/bx', 'x/a/b']],
  ['**/x/**/y/**', ['x/y', 'a/x/b/y/c', 'x/x/y'], ['x', 'y/x']],
  ['*.ts', ['a.ts', '.ts'], ['a.tsx', 'b/a.ts']],
  ['a*b*c', ['abc', 'axxbxc', 'abbc'], ['ab', 'acb']],
  ['a?c', ['abc'], ['ac', 'abbc']],
  ['{a,b}/c', ['a/c', 'b/c'], ['c', 'ab/c']],
  ['id_{rsa,dsa}*', ['id_rsa', 'id_dsa.pub'], ['id_x']],
  ['{a,}{b,c}', ['ab', 'b', 'c'], ['a']],
  ['[id].ts', ['[id].ts'], ['i.ts']],
  ['a.b', ['a.b'], ['axb']],
])('%s', (glob, right, wrong) => {
  for (const path of right) expect([path, matches(glob, path)]).toEqual([path, true]);
  for (const path of wrong) expect([path, matches(glob, path)]).toEqual([path, false]);
});

test.each(['{a', 'a}', '{a,{b,c}}', '{a,b}'.repeat(7)])('%s is not a glob', (text) => {
  expect(() => compileGlob(text)).toThrow(/braces|alternatives/);
});

test('matches like a regular expression made from the glob', () => {
  const part = fc.stringMatching(/^[ab*?]{1,4}$/);
  const globs = fc.array(fc.oneof(part, fc.constant('**')), { minLength: 1, maxLength: 5 });
  const paths = fc.array(fc.stringMatching(/^[ab]{1,4}$/), { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(globs, paths, (glob, path) => {
      // Two stars inside of a component are not `**`, and mean the same as one.
      const source = glob.map((one) =>
        one === '**' ? '(?:[^/]+/)*' : `${one.replaceAll('?', '.').replace(/\*+/g, '[^/]*')}/`,
      );
      const expected = new RegExp(`^${source.join('')}$`).test(`${path.join('/')}/`);
      expect(matches(glob.join('/'), path.join('/'))).toBe(expected);
    }),
  );
});

test('a hostile pattern and path take little time', () => {
  const started = performance.now();
  expect(matches(`${'a*'.repeat(2000)}b`, 'a'.repeat(4000))).toBe(false);
  expect(matches(`${'**/a/'.repeat(200)}b`, 'a/'.repeat(2000))).toBe(false);
  expect(performance.now() - started).toBeLessThan(2000);
});
