import { expect, test } from 'vitest';
import { startConcurrentStreams } from './support/concurrent-streams.ts';
import { useServerFixture } from './support/fixture.ts';

const fixture = useServerFixture();

test('serves 200 concurrent streams with tools, and stays ready for more', async () => {
  const streams = await startConcurrentStreams(fixture, 200);
  const answer = await fetch(`${fixture.server.url}/readyz`);
  expect(answer.status).toBe(200);
  await streams.finish();
});
