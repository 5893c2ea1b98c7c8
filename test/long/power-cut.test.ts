import { afterEach, expect, test } from 'vitest';
import { stopLeftovers } from '../command/treadle-process.ts';
import { powerCuts, type PowerCutOptions, type PowerCuts } from '../crash/power/power-cuts.ts';

afterEach(stopLeftovers);

/** `TREADLE_SEED` and `TREADLE_CUTS` choose others: what a seed decides is what clients do, and when the power is cut. */
const SEED = Number(process.env['TREADLE_SEED'] ?? Date.now() % 1_000_000);
const CUTS = Number(process.env['TREADLE_CUTS'] ?? 15);

async function cut(
  options: Omit<PowerCutOptions, 'seed'>,
  annotate: (text: string) => Promise<unknown>,
): Promise<PowerCuts> {
  const found = await powerCuts({ seed: SEED, ...options });
  const { told, cutsWithLosses, lost } = found;
  await annotate(
    `seed ${SEED}: ${options.cuts} cuts, ${told} facts told, ${lost.length} lost in ${cutsWithLosses} cuts`,
  );
  return found;
}

for (const syncMs of [1, 40]) {
  test(`nothing that a client of two servers was told is lost in a power cut, if a sync takes ${syncMs} ms`, async ({
    annotate,
  }) => {
    const { told, lost } = await cut({ cuts: CUTS, syncMs }, annotate);
    expect(told).toBeGreaterThan(CUTS);
    expect(lost).toEqual([]);
  });
}

test('losses are found if syncs do nothing', async ({ annotate }) => {
  const { lost } = await cut({ cuts: 2, syncMs: 1, isSyncDisabled: true }, annotate);
  expect(lost.length).toBeGreaterThan(0);
});
