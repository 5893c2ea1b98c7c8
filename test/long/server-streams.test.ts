import { test } from 'vitest';
import { stage } from '../server/clients/stage.ts';
import { keptWhenCut, sameHoweverAsked } from '../server/streams/property.ts';

const here = stage({ logLevel: 'silent' });

/** The same as test/server/stream-property.test.ts, twenty times as often and with other seeds. */
test('random conversations keep the rules of streams, and are the same however they are asked for', async () => {
  await sameHoweverAsked(here, 3_000);
});

test('random runs that are cut off keep them too, and are kept as they were told', async () => {
  await keptWhenCut(here, 3_000);
});
