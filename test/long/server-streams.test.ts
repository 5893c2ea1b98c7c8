import { test } from 'vitest';
import { useServerFixture } from '../server/support/fixture.ts';
import { checkInterruptedRuns, checkSameResponses } from '../server/support/stream-properties.ts';

const fixture = useServerFixture({ logLevel: 'silent' });

/** The same checks as test/server/streams.test.ts, with more runs and other seeds. */
test('random conversations keep the stream rules and are the same streamed, not streamed and fetched', async () => {
  await checkSameResponses(fixture, 3_000);
});

test('interrupted random runs keep the stream rules and are stored as they were streamed', async () => {
  await checkInterruptedRuns(fixture, 3_000);
});
