import { afterEach, expect, test } from 'vitest';
import { countKills, killMany, told } from './kill/kills.ts';
import { stopLeftovers } from './kill/process.ts';

afterEach(stopLeftovers);

const KILLS = 30;

/*
 * Real processes, really killed (`SIGKILL`) at moments that follow from a seed, on a real store. The tools keep a ledger
 * of their own. `killed` in schedule.ts has the checks; here they are only counted, and those calls are named that were
 * answered "interrupted, effect unknown", with the entry that did it.
 */
test('processes that are killed at any moment', { timeout: 180_000 }, async ({ annotate }) => {
  const outcomes = await killMany(1, KILLS);
  await annotate(told(outcomes));
  expect(countKills(outcomes)).toBeGreaterThanOrEqual(process.env['TREADLE_SEED'] === undefined ? KILLS : 0);
});
