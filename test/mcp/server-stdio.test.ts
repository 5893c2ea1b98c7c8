import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { tool } from '@treadle/core';
import { newLog } from '@treadle/server';
import { mcpStdioServer } from '@treadle/server/mcp';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { command } from '../command/in-process.ts';
import { PROCESS_ENV } from '../process-env.ts';
import { newClient, oldClient, type Target } from './official-clients.ts';
import { storeOfTest } from '../server/support/test-store.ts';

const MAIN = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'treadle-mcp-'));
  await writeFile(join(folder, 'notes.txt'), 'Remember the milk.\n');
  await writeFile(join(folder, 'treadle.toml'), '[policy]\nautonomy = 1\n');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const target = (...flags: string[]): Target => ({
  command: process.execPath,
  args: ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning', MAIN, 'mcp', 'serve', ...flags],
  cwd: folder,
  env: PROCESS_ENV,
});

test.each([
  { name: '2', open: newClient },
  { name: '1', open: oldClient },
])('serves the tools of the folder to a client of SDK $name, and asks as the policy says', async ({ name, open }) => {
  const asked: string[] = [];
  await using client = await open(target('--tools', 'read,write,question'), {
    answer(message) {
      asked.push(message);
      return { action: 'accept', content: { approve: true } };
    },
  });
  expect((await client.tools()).map((one) => one.name)).toEqual(['read', 'write', 'question']);
  expect(await client.call('read', { path: 'notes.txt' })).toMatchObject({
    text: expect.stringContaining('Remember the milk.'),
    isError: false,
  });
  const path = `new-${name}.txt`;
  expect(await client.call('write', { path, content: 'x' })).toMatchObject({ isError: false });
  expect(asked).toHaveLength(1);
  expect(await readFile(join(folder, path), 'utf8')).toBe('x');
  expect(JSON.parse(await client.read((await client.resources()).resources[0]!.uri))).toMatchObject({
    title: 'Call write.',
    status: 'completed',
  });
});

test('with [memory], a client notes and recalls', async () => {
  await mkdir(join(folder, 'with-memory'));
  await writeFile(join(folder, 'with-memory', 'treadle.toml'), '[memory]\nenabled = true\n');
  const flags = ['--tools', 'remember,recall', '--cwd', join(folder, 'with-memory')];
  await using client = await newClient(target(...flags));
  expect((await client.tools()).map((one) => one.name)).toEqual(['recall', 'remember']);
  expect(await client.call('remember', { key: 'pet', text: 'Ann has a dog.' })).toMatchObject({ isError: false });
  expect((await client.call('recall', { query: 'dog' })).text).toContain('Ann has a dog.');
});

test('writes nothing but the protocol to standard output, and ends with its input', async () => {
  const stdin = new PassThrough();
  const sent = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18' } };
  const params = { ...sent.params, capabilities: {}, clientInfo: { name: 'x', version: '1' } };
  stdin.write(`${JSON.stringify({ ...sent, params })}\nnot JSON\n`);
  const stdout = new PassThrough();
  stdout.once('data', () => stdin.end());
  const lines: string[] = [];
  stdout.setEncoding('utf8').on('data', (text: string) => lines.push(...text.trim().split('\n')));
  const { code } = await command(['mcp', 'serve', '--store', 'memory:'], folder, { stdin, stdout });
  expect(code).toBe(0);
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ id: 1, result: { protocolVersion: '2025-06-18' } }]);
});

test('reports no progress of a call that has become a task', async () => {
  const mayEnd = Promise.withResolvers<void>();
  const slow = tool({
    name: 'slow',
    description: 'Reports',
    touches: () => [],
    async execute(_, { report }) {
      report('first');
      await mayEnd.promise;
      report('late');
      return 'Done.';
    },
  });
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  const store = await storeOfTest();
  const log = newLog({ level: 'silent' });
  const server = mcpStdioServer({ store, tools: [slow], stdin, stdout, log });
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const sent: string[] = [];
  async function answerOf(id: number, method: string, given: object): Promise<Readonly<Record<string, string>>> {
    const [version, capabilities] = ['protocolVersion', 'clientCapabilities'].map(
      (one) => `io.modelcontextprotocol/${one}`,
    );
    const extensions = { 'io.modelcontextprotocol/tasks': {} };
    const _meta = { [version!]: '2026-07-28', [capabilities!]: { extensions }, progressToken: id };
    stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...given, _meta } })}\n`);
    for (;;) {
      const { value: line } = await lines.next();
      const message = JSON.parse(line!) as { id?: number; result?: never; params?: { message?: string } };
      if (message.params?.message !== undefined) sent.push(message.params.message);
      if (message.id === id) return message.result!;
    }
  }
  const { taskId = '' } = await answerOf(1, 'tools/call', { name: 'slow', arguments: {} });
  mayEnd.resolve();
  for (let id = 2; (await answerOf(id, 'tasks/get', { taskId }))['status'] !== 'completed'; id++);
  expect(sent).toEqual(['first']);
  await server.close();
  await store.close();
});

test('refuses a subscription to tasks of a client without them', async () => {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  const [version, capabilities] = ['protocolVersion', 'clientCapabilities'].map(
    (one) => `io.modelcontextprotocol/${one}`,
  );
  const params = { notifications: { taskIds: ['x'] }, _meta: { [version!]: '2026-07-28', [capabilities!]: {} } };
  stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params })}\n`);
  const answered = once(stdout, 'data').finally(() => stdin.end());
  await command(['mcp', 'serve', '--store', 'memory:'], folder, { stdin, stdout });
  expect(JSON.parse(String(await answered))).toMatchObject({ id: 1, error: { code: -32_021 } });
});

