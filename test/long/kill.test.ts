import { afterEach, expect, test } from 'vitest';
import { countKills, killMany, summaryOf } from '../crash/kill/killed-runs.ts';
import { stopLeftovers } from '../crash/kill/process.ts';

afterEach(stopLeftovers);

const KILLS = { program: 300, 'agent-program': 150, 'workflow-program': 50 } as const;

/** The same as test/crash/kill.test.ts, with many times as many kills and other seeds. */
for (const program of ['program', 'agent-program', 'workflow-program'] as const) {
  test(`a run survives processes that are killed at any moment: ${program}`, async ({ annotate }) => {
    const outcomes = await killMany(program, { first: 10_000, wanted: KILLS[program], atOnce: 2 });
    await annotate(summaryOf(outcomes));
    const least = process.env['TREADLE_SEED'] === undefined ? KILLS[program] : 0;
    expect(countKills(outcomes)).toBeGreaterThanOrEqual(least);
  });
}
