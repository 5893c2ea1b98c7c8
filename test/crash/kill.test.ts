import { afterEach, expect, test } from 'vitest';
import { countKills, killMany, summaryOf } from './kill/killed-runs.ts';
import { stopLeftovers, type Program } from './kill/process.ts';

afterEach(stopLeftovers);

/** test/long/kill.test.ts kills many times as many. */
const KILLS = { program: 4, 'agent-program': 2, 'workflow-program': 2 } as const;

/*
 * Real processes on a real store are killed with `SIGKILL` at moments that a seed determines. The tools write a ledger of
 * their own. `killRun` checks each run. The annotation lists the calls that were answered "interrupted, effect unknown",
 * with their entries.
 */
async function expectSurvivesKills(program: Program, annotate: (message: string) => Promise<unknown>): Promise<void> {
  const outcomes = await killMany(program, { first: 1, wanted: KILLS[program], atOnce: 1 });
  await annotate(summaryOf(outcomes));
  const least = process.env['TREADLE_SEED'] === undefined ? KILLS[program] : 0;
  expect(countKills(outcomes)).toBeGreaterThanOrEqual(least);
}

test('a run survives processes that are killed at any moment', { timeout: 180_000 }, ({ annotate }) =>
  expectSurvivesKills('program', annotate),
);

test(
  'every step of a workflow takes effect once, although processes are killed',
  { timeout: 180_000 },
  ({ annotate }) => expectSurvivesKills('workflow-program', annotate),
);

test('a typed agent survives processes that are killed at any moment', { timeout: 180_000 }, ({ annotate }) =>
  expectSurvivesKills('agent-program', annotate),
);
