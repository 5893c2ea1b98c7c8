import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  BASELINE,
  ratiosOf,
  ratioToBaseline,
  timesOf,
  treeOf,
  type Samples,
  type Workload,
} from '../../bench/baseline/baseline.ts';

const WHOLE: Workload = { name: 'whole', deltas: 0, hasJournal: false, budget: 1.05 };

const hasHistory = treeOf(BASELINE) !== undefined;

describe('the comparison of trees', () => {
  // Three processes with two trees. The second process was disturbed, in the third the second tree is slow.
  const processes: readonly Samples[] = [
    [
      [3.1, 3, 9],
      [3.3, 3.4, 3.3],
    ],
    [
      [7, 6.2, 6],
      [8, 6.3, 7],
    ],
    [
      [3.2, 3.2, 3.2],
      [4.8, 5, 4.9],
    ],
  ];

  test('takes the lowest value of each process, and their median', () => {
    expect(timesOf(processes)).toEqual([3.2, 4.8]);
  });

  test('compares trees within a process, not between processes', () => {
    expect(ratiosOf(processes)).toEqual([1, 3.3 / 3]);
  });
});

describe.skipIf(!hasHistory)('the ratio to the baseline', () => {
  /** Measurements that give these ratios, one after the other. */
  function measuring(...ratios: number[]): { take: () => Promise<readonly Samples[]>; left: number[] } {
    return { take: async () => [[[1], [ratios.shift()!]]], left: ratios };
  }

  test('is measured once if it is within the budget', async () => {
    const { take, left } = measuring(1.05, 9);
    expect(await ratioToBaseline(WHOLE, take)).toBe(1.05);
    expect(left).toEqual([9]);
  });

  test('is measured again if it is over the budget, and the lower one counts', async () => {
    expect(await ratioToBaseline(WHOLE, measuring(1.2, 1.01).take)).toBe(1.01);
    expect(await ratioToBaseline(WHOLE, measuring(1.06, 1.2).take)).toBe(1.06);
  });

  test('compares the sources of the commit with this checkout', async () => {
    let compared: readonly string[] = [];
    await ratioToBaseline(WHOLE, async (_, trees) => {
      compared = trees;
      return [[[1], [1]]];
    });
    const [baseline, now] = compared;
    expect(baseline).toContain(BASELINE);
    expect(existsSync(path.join(baseline!, 'packages/core/src/loop/step.ts'))).toBe(true);
    expect(existsSync(path.join(now!, 'packages/core/src/machine/step.ts'))).toBe(true);
  });
});

test('there is no tree of a commit that the repository does not have', () => {
  expect(treeOf('0'.repeat(40))).toBeUndefined();
  expect(treeOf('--all')).toBeUndefined();
});
