import { expect, test } from 'vitest';
import { describeFailure, simulateMany } from '../simulation/farm.ts';
import { expectFound, REVERTED_FIXES, SCHEDULES } from '../simulation/reverted-fixes.ts';

test('nothing happens twice and nothing is lost in 51,000 other schedules', { timeout: 1_800_000 }, async () => {
  const { failures } = await simulateMany({ firstSeed: SCHEDULES + 1, schedules: 51_000, workers: 2 });
  expect(failures.slice(0, 3).map(describeFailure)).toEqual([]);
});

test.each(REVERTED_FIXES.filter(({ rare }) => rare))('finds a defect: $name', expectFound);
