import { afterEach, describe, expect, test } from 'vitest';
import { countKills, killMany, summaryOf } from '../crash/kill/killed-runs.ts';
import { stopLeftovers } from '../crash/kill/process.ts';
import { STORE_KINDS } from '../store/kinds.ts';

afterEach(stopLeftovers);

const KILLS = { program: 300, 'agent-program': 150, 'workflow-program': 50 } as const;
const PROGRAMS = Object.keys(KILLS) as (keyof typeof KILLS)[];

/** The same as test/crash/kill.test.ts, with many times as many kills and other seeds. */
describe.each(STORE_KINDS)('a run survives processes that are killed at any moment, on %s', (store) => {
  test.for(PROGRAMS)('%s', async (program, { annotate }) => {
    const outcomes = await killMany(program, { store, first: 10_000, wanted: KILLS[program], atOnce: 2 });
    await annotate(summaryOf(outcomes));
    const least = process.env['TREADLE_SEED'] === undefined ? KILLS[program] : 0;
    expect(countKills(outcomes)).toBeGreaterThanOrEqual(least);
  });
});
