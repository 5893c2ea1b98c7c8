import { expect, test } from 'vitest';
import { compileGlob } from './glob.ts';
import { DEFAULT_DENIED } from './paths.ts';
import { DEFAULT_PRIVATE, DEFAULT_PUBLIC, privatePaths } from './private.ts';

test('every glob can be used', () => {
  for (const glob of [...DEFAULT_PRIVATE, ...DEFAULT_PUBLIC]) expect(() => compileGlob(glob)).not.toThrow();
});

test('what may never be read is private too, apart from the settings of a repository', () => {
  const privateGlob = privatePaths({}, {});
  const denied = DEFAULT_DENIED.flatMap(({ glob, type }) => (type === 'write' ? [] : glob));
  const examples = denied.map((glob) => `/${compileGlob(glob).patterns[0]!.join('/')}`.replaceAll(/\*+/g, 'x'));
  expect(examples.filter((path) => privateGlob({ path: path.replace('//', '/') }) === undefined)).toEqual([
    '/x/.git/config',
  ]);
});
