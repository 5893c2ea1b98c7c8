import type { JsonSchema } from '@treadle/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromArguments, toArguments } from './arguments.ts';

const PARAMETERS: JsonSchema = {
  type: 'object',
  properties: {
    path: { type: 'string' },
    depth: { type: 'integer' },
    all: { type: 'boolean' },
    names: { type: 'array', items: { type: 'string' } },
    filter: { type: 'object' },
  },
};

describe('the words of a call', () => {
  it('are options with values, in the order of the parameters', () => {
    const input = { filter: { a: [1] }, names: ['x', 'y'], all: true, depth: 2, path: 'a b; rm' };
    expect(toArguments(input, PARAMETERS)).toEqual([
      '--path',
      'a b; rm',
      '--depth',
      '2',
      '--all',
      '--names',
      'x',
      '--names',
      'y',
      '--filter',
      '{"a":[1]}',
    ]);
  });

  it('leave out what is false, null or empty', () => {
    expect(toArguments({ all: false, path: null, names: [] }, PARAMETERS)).toEqual([]);
    expect(toArguments({ path: '' }, PARAMETERS)).toEqual(['--path', '']);
  });

  it('do not let a value become an option', () => {
    expect(toArguments({ path: '--all', names: ['-x'] }, PARAMETERS)).toEqual(['--path=--all', '--names=-x']);
    expect(toArguments({ depth: -1 }, PARAMETERS)).toEqual(['--depth=-1']);
  });

  it('cannot contain NUL bytes and odd names', () => {
    expect(() => toArguments({ path: 'a\0b' }, PARAMETERS)).toThrow(
      'The argument path contains a NUL byte. Remove it.',
    );
    for (const name of ['', '-x', 'a b', 'a=b', '--x']) {
      expect(() => toArguments({ [name]: 'v' }, PARAMETERS)).toThrow('There can be no argument');
    }
  });

  it('mean the input that they were made of', () => {
    const text = fc.string({ unit: 'grapheme' }).filter((one) => !one.includes('\0'));
    const input = fc.record(
      {
        path: text,
        depth: fc.integer(),
        all: fc.constant(true),
        names: fc.array(text, { minLength: 1 }),
        filter: fc.dictionary(fc.string(), fc.integer()).map((one) => ({ ...one })),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(input, (given) => {
        expect(fromArguments(toArguments(given, PARAMETERS), PARAMETERS)).toEqual(given);
      }),
    );
  });
});

it.each([
  [['--pat', 'x'], '"--pat" is not an option. Options: --path, --depth, --all, --names, --filter.'],
  [['path'], '"path" is not an option.'],
  [['--path'], '--path needs a value.'],
  [['--depth', 'deep'], '--depth must be a value of the type integer.'],
  [['--all=maybe'], '--all must be true or false.'],
  [['--constructor', 'x'], '"--constructor" is not an option.'],
])('explains what is wrong with the words %j', (words, problem) => {
  expect(() => fromArguments(words, PARAMETERS)).toThrow(problem);
});
