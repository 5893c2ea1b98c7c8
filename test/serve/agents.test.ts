import { expect, test } from 'vitest';
import { newClient } from '../mcp/official-clients.ts';
import { useServeFixture } from './serve-command.ts';

const fixture = useServeFixture();

test('the tools task and agents_list of the server know the agents', async () => {
  await fixture.play.write('agents/finder.yaml', 'description: Finds files.\n');
  await fixture.configure('[server]\ntools = ["read", "task"]');
  const server = await fixture.serve();
  await using client = await newClient(server);
  expect(JSON.stringify(await client.call('agents_list', {}))).toContain('- finder: Finds files.');
});
