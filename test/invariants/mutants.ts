import fc from 'fast-check';
import { expect } from 'vitest';
import { loadMutableCore } from './mutable-core.ts';
import { attempts } from './mutants/agent-attempts.ts';
import { budget } from './mutants/budget.ts';
import { claims } from './mutants/agent-calls.ts';
import { examined } from './mutants/examined.ts';
import { carried } from './mutants/carried.ts';
import { results } from './mutants/i1-results.ts';
import { permission } from './mutants/i2-permission.ts';
import { settling } from './mutants/i3-settling.ts';
import { ending } from './mutants/i4-ending.ts';
import { replay } from './mutants/i5-replay.ts';
import { limits } from './mutants/i6-limits.ts';
import { turns } from './mutants/i6-turns.ts';
import { cost } from './mutants/i7-cost.ts';
import { durable } from './mutants/i8-durable.ts';
import { order } from './mutants/i9-order.ts';
import { told } from './mutants/i10-told.ts';
import { programs } from './mutants/programs.ts';
import type { Mutant } from './mutants/mutant.ts';
import { parked } from './mutants/parked.ts';
import { questions } from './mutants/questions.ts';
import { resources } from './mutants/resources.ts';
import { PARAMETERS, PROPERTIES } from './properties.ts';

const AREAS = [
  results,
  permission,
  settling,
  ending,
  replay,
  limits,
  turns,
  cost,
  durable,
  order,
  told,
  attempts,
  claims,
  carried,
  questions,
  resources,
  budget,
  parked,
  programs,
  examined,
] as const;

export const MUTANTS: readonly Mutant[] = AREAS.flat();

/** It takes long to find them, so they are not in the sample. */
const SLOW: ReadonlySet<string> = new Set([
  "the agent's own prompt for the next attempt is ignored",
  'a cancellation during the validation of an answer has another phase',
  'a decision is kept for the next turn',
  'a failed compaction after a refusal is ignored',
  'a falsy output is lost',
  'a later policy raises the limits of an earlier one',
  'a submit before any output is answered although it must end the run',
  'an approval of one call is a grant',
  'an output with bad arguments is shown',
  'answers are not found when the tool is called again',
  'calls that only a narrowing judges are not judged',
  'the handoff that settles last counts',
  'the memory of the run is lost with the attempt',
  'the rules of a narrowing do not make calls judged',
  'the tool choice of a turn uses up that of the run',
]);

/** Every eighth mutant of each area. */
export const SAMPLE: readonly Mutant[] = AREAS.flatMap((area) =>
  area.filter(({ name }, index) => index % 8 === 0 && !SLOW.has(name)),
);

export const MUTABLE: ReturnType<typeof loadMutableCore> = loadMutableCore(MUTANTS.map(({ target }) => target));

/** Some faults show in one world of a thousand, so more worlds than usual are tried. The first that shows it is the last. */
const PATIENT = { ...PARAMETERS, numRuns: 16 * PARAMETERS.numRuns, endOnFailure: true };

/** Expects that the property of a mutant finds its fault. */
export async function expectFound(mutant: Mutant): Promise<void> {
  const property = PROPERTIES[mutant.property](MUTABLE.core);
  const { failed, numRuns } = await MUTABLE.withFault(mutant, () => fc.check(property, PATIENT));
  expect(failed, `${mutant.property} did not find the fault in ${numRuns} runs`).toBe(true);
}
