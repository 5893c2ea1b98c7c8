import { expect, test } from 'vitest';
import { addIdleConversations, startConcurrentChats } from './support/concurrent-chats.ts';
import { startConcurrentStreams } from './support/concurrent-streams.ts';
import { useServerFixture } from './support/fixture.ts';

const fixture = useServerFixture({ chatTitles: false });

test('serves 100 concurrent streams with tools, and stays ready for more', async () => {
  const streams = await startConcurrentStreams(fixture, 100);
  const answer = await fetch(`${fixture.server.url}/readyz`);
  expect(answer.status).toBe(200);
  await streams.finish();
});

test('serves 20 concurrent chats with tools beside 50 idle conversations', async () => {
  await addIdleConversations(fixture, 50);
  const chats = await startConcurrentChats(fixture, 20);
  await addIdleConversations(fixture, 1);
  await chats.finish();
});
