import { expect, test } from 'vitest';
import { NO_HISTORY, ratioToBaseline, WORKLOADS } from '../../bench/baseline/baseline.ts';

test.for(WORKLOADS)('the CPU time of the loop is within its budget: $name', async (workload, { skip }) => {
  const ratio = await ratioToBaseline(workload);
  if (ratio === undefined) {
    process.stderr.write(`\n${NO_HISTORY}\n`);
    return skip(NO_HISTORY);
  }
  expect(
    ratio,
    'the CPU time of a turn as a multiple of that of the baseline (npm run bench:baseline)',
  ).toBeLessThanOrEqual(workload.budget);
});
