import { test } from 'vitest';
import { startConcurrentStreams } from '../server/support/concurrent-streams.ts';
import { useServerFixture } from '../server/support/fixture.ts';

const fixture = useServerFixture();

test('serves 1,000 concurrent streams with tools, twice in a row', async () => {
  for (let round = 0; round < 2; round++) await (await startConcurrentStreams(fixture, 1_000)).finish();
});
