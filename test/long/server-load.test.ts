import { test } from 'vitest';
import { stage } from '../server/clients/stage.ts';
import { manyStreams } from '../server/streams/many.ts';

const here = stage();

test('1,000 streams with tools at the same time, and again', async () => {
  for (let round = 0; round < 2; round++) await (await manyStreams(here, 1_000)).finish();
});
