import fc from 'fast-check';
import { expect, test } from 'vitest';
import { declarationOf } from './core.ts';
import { expectFound, MUTABLE, MUTANTS, SAMPLE } from './mutants.ts';
import { ALL_PROPERTIES, PARAMETERS, PROPERTIES } from './properties.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

/** A sample: test/long/mutants.test.ts tries all of them. */
test.each(SAMPLE)('$property finds: $name', { timeout: 600_000 }, expectFound);

test('a mutable copy of the core without a fault has all properties', { timeout: 600_000 }, async () => {
  for (const { property } of Object.values(ALL_PROPERTIES)) {
    await fc.assert(property(MUTABLE.core), { ...PARAMETERS, numRuns: 10 * CASES });
  }
});

test('each invariant has a mutant, also in the sample', () => {
  const invariants = Object.keys(PROPERTIES).filter((name) => /^I\d+$/.test(name));
  for (const mutants of [MUTANTS, SAMPLE]) {
    expect(new Set(mutants.map(({ property }) => property))).toEqual(new Set([...invariants, 'live']));
  }
});

test('the names of mutants are unique', () => {
  const names = MUTANTS.map(({ property, name }) => `${property} ${name}`);
  expect(new Set(names).size).toBe(names.length);
});

test('rejects an address without a function, and one with several', () => {
  expect(() => declarationOf('noSuchFunction')).toThrow('Declarations found: none.');
  expect(() => declarationOf('resultIn')).toThrow(/Declarations found: \S+\.ts, \S+\.ts\./);
});