/** The results of requests to a server in this process. */
async function exchange(
  requests: readonly (readonly [method: string, params: object])[],
  cwd: string,
  flags: readonly string[] = [],
): Promise<readonly unknown[]> {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  const clientInfo = { name: 'x', version: '1' };
  const initialize = ['initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }] as const;
  const answers: { readonly id?: number; readonly result: unknown }[] = [];
  stdout.setEncoding('utf8').on('data', (text: string) => {
    for (const line of text.trim().split('\n')) answers.push(JSON.parse(line));
    if (answers.filter(({ id }) => id !== undefined).length > requests.length) stdin.end();
  });
  for (const [id, [method, params]] of [initialize, ...requests].entries()) {
    stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    if (id === 0) stdin.write(`${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })}\n`);
  }
  await command(['mcp', 'serve', '--store', 'memory:', ...flags], cwd, { stdin, stdout });
  const ordered = answers.filter(({ id }) => id !== undefined).toSorted((x, y) => x.id! - y.id!);
  return ordered.slice(1).map(({ result }) => result);
}

test('serves skills as prompts and resources', async () => {
  const home = await mkdtemp(join(tmpdir(), 'treadle-home-'));
  vi.stubEnv('HOME', home);
  await mkdir(join(home, '.treadle/skills/review'), { recursive: true });
  const front = 'description: Reviews\nallowed-tools: Read';
  await writeFile(join(home, '.treadle/skills/review/SKILL.md'), `---\n${front}\n---\nRead, then report.\n`);
  await mkdir(join(home, '.treadle/skills/own'));
  await writeFile(
    join(home, '.treadle/skills/own/SKILL.md'),
    '---\ndescription: d\ninvocation_mode: model\n---\nOwn.\n',
  );
  const results = await exchange(
    [
      ['prompts/list', {}],
      ['prompts/get', { name: 'review' }],
      ['resources/list', {}],
      ['resources/read', { uri: 'treadle://skills/own' }],
    ],
    folder,
  );
  vi.unstubAllEnvs();
  await rm(home, { recursive: true });
  expect(results).toMatchObject([
    { prompts: [{ name: 'review', description: 'Reviews' }] },
    { messages: [{ role: 'user', content: { text: expect.stringContaining('Read, then report.') } }] },
    { resources: [{ uri: 'treadle://skills/own' }, { uri: 'treadle://skills/review', description: 'Reviews' }] },
    { contents: [{ text: expect.stringContaining('Own.') }] },
  ]);
});

test('serves agents as tools, which can be given the tools of the command line', async () => {
  const own = await mkdtemp(join(tmpdir(), 'treadle-agents-'));
  await mkdir(join(own, 'agents'));
  await writeFile(join(own, 'notes.txt'), 'Remember the milk.\n');
  const inputs = 'inputs: { path: { type: string, required: true } }';
  await writeFile(join(own, 'agents/reader.yaml'), `description: Reads.\n${inputs}\ntools: [read]\n`);
  await writeFile(join(own, 'agents/worker.yaml'), 'description: Works.\ntools: [bash]\n');
  const call = (name: string, args: object) => ['tools/call', { name, arguments: args }] as const;
  const requests = [
    ['tools/list', {}] as const,
    call('agent_reader', { path: 'notes.txt' }),
    call('agent_reader', {}),
    call('agent_worker', { task: 'x' }),
  ];
  const results = await exchange(requests, own, ['--model', 'demo']);
  const said = (text: string): object => ({ content: [{ type: 'text', text: expect.stringContaining(text) }] });
  const tools = ['read', 'glob', 'grep', 'agent_reader', 'agent_worker'].map((name) => ({ name }));
  expect(results).toMatchObject([
    { tools },
    said('Remember the milk.'),
    { isError: true, ...said('path') },
    { isError: true, ...said('there is no tool "bash"') },
  ]);
  await rm(own, { recursive: true });
});

test.each([
  ['sends a message that is too large', (stdin: PassThrough) => stdin.write('x'.repeat(11_000_000))],
  ['does not read any more', (_: PassThrough, stdout: PassThrough) => stdout.destroy(new Error('EPIPE'))],
])('ends if its client %s', async (_, act) => {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  stdout.once('data', () => act(stdin, stdout));
  stdin.write('{"jsonrpc":"2.0","id":1,"method":"server/discover"}\n');
  const { code } = await command(['mcp', 'serve', '--store', 'memory:'], folder, { stdin, stdout });
  expect(code).toBe(0);
});

test('says at the start where commands run, if it serves a tool that starts programs', async () => {
  for (const [tools, isNamed] of [
    ['bash', true],
    ['read', false],
  ] as const) {
    let shown = '';
    const stderr = new PassThrough().setEncoding('utf8').on('data', (text: string) => (shown += text));
    await command(['mcp', 'serve', '--store', 'memory:', '--tools', tools], folder, {
      stdin: new PassThrough().end(),
      stderr: stderr as PassThrough,
    });
    expect([tools, /^(No sandbox|Sandbox: )/m.test(shown)]).toEqual([tools, isNamed]);
  }
});

test('refuses tools that it does not have', async () => {
  const { code, stderr } = await command(['mcp', 'serve', '--tools', 'reed'], folder);
  expect([code, stderr]).toEqual([2, expect.stringContaining('--tools names "reed", which is not a tool.')]);
});
