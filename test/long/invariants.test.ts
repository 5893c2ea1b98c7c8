import fc from 'fast-check';
import { test } from 'vitest';
import { loadCore } from '../invariants/core.ts';
import { ALL_PROPERTIES, PARAMETERS } from '../invariants/properties.ts';

/** The same as test/invariants/invariants.test.ts, with 25 times as many worlds, all of them for every property. */
const RUNS = 25 * PARAMETERS.numRuns;

const core = loadCore();

for (const [names, { property }] of Object.entries(ALL_PROPERTIES)) {
  test(`${names} in ${RUNS} worlds`, () => fc.assert(property(core), { ...PARAMETERS, numRuns: RUNS }));
}
