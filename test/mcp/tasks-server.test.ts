import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Parked, tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type TreadleServerOptions } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';

const FORM = { type: 'object', properties: { seat: { type: 'string' } }, required: ['seat'] } as const;
const EMPTY = { type: 'object', properties: {} } as const;

function start(tools: readonly Tool[], options: Partial<TreadleServerOptions> = {}): Promise<InProcessServer> {
  return startInProcess(scriptedModel([]), { tools, ...options });
}

const book = tool({
  name: 'book',
  description: 'Books a seat',
  input: EMPTY,
  touches: () => [],
  execute: async (_, { ask }) => `Booked ${JSON.stringify(await ask({ prompt: 'Which seat?', schema: FORM }))}`,
});

interface Gate {
  readonly tool: Tool;
  readonly started: Promise<void>;
  readonly open: () => void;
}

/** A tool whose call ends when the gate is open. */
function gated(): Gate {
  const [started, opened] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const wait = tool({
    name: 'wait',
    description: 'Waits',
    input: EMPTY,
    effect: 'pure',
    touches: () => [],
    async execute(_, { signal }) {
      started.resolve();
      const aborted = Promise.withResolvers<never>();
      signal.addEventListener('abort', () => aborted.reject(signal.reason));
      await Promise.race([opened.promise, aborted.promise]);
      return 'It is open.';
    },
  });
  return { tool: wait, started: started.promise, open: opened.resolve };
}

/** The official client of 2025-11-25, which has tasks. */
async function connect({ url }: InProcessServer, { key, seat }: { key?: string; seat?: string } = {}) {
  const client = new Client(
    { name: 'test', version: '1' },
    { capabilities: seat === undefined ? {} : { elicitation: {} } },
  );
  const asked: unknown[] = [];
  if (seat !== undefined) {
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      asked.push(params._meta?.['io.modelcontextprotocol/related-task']);
      return { action: 'accept', content: { seat } };
    });
  }
  const headers = key === undefined ? {} : { requestInit: { headers: { authorization: `Bearer ${key}` } } };
  const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), headers);
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  const { tasks } = client.experimental;
  return {
    client,
    tasks,
    asked,
    async create(name: string): Promise<string> {
      const request = { method: 'tools/call', params: { name, arguments: {} } } as const;
      const { task } = await client.request(request, CreateTaskResultSchema, { task: { ttl: 60_000 } });
      expect(task).toMatchObject({ status: 'working', ttl: null, pollInterval: 1_000 });
      return task.taskId;
    },
    result: async (id: string) => (await tasks.getTaskResult(id, CallToolResultSchema)).content,
    [Symbol.asyncDispose]: () => client.close(),
  };
}

const text = (said: string): object[] => [{ type: 'text', text: said }];

test('a client of 2025-11-25 gets a task, its state, its result and the list of them', async () => {
  const { tool: wait, started, open } = gated();
  await using server = await start([wait]);
  await using one = await connect(server);
  expect((await one.client.listTools()).tools[0]).toMatchObject({ execution: { taskSupport: 'optional' } });
  const id = await one.create('wait');
  await started;
  expect(await one.tasks.getTask(id)).toMatchObject({ taskId: id, status: 'working' });
  const result = one.result(id);
  open();
  expect(await result).toEqual(text('It is open.'));
  expect(await one.tasks.getTask(id)).toMatchObject({ taskId: id, status: 'completed', ttl: expect.any(Number) });
  expect(await one.tasks.listTasks()).toMatchObject({ tasks: [{ taskId: id, status: 'completed' }] });
  // Without a task, it waits for the result.
  expect(await one.client.callTool({ name: 'wait' })).toMatchObject({ content: text('It is open.') });
  const failed = await one.create('nothing').catch((error: Error) => error.message);
  expect(failed).toContain('There is no tool "nothing"');
});

test('a task asks its client while that waits for the result', async () => {
  await using server = await start([book]);
  await using one = await connect(server, { seat: '7a' });
  const id = await one.create('book');
  await expect.poll(async () => (await one.tasks.getTask(id)).status).toBe('input_required');
  expect(await one.result(id)).toEqual(text('Booked {"seat":"7a"}'));
  expect(one.asked).toEqual([{ taskId: id }]);
});

