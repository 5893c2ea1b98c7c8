import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MUTANTS } from './mutants.ts';
import { mutantOf } from './mutate.ts';
import { PARAMETERS, PROPERTIES } from './properties.ts';

const QUICKLY = { ...PARAMETERS, endOnFailure: true };

test.each(MUTANTS)('$property finds: $name', { timeout: 600_000 }, async ({ property, ...patch }) => {
  const { core, remove } = mutantOf(patch);
  try {
    const { failed, numRuns } = await fc.check(PROPERTIES[property](core), QUICKLY);
    expect(failed, `lives through ${numRuns} runs`).toBe(true);
  } finally {
    remove();
  }
});

test('a copy without a fault passes', { timeout: 600_000 }, async () => {
  const { core, remove } = mutantOf(undefined);
  try {
    for (const property of Object.values(PROPERTIES)) await fc.assert(property(core), { ...PARAMETERS, numRuns: 100 });
  } finally {
    remove();
  }
});

test('each invariant has a mutant that breaks it', () => {
  const invariants = Object.keys(PROPERTIES).filter((name) => /^I\d$/.test(name));
  expect(new Set(MUTANTS.map(({ property }) => property))).toEqual(new Set([...invariants, 'live']));
});

test('a mutant that is out of date says so', () => {
  const patch = { file: 'loop/step.ts', find: 'no such text', replace: '' };
  expect(() => mutantOf(patch)).toThrow('"no such text" stands 0 times in loop/step.ts, not once.');
});
