import { expect, test } from 'vitest';
import { checkDisconnects } from '../server/support/disconnecting-clients.ts';
import { useServerFixture } from '../server/support/fixture.ts';

const fixture = useServerFixture({ logLevel: 'silent' });

/** The same check as test/server/disconnect.test.ts, with more clients. */
test('frees all resources of thousands of clients that disconnect at any moment', async ({ annotate }) => {
  await checkDisconnects(fixture, 80);
  const before = await fixture.server.usage();
  await checkDisconnects(fixture, 160);
  const after = await fixture.server.usage();
  const growth = after.heap / before.heap - 1;
  await annotate(`${(growth * 100).toFixed(2)}% of ${(before.heap / 1024 ** 2).toFixed(2)} MB`);
  expect(growth).toBeLessThan(0.02);
  expect(after.connections).toBeLessThan(30);
});
