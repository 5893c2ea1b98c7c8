import { expect, test } from 'vitest';
import { addIdleConversations, startConcurrentChats } from '../server/support/concurrent-chats.ts';
import { startConcurrentStreams } from '../server/support/concurrent-streams.ts';
import { useServerFixture } from '../server/support/fixture.ts';

const fixture = useServerFixture({ chatTitles: false });

test('serves 1,000 concurrent streams with tools, twice in a row', async () => {
  for (let round = 0; round < 2; round++) await (await startConcurrentStreams(fixture, 1_000)).finish();
});

test('serves 100 concurrent chats with tools beside 1,000 idle conversations, which take no memory', async ({
  annotate,
}) => {
  await addIdleConversations(fixture, 500);
  const before = await fixture.server.heap();
  await addIdleConversations(fixture, 1_000);
  const perConversation = ((await fixture.server.heap()) - before) / 1_000;
  await annotate(`${perConversation.toFixed(0)} bytes of heap per idle conversation`);
  expect(perConversation).toBeLessThan(256);
  for (let round = 0; round < 2; round++) {
    const chats = await startConcurrentChats(fixture, 100);
    await addIdleConversations(fixture, 10);
    await chats.finish();
  }
});
