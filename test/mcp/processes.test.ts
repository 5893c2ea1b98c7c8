import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { memoryJournal, runLoop, type LoopResult } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer, type McpServerOptions } from '@treadle/tools/mcp';
import { afterAll, afterEach, expect, test } from 'vitest';

const SERVER = path.join(import.meta.dirname, 'hostile-stdio.mjs');
const folder = mkdtempSync(path.join(tmpdir(), 'treadle-mcp-'));
afterAll(() => rmSync(folder, { recursive: true }));

const open: McpServer[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
});

function starting(mode: string, options: Partial<McpServerOptions> = {}): McpServer & { readonly file: string } {
  const file = path.join(folder, mode);
  const started = { name: 'srv', command: process.execPath, args: [SERVER, mode, file] };
  const server = mcpServer({ ...started, ...options } as McpServerOptions);
  open.push(server);
  return { ...server, file };
}

const CALL = { calls: [{ name: 'tool' }] };

async function call(server: McpServer, times = 1, options: object = {}): Promise<LoopResult> {
  const script = [...Array.from({ length: times }, () => CALL), 'done'];
  return runLoop({ model: scriptedModel(script), tools: await mcpTools(server), input: 'go', ...options });
}

const results = ({ messages }: LoopResult): readonly string[] =>
  messages.flatMap(({ role, content }) =>
    role === 'tool'
      ? content.map((one) => one.content.map((block) => ('text' in block ? block.text : '')).join(''))
      : [],
  );

/** A zombie has ended. */
function isAlive(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  return existsSync(stat) && !/^\d+ \(.*\) Z/s.test(readFileSync(stat, 'utf8'));
}

test('says why a server cannot be started, or how it ended', async () => {
  const missing = mcpServer({ name: 'srv', command: 'no-such-program-anywhere' });
  await expect(missing.connect()).rejects.toMatchObject({
    code: 'cannot-start',
    message: expect.stringContaining('There is no program "no-such-program-anywhere"'),
  });
  await expect(starting('dies').connect()).rejects.toMatchObject({
    code: 'ended',
    message: 'MCP server "srv" ended: exit code 3; its last output: no licence[31m found.',
  });
});

test('connects to a server that ends at an unknown request, and remembers its version', async () => {
  const server = starting('picky');
  await expect(server.connect()).resolves.toMatchObject({ protocolVersion: '2025-11-25' });
});

test('a result of 100 MB ends the server, not this process', async () => {
  const before = process.memoryUsage().rss;
  const [result] = results(await call(starting('large')));
  expect(result).toContain('sent a message of more than 16777216 bytes');
  expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024);
});

test('a call ends at its time limit if the answer only drips', async () => {
  const [result] = results(await call(starting('drips', { timeoutMs: 200 })));
  expect(result).toContain('timed out after 200 ms');
});

test('a server that dies in mid-call is started again for the next call', async () => {
  const [first, second] = results(await call(starting('crashes'), 2));
  expect(first).toContain('ended: signal SIGKILL. It is not known whether the call took effect');
  expect(second).toMatch(/^pid \d+$/);
});

test('a server that hangs is killed, and started again for the next call', async () => {
  const server = starting('hangs', { timeoutMs: 200 });
  const [first] = results(await call(server));
  expect(first).toContain('timed out after 200 ms');
  const pid = Number(readFileSync(server.file, 'utf8'));
  await expect.poll(() => isAlive(pid), { timeout: 10_000 }).toBe(false);
  expect(results(await call(server))).toEqual([expect.stringMatching(/^pid \d+$/)]);
});

test('closing a server kills its process and all descendants', async () => {
  const server = starting('ignores-end');
  await server.connect();
  const pids = readFileSync(server.file, 'utf8').split(' ').map(Number);
  expect(pids.map(isAlive)).toEqual([true, true]);
  await server.close();
  expect(pids.map(isAlive)).toEqual([false, false]);
  await expect(server.listTools()).rejects.toMatchObject({ code: 'closed' });
});

test('the process of a server is recorded with the run, to be killed if it survives', async () => {
  const journal = memoryJournal();
  const [result] = results(await call(starting('plain'), 1, { journal, runId: 'r' }));
  const pid = Number(result!.slice(4));
  const events = (await journal.read('r')).map(({ event }) => event);
  expect(events).toContainEqual(
    expect.objectContaining({ type: 'resource-opened', process: expect.objectContaining({ pid }) }),
  );
});
