import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runLoop, textOf, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer } from '@treadle/tools/mcp';
import { afterEach, expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';

const require = createRequire(import.meta.url);
const EVERYTHING = require.resolve('@modelcontextprotocol/server-everything/dist/index.js');
const FILESYSTEM = require.resolve('@modelcontextprotocol/server-filesystem/dist/index.js');
const MEMORY = require.resolve('@modelcontextprotocol/server-memory/dist/index.js');

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

test('a run uses the tools of two servers that are processes', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-mcp-'));
  writeFileSync(path.join(folder, 'a.txt'), 'some text');
  const command = process.execPath;
  const files = mcpServer({ name: 'files', command, args: [FILESYSTEM, folder], trustAnnotations: true });
  const env = { MEMORY_FILE_PATH: path.join(folder, 'memory.json') };
  const memory = mcpServer({ name: 'memory', command, args: [MEMORY], env });
  open.push(files, memory);
  const tools = await mcpTools([files, memory]);
  expect(tools.find(({ name }) => name === 'read_text_file')).toMatchObject({ effect: 'pure' });
  const entities = [{ name: 'Ada', entityType: 'person', observations: ['wrote a program'] }];
  const calls = [
    { name: 'read_text_file', arguments: { path: path.join(folder, 'a.txt') } },
    { name: 'create_entities', arguments: { entities } },
  ];
  const { messages } = await runLoop({ model: scriptedModel([{ calls }, 'done']), tools, input: 'go' });
  rmSync(folder, { recursive: true });
  const [read, created] = messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  expect(textOf(read!.content)).toContain('some text');
  expect(textOf(created!.content)).toContain('wrote a program');
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