test('a task asks a client that only looks at its state on the stream of the session', async () => {
  const two = tool({
    name: 'two',
    description: 'Books two seats',
    input: EMPTY,
    touches: () => [],
    async execute(_, { ask }) {
      const first = await ask({ prompt: 'The first?', schema: FORM });
      return JSON.stringify([first, await ask({ prompt: 'The second?', schema: FORM })]);
    },
  });
  await using server = await start([two]);
  await using one = await connect(server, { seat: '7b' });
  const id = await one.create('two');
  await expect.poll(async () => (await one.tasks.getTask(id)).status).toBe('completed');
  expect(one.asked).toEqual([{ taskId: id }, { taskId: id }]);
  expect(await one.result(id)).toEqual(text('[{"seat":"7b"},{"seat":"7b"}]'));
});

test('a task that asks a client which cannot be asked fails', async () => {
  await using server = await start([book]);
  await using one = await connect(server);
  const id = await one.create('book');
  await expect.poll(async () => (await one.tasks.getTask(id)).status).toBe('failed');
  await expect(one.result(id)).rejects.toMatchObject({ code: -32_021 });
});

test('a task is cancelled once, and stays cancelled', async () => {
  const { tool: wait, started } = gated();
  await using server = await start([wait]);
  await using one = await connect(server);
  const id = await one.create('wait');
  await started;
  expect(await one.tasks.cancelTask(id)).toMatchObject({ taskId: id, status: 'cancelled' });
  await expect(one.tasks.cancelTask(id)).rejects.toMatchObject({ code: -32_602 });
  expect(await one.tasks.getTask(id)).toMatchObject({ status: 'cancelled' });
  expect(await one.result(id)).toEqual(text('Not finished: the run was cancelled.'));
});

test('another key of the same tenant has no such task', async () => {
  const { tool: wait, open } = gated();
  const keys = ['ann', 'bob'].map((name) => {
    return { name, tenant: 'both', hash: hashKey(name), scopes: ['tools:execute'] as const };
  });
  await using server = await start([wait], { keys });
  await using ann = await connect(server, { key: 'ann' });
  await using bob = await connect(server, { key: 'bob' });
  const id = await ann.create('wait');
  const unknown = { code: -32_602, message: expect.stringContaining(`There is no task "${id}" of this key`) };
  await expect(bob.tasks.getTask(id)).rejects.toMatchObject(unknown);
  await expect(bob.result(id)).rejects.toMatchObject(unknown);
  await expect(bob.tasks.cancelTask(id)).rejects.toMatchObject(unknown);
  expect(await bob.tasks.listTasks()).toEqual({ tasks: [] });
  open();
  expect(await ann.result(id)).toEqual(text('It is open.'));
});

test('a task survives the server, also while it waits for an answer', async () => {
  const store = sqliteStore(':memory:');
  const first = gated();
  const ids = await (async () => {
    await using server = await start([first.tool, book], { store });
    await using one = await connect(server, { seat: '1' });
    const both = [await one.create('wait'), await one.create('book')];
    await first.started;
    await expect.poll(async () => (await one.tasks.getTask(both[1]!)).status).toBe('input_required');
    return both;
  })();
  const second = gated();
  second.open();
  await using server = await start([second.tool, book], { store });
  await using one = await connect(server, { seat: '2' });
  expect(await one.result(ids[0]!)).toEqual(text('It is open.'));
  expect(await one.result(ids[1]!)).toEqual(text('Booked {"seat":"2"}'));
});

test('a call that is parked becomes a task of a client with the extension, and is answered by somebody else', async () => {
  const door = tool({
    name: 'door',
    description: 'Opens a door',
    input: EMPTY,
    touches: () => [],
    execute: () => new Parked('door'),
  });
  await using server = await start([door]);
  const rpc = async (method: string, params: { readonly name?: string; readonly taskId?: string }): Promise<never> => {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': { extensions: { 'io.modelcontextprotocol/tasks': {} } },
    };
    const headers = {
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      'mcp-name': params.name ?? params.taskId ?? '',
    };
    const request = { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } };
    return (await server.send('POST', '/mcp', request, headers)).body.result as never;
  };
  const { taskId, resultType } = await rpc('tools/call', { name: 'door' });
  expect(resultType).toBe('task');
  const message = 'It waits for something that takes long.';
  expect(await rpc('tasks/get', { taskId })).toMatchObject({ status: 'working', statusMessage: message });
  const answers = [{ type: 'result', effect: 't1.tool.0', content: 'It is open.' }];
  expect((await server.send('POST', `/v1/runs/${taskId}/answers`, { answers })).status).toBe(200);
  await expect
    .poll(async () => rpc('tasks/get', { taskId }))
    .toMatchObject({ status: 'completed', result: { resultType: 'complete', content: text('It is open.') } });
});
