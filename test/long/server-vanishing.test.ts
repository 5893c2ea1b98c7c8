import { expect, test } from 'vitest';
import { stage } from '../server/clients/stage.ts';
import { vanishingCrowds } from '../server/streams/crowds.ts';

const here = stage({ logLevel: 'silent' });

/** The same as test/server/vanishing.test.ts, ten times as often. */
test('clients that vanish at any moment leave nothing behind, however many they are', async ({ annotate }) => {
  await vanishingCrowds(here, 80);
  const before = await here.server.usage();
  await vanishingCrowds(here, 160);
  const after = await here.server.usage();
  const growth = after.heap / before.heap - 1;
  await annotate(`${(growth * 100).toFixed(2)}% of ${(before.heap / 1024 ** 2).toFixed(2)} MB`);
  expect(growth).toBeLessThan(0.02);
  expect(after.connections).toBeLessThan(30);
});
