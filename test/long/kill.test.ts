import { afterEach, expect, test } from 'vitest';
import { countKills, killMany, told } from '../crash/kill/kills.ts';
import { stopLeftovers } from '../crash/kill/process.ts';

afterEach(stopLeftovers);

const KILLS = 300;

/** The same as test/crash/kill.test.ts, ten times as often and with other seeds. */
test('processes that are killed at any moment', async ({ annotate }) => {
  const outcomes = await killMany(10_000, KILLS);
  await annotate(told(outcomes));
  expect(countKills(outcomes)).toBeGreaterThanOrEqual(process.env['TREADLE_SEED'] === undefined ? KILLS : 0);
});
