import { createRequire } from 'node:module';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer } from '@treadle/tools/mcp';
import { afterEach, expect, test } from 'vitest';

const EVERYTHING = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');

const open: McpServer[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
});

test('a run calls the tools of a server that is a process', async () => {
  const server = mcpServer({ name: 'every', command: process.execPath, args: [EVERYTHING, 'stdio'] });
  open.push(server);
  const calls = [
    { name: 'echo', arguments: { message: 'hi' } },
    { name: 'get-structured-content', arguments: { location: 'New York' } },
    { name: 'get-env', arguments: {} },
  ];
  process.env['MCP_TEST_SECRET'] = 'do not pass on';
  const { messages } = await runLoop({
    model: scriptedModel([{ calls }, 'done']),
    tools: await mcpTools(server),
    input: 'go',
  });
  delete process.env['MCP_TEST_SECRET'];
  const results = messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  expect(results).toMatchObject([
    { name: 'echo', isError: false, content: [{ type: 'text', text: 'Echo: hi' }] },
    { name: 'get-structured-content', isError: false },
    { name: 'get-env', isError: false },
  ]);
  expect(JSON.stringify(results)).not.toContain('do not pass on');
});
