import { afterEach, expect, test } from 'vitest';
import { countKills, killMany, told } from '../crash/kill/kills.ts';
import { stopLeftovers } from '../crash/kill/process.ts';

afterEach(stopLeftovers);

const KILLS = { program: 300, 'agent-program': 150 } as const;

/** The same as test/crash/kill.test.ts, ten times as often and with other seeds. */
for (const program of ['program', 'agent-program'] as const) {
  test(`processes that are killed at any moment: ${program}`, async ({ annotate }) => {
    const outcomes = await killMany(program, 10_000, KILLS[program]);
    await annotate(told(outcomes));
    const least = process.env['TREADLE_SEED'] === undefined ? KILLS[program] : 0;
    expect(countKills(outcomes)).toBeGreaterThanOrEqual(least);
  });
}
