import { afterEach, expect, test } from 'vitest';
import { countKills, killMany, told } from './kill/kills.ts';
import { stopLeftovers, type Program } from './kill/process.ts';

afterEach(stopLeftovers);

const KILLS = { program: 30, 'agent-program': 16 } as const;

/*
 * Real processes, really killed (`SIGKILL`) at moments that follow from a seed, on a real store. The tools keep a ledger
 * of their own. `killed` in schedule.ts has the checks; here they are only counted, and those calls are named that were
 * answered "interrupted, effect unknown", with the entry that did it.
 */
async function killAnywhere(program: Program, annotate: (message: string) => Promise<unknown>): Promise<void> {
  const outcomes = await killMany(program, 1, KILLS[program]);
  await annotate(told(outcomes));
  const least = process.env['TREADLE_SEED'] === undefined ? KILLS[program] : 0;
  expect(countKills(outcomes)).toBeGreaterThanOrEqual(least);
}

test('processes that are killed at any moment', { timeout: 180_000 }, ({ annotate }) =>
  killAnywhere('program', annotate),
);

test('processes of a typed agent that are killed at any moment', { timeout: 180_000 }, ({ annotate }) =>
  killAnywhere('agent-program', annotate),
);
