import { expect, test } from 'vitest';
import { stage } from './clients/stage.ts';
import { manyStreams } from './streams/many.ts';

const here = stage();

test('200 streams with tools at the same time', async () => {
  const many = await manyStreams(here, 200);
  // There is room for one more.
  const answer = await fetch(`${here.server.url}/readyz`);
  expect(answer.status).toBe(200);
  await many.finish();
});
