import { afterEach, describe, expect, test } from 'vitest';
import { STORE_KINDS, type StoreKind } from '../store/kinds.ts';
import { countKills, killMany, summaryOf } from './kill/killed-runs.ts';
import { stopLeftovers, type Program } from './kill/process.ts';

afterEach(stopLeftovers);

/** test/long/kill.test.ts kills many times as many. */
const KILLS: Readonly<Record<StoreKind, Partial<Record<Program, number>>>> = {
  SQLite: { program: 4, 'agent-program': 2, 'workflow-program': 2 },
  PostgreSQL: { program: 2 },
};

const NAMES: Readonly<Record<Program, string>> = {
  program: 'a run survives processes that are killed at any moment',
  'workflow-program': 'every step of a workflow takes effect once, although processes are killed',
  'agent-program': 'a typed agent survives processes that are killed at any moment',
};

/*
 * Real processes on a real store are killed with `SIGKILL` at moments that a seed determines. The tools write a ledger of
 * their own. `killRun` checks each run. The annotation lists the calls that were answered "interrupted, effect unknown",
 * with their entries.
 */
describe.each(STORE_KINDS)('on %s', (store) => {
  for (const [program, wanted] of Object.entries(KILLS[store]) as [Program, number][]) {
    test(`${NAMES[program]}`, { timeout: 180_000 }, async ({ annotate }) => {
      const outcomes = await killMany(program, { store, first: 1, wanted, atOnce: 1 });
      await annotate(summaryOf(outcomes));
      const least = process.env['TREADLE_SEED'] === undefined ? wanted : 0;
      expect(countKills(outcomes)).toBeGreaterThanOrEqual(least);
    });
  }
});
