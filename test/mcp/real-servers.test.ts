import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { createServer, type AddressInfo } from 'node:net';
import { runLoop, textOf, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer } from '@treadle/tools/mcp';
import { afterEach, expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';

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

test('a server over HTTP that is killed and started again is used again', async () => {
  const port = await freePort();
  const start = async (): Promise<() => Promise<unknown>> => {
    const child = spawn(process.execPath, [EVERYTHING, 'streamableHttp'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...PROCESS_ENV, PORT: String(port) },
    });
    // Its first line says that it listens.
    for await (const text of child.stderr) if (String(text).includes('listening')) break;
    return async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    };
  };
  let stop = await start();
  const server = mcpServer({ name: 'every', url: `http://127.0.0.1:${port}/mcp` });
  open.push(server);
  const restart = tool({
    name: 'restart',
    description: 'Restarts the server',
    async execute() {
      await stop();
      stop = await start();
    },
  });
  const echo = { calls: [{ name: 'echo', arguments: { message: 'hi' } }] };
  const model = scriptedModel([echo, { calls: [{ name: 'restart' }] }, echo, 'done']);
  const { messages } = await runLoop({ model, tools: [restart, ...(await mcpTools(server))], input: 'go' });
  await stop();
  const results = messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  expect(results.map(({ content }) => textOf(content))).toEqual(['Echo: hi', '(no output)', 'Echo: hi']);
});

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, 'close');
  return port;
}
