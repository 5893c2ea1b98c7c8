import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryJournal, runLoop, type LoopResult } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { killProcess } from '@treadle/store/processes';
import { mcpServer, mcpTools, type McpServer, type McpServerOptions } from '@treadle/tools/mcp';
import { afterAll, afterEach, expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';

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

test.each([
  ['modern', '2026-07-28', 1],
  ['older', '2025-11-25', 1],
  // It ends at a request that it does not know.
  ['picky', '2025-11-25', 2],
])('starts a server that is %s, finds version %s, and starts %i process for that', async (mode, version, starts) => {
  const server = starting(mode);
  await expect(server.connect()).resolves.toMatchObject({ protocolVersion: version });
  expect(readFileSync(`${server.file}.starts`, 'utf8')).toHaveLength(starts);
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

test('a server that asks without end, and reads no answers, has to wait', async () => {
  const server = starting('floods', { timeoutMs: 1_000, roots: [folder] });
  expect(results(await call(server))).toEqual([expect.stringContaining('timed out after 1000 ms')]);
  expect(Number(readFileSync(server.file, 'utf8'))).toBeLessThan(10_000);
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
  // A descendant that was killed is there until its new parent has noticed.
  await expect.poll(() => pids.map(isAlive), { timeout: 10_000 }).toEqual([false, false]);
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

test('a run whose process was killed in mid-call continues in another, which ends the server that survived', async () => {
  const { file } = starting('ignores-end');
  rmSync(`${file}.called`, { force: true });
  const program = [fileURLToPath(new URL('killed-driver.ts', import.meta.url)), folder];
  const server = [process.execPath, SERVER, 'ignores-end', file];
  const driver = spawn(process.execPath, ['--conditions=treadle-source', ...program, ...server], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: PROCESS_ENV,
  });
  await expect.poll(() => existsSync(`${file}.called`), { timeout: 30_000 }).toBe(true);
  driver.kill('SIGKILL');
  await once(driver, 'exit');
  const [pid] = readFileSync(file, 'utf8').split(' ').map(Number);
  expect(isAlive(pid!)).toBe(true);

  const store = sqliteStore(path.join(folder, 'runs.db'));
  const run = { journal: store, runId: 'run', killProcess, tools: await mcpTools(starting('plain')) };
  const result = await runLoop({ ...run, model: scriptedModel([CALL, 'done']) });
  await store.close();
  expect(isAlive(pid!)).toBe(false);
  const [first, second] = results(result);
  expect(first).toContain('was interrupted');
  expect(second).toMatch(/^pid \d+$/);
});
