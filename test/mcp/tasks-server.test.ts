import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { defineAgent, Parked, tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, mcpAgent, type TreadleServerOptions } from '@treadle/server';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { startInProcess, type InProcessServer, type JsonAnswer } from '../server/support/in-process.ts';
import { storeOfTest } from '../server/support/test-store.ts';

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
  const store = await storeOfTest();
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

const EXTENSION = { extensions: { 'io.modelcontextprotocol/tasks': {} } };

/** A client of 2026-07-28 with the extension. Returns the result of a request, or its error. */
function modern({ send }: InProcessServer, { elicits = false }: { elicits?: boolean } = {}) {
  return async (
    method: string,
    params: { readonly name?: string; readonly taskId?: string; readonly [more: string]: unknown },
    capabilities: object = { ...EXTENSION, ...(elicits && { elicitation: {} }) },
  ): Promise<JsonAnswer['body']> => {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': capabilities,
    };
    const headers = {
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      'mcp-name': params.name ?? params.taskId ?? '',
    };
    const request = { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } };
    const { body } = await send('POST', '/mcp', request, headers);
    return body.result ?? body.error;
  };
}

/** An agent that erases two files, which needs two approvals. `a` is erased when that may end. */
function cleaner({ mayBegin, mayEnd }: Record<'mayBegin' | 'mayEnd', Promise<void>>) {
  const erase = tool({
    name: 'erase',
    description: 'Erases a file',
    input: z.object({ path: z.string() }),
    needsApproval: true,
    touches: () => [],
    async execute({ path }) {
      if (path === 'a') await mayEnd;
      return `Erased ${path}.`;
    },
  });
  const calls = ['a', 'b'].map((path) => ({ name: 'erase', arguments: { path } }));
  const model = scriptedModel([{ calls }, { calls: [{ name: 'report', arguments: { erased: 2 } }] }]);
  const agent = defineAgent({
    name: 'clean_up',
    description: 'Erases files',
    model: { ...model, reply: async (...given) => mayBegin.then(() => model.reply(...given)) },
    prompts: { user: () => 'Clean up.' },
    tools: { helpers: [erase], output: { name: 'report', description: 'Reports' } },
    validation: { outputSchema: z.object({ erased: z.number() }), maxAttempts: 1 },
  });
  return mcpAgent({ agent, input: z.object({}) });
}

test('an agent that waits for two approvals gets them one after the other, also while a call is made', async () => {
  const [began, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const agents = [cleaner({ mayBegin: began.promise, mayEnd: ended.promise })];
  await using server = await start([], { mcp: { agents } });
  const rpc = modern(server, { elicits: true });
  const { taskId } = await rpc('tools/call', { name: 'clean_up', arguments: {} });
  began.resolve();
  await expect.poll(async () => (await rpc('tasks/get', { taskId })).status).toBe('input_required');
  const keys = Object.keys((await rpc('tasks/get', { taskId })).inputRequests);
  const approve = (key: string): Promise<unknown> =>
    rpc('tasks/update', { taskId, inputResponses: { [key]: { action: 'accept', content: { approve: true } } } });
  // It is acknowledged when it is stored, and not when the agent has ended.
  expect(await approve(keys[0]!)).toMatchObject({ resultType: 'complete' });
  expect(await rpc('tasks/get', { taskId })).toMatchObject({ status: 'working' });
  const second = approve(keys[1]!);
  ended.resolve();
  expect(await second).toMatchObject({ resultType: 'complete' });
  await expect
    .poll(async () => rpc('tasks/get', { taskId }))
    .toMatchObject({ status: 'completed', result: { structuredContent: { erased: 2 } } });
});

test('responses that come twice are acknowledged, and those that do not fit are refused', async () => {
  const began = Promise.withResolvers<void>();
  const late = tool({
    ...book,
    name: 'late',
    execute: (...given) => began.promise.then(() => book.execute!(...given)),
  });
  await using server = await start([late]);
  const rpc = modern(server, { elicits: true });
  const { taskId } = await rpc('tools/call', { name: 'late', arguments: {} });
  began.resolve();
  await expect.poll(async () => (await rpc('tasks/get', { taskId })).status).toBe('input_required');
  const [key = ''] = Object.keys((await rpc('tasks/get', { taskId })).inputRequests);
  const answer = (seat: unknown): Promise<unknown> =>
    rpc('tasks/update', { taskId, inputResponses: { [key]: { action: 'accept', content: { seat } } } });
  expect(await answer(7)).toMatchObject({ code: -32_602, message: expect.stringContaining('does not fit') });
  const accepted = { resultType: 'complete' };
  expect(await Promise.all([1, 2, 3, 4].map(() => answer('7a')))).toMatchObject([
    accepted,
    accepted,
    accepted,
    accepted,
  ]);
  expect(await answer('7b')).toMatchObject(accepted);
  await expect
    .poll(async () => rpc('tasks/get', { taskId }))
    .toMatchObject({ status: 'completed', result: { content: text('Booked {"seat":"7a"}') } });
});

test('a task can be looked at while its call is denied', async () => {
  const erase = tool({ ...book, name: 'erase', needsApproval: true, execute: () => 'Erased.' });
  await using server = await start([erase]);
  await using one = await connect(server);
  for (let attempt = 0; attempt < 5; attempt++) {
    const id = await one.create('erase');
    const looks = await Promise.all([1, 2, 3, 4].map(async () => (await one.tasks.getTask(id)).status));
    expect(['working', 'failed']).toEqual(expect.arrayContaining(looks));
    expect(await one.result(id)).toMatchObject([{ text: expect.stringContaining('was not approved') }]);
  }
});

test('a client without the extension cannot subscribe to tasks', async () => {
  await using server = await start([]);
  const listen = (capabilities: object): Promise<unknown> =>
    modern(server)('subscriptions/listen', { notifications: { taskIds: ['x'] } }, capabilities);
  expect(await listen({})).toMatchObject({ code: -32_021, data: { requiredCapabilities: EXTENSION } });
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
  const rpc = modern(server);
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
