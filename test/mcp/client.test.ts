import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer, type McpServerOptions } from '@treadle/tools/mcp';
import { afterEach, expect, test } from 'vitest';
import { listed, scriptedServer, type Handler, type ScriptedServer } from './scripted-server.ts';

const open: McpServer[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
});

function connected(
  handlers: Record<string, Handler>,
  options: Partial<McpServerOptions> = {},
): ScriptedServer & { readonly server: McpServer } {
  const scripted = scriptedServer(handlers);
  const server = mcpServer({
    name: 'srv',
    url: 'http://mcp.test/mcp',
    fetch: scripted.fetch,
    ...options,
  } as McpServerOptions);
  open.push(server);
  return { ...scripted, server };
}

test('a run calls the tools of a server over HTTP', async () => {
  const { server } = connected({
    'tools/list': () => listed('b', 'a'),
    'tools/call': ({ params }) => ({ content: [{ type: 'text', text: `called ${params['name']}` }] }),
  });
  const tools = await mcpTools(server);
  expect(tools.map(({ name }) => name)).toEqual(['a', 'b']);
  const model = scriptedModel([{ calls: [{ name: 'b' }] }, 'done']);
  const { messages } = await runLoop({ model, tools, input: 'go' });
  expect(messages[2]).toMatchObject({ content: [{ isError: false, content: [{ type: 'text', text: 'called b' }] }] });
});
