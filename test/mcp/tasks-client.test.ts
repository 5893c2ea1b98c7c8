import { randomUUID } from 'node:crypto';
import { InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks';
import { McpServer as OfficialServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { memoryJournal, runLoop, startLoop, tool, type Answer, type LoopResult } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer, type McpServerOptions } from '@treadle/tools/mcp';
import { afterEach, describe, expect, test } from 'vitest';
import { startInProcess } from '../server/support/in-process.ts';
import { discovered, listed, RpcError, scriptedServer, type Handler } from './scripted-server.ts';

const open: { close: () => Promise<unknown> }[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
});

interface Connect {
  readonly url: string;
  readonly fetch: typeof fetch;
}

/** A server whose tool `job` ends when it may. */
interface Counterpart {
  readonly connect: Connect;
  /** Whether the client knows that there is a task. */
  readonly isAsked: () => boolean;
  /** How often the job was begun. */
  readonly begun: () => number;
  readonly finish: () => void;
  readonly isCancelled: () => boolean | Promise<boolean>;
}

/** A store whose tasks outlive a session. */
class SharedTasks extends InMemoryTaskStore {
  override createTask(...[params, id, request]: Parameters<InMemoryTaskStore['createTask']>) {
    return super.createTask(params, id, request);
  }
}

/** The official server of 2025-11-25 that has tasks. */
async function officialServer(): Promise<Counterpart> {
  const [store, done] = [new SharedTasks(), Promise.withResolvers<void>()];
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();
  let [begun, last] = [0, ''];
  async function session(): Promise<WebStandardStreamableHTTPServerTransport> {
    const capabilities = { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
    const server = new OfficialServer({ name: 'official', version: '1' }, { capabilities, taskStore: store });
    const described = { description: 'Works', execution: { taskSupport: 'required' } } as const;
    server.experimental.tasks.registerToolTask('job', described, {
      async createTask({ taskStore }) {
        const task = await taskStore.createTask({ ttl: 60_000, pollInterval: 10 });
        [begun, last] = [begun + 1, task.taskId];
        const result = { content: [{ type: 'text' as const, text: 'the work is done' }] };
        void done.promise.then(() => taskStore.storeTaskResult(task.taskId, 'completed', result));
        return { task };
      },
      getTask: async ({ taskStore, taskId }) => taskStore.getTask(taskId),
      getTaskResult: async ({ taskStore, taskId }) => (await taskStore.getTaskResult(taskId)) as { content: [] },
    });
    const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
    });
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    open.push(server);
    return transport;
  }
  return {
    ...watched('http://mcp.test/mcp', async (input, init) => {
      const request = new Request(input as string, init);
      const known = sessions.get(request.headers.get('mcp-session-id') ?? '');
      return (known ?? (await session())).handleRequest(request);
    }),
    begun: () => begun,
    finish: done.resolve,
    isCancelled: async () => (await store.getTask(last))?.status === 'cancelled',
  };
}

/** Our own, of 2026-07-28. */
async function ownServer(): Promise<Counterpart> {
  const done = Promise.withResolvers<void>();
  let [begun, isCancelled] = [0, false];
  const job = tool({
    name: 'job',
    description: 'Works',
    input: { type: 'object', properties: {} },
    touches: () => [],
    async execute(_, { signal }) {
      begun += 1;
      const aborted = Promise.withResolvers<void>();
      signal.addEventListener('abort', () => aborted.resolve());
      await Promise.race([done.promise, aborted.promise]);
      isCancelled = signal.aborted;
      return 'the work is done';
    },
  });
  const server = await startInProcess(scriptedModel([]), { tools: [job] });
  open.push({ close: async () => server[Symbol.asyncDispose]() });
  return {
    ...watched(`${server.url}/mcp`, fetch),
    begun: () => begun,
    finish: done.resolve,
    isCancelled: () => isCancelled,
  };
}

function watched(url: string, send: typeof fetch): Pick<Counterpart, 'connect' | 'isAsked'> {
  let isAsked = false;
  const watching: typeof fetch = (input, init) => {
    isAsked ||= String(init?.body).includes('"method":"tasks/');
    return send(input, init);
  };
  return { connect: { url, fetch: watching }, isAsked: () => isAsked };
}

/** As another process would connect. */
function connectTo(connect: Connect, options: Partial<McpServerOptions> = {}): McpServer {
  const server = mcpServer({ name: 'srv', ...connect, ...options } as McpServerOptions);
  open.push(server);
  return server;
}

function said({ messages }: LoopResult): string {
  const results = messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  return results.map(({ content }) => content.map((block) => ('text' in block ? block.text : '')).join('')).join('\n');
}

const CALL: ScriptStep = { calls: [{ name: 'job' }] };

describe.each([
  ['2025-11-25', officialServer],
  ['2026-07-28', ownServer],
])('a server of %s', (_, start) => {
  test('makes a task of a call, and the call has its result', async () => {
    const one = await start();
    const tools = await mcpTools(connectTo(one.connect));
    const run = runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go', journal: memoryJournal() });
    await expect.poll(one.begun).toBe(1);
    one.finish();
    expect(said(await run)).toBe('the work is done');
  });

  test('has the result for another process, which does not make the call again', async () => {
    const one = await start();
    const run = { journal: memoryJournal(), runId: 'r' };
    const resume = async (...script: ScriptStep[]): Promise<LoopResult> => {
      const tools = await mcpTools(connectTo(one.connect, { parkAfterMs: 0 }));
      return runLoop({ ...run, model: scriptedModel(script), tools });
    };
    const tools = await mcpTools(connectTo(one.connect, { parkAfterMs: 0 }));
    const first = await runLoop({ ...run, model: scriptedModel([CALL]), tools, input: 'go' });
    const parked = { type: 'parked', on: expect.stringMatching(/^task \S+ of MCP server "srv"$/) };
    expect(first.waiting).toMatchObject([parked]);
    expect(first.wakeAt).toEqual(expect.any(Number));
    expect((await resume()).waiting).toMatchObject([parked]);
    one.finish();
    await expect.poll(async () => (await resume('done')).outcome).toEqual({ type: 'completed' });
    expect([said(await resume()), one.begun()]).toEqual(['the work is done', 1]);
  });

  test('is told that the run was cancelled', async () => {
    const one = await start();
    const tools = await mcpTools(connectTo(one.connect));
    const run = startLoop({ model: scriptedModel([CALL]), tools, input: 'go', journal: memoryJournal() });
    await expect.poll(one.isAsked).toBe(true);
    await run.cancel();
    await run.result;
    await expect.poll(one.isCancelled).toBe(true);
  });

  test('is told that the run was cancelled whose call is parked', async () => {
    const one = await start();
    const run = { journal: memoryJournal(), runId: 'r' };
    const tools = async () => mcpTools(connectTo(one.connect, { parkAfterMs: 0 }));
    const first = await runLoop({ ...run, model: scriptedModel([CALL]), tools: await tools(), input: 'go' });
    expect(first.waiting).toMatchObject([{ type: 'parked' }]);
    const signal = AbortSignal.abort();
    const last = await runLoop({ ...run, model: scriptedModel([]), tools: await tools(), signal });
    expect(last.outcome).toMatchObject({ type: 'cancelled' });
    await expect.poll(one.isCancelled).toBe(true);
  });
});

/** A server of 2026-07-28 whose calls are tasks with these states. */
function scripted(
  states: readonly object[],
  handlers: Record<string, Handler> = {},
): ReturnType<typeof scriptedServer> {
  let at = 0;
  const task = (more: object): object => ({ taskId: 't1', createdAt: 'now', ttlMs: null, pollIntervalMs: 1, ...more });
  return scriptedServer({
    'server/discover': () => ({
      ...discovered(),
      capabilities: { tools: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } },
    }),
    'tools/list': () => listed('job'),
    'tools/call': () => ({ resultType: 'task', ...task({ status: 'working' }) }),
    'tasks/get': () => ({ resultType: 'complete', ...task(states[Math.min(at++, states.length - 1)]!) }),
    'tasks/update': () => ({ resultType: 'complete' }),
    ...handlers,
  });
}

async function run(server: ReturnType<typeof scripted>, options: Partial<McpServerOptions> = {}): Promise<LoopResult> {
  const tools = await mcpTools(connectTo({ url: 'http://mcp.test/mcp', fetch: server.fetch }, options));
  return runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go', journal: memoryJournal(), runId: 'r' });
}

const WORKING = { status: 'working', statusMessage: 'Half of it' };
const result = { content: [{ type: 'text', text: 'ok' }] };

test('a task is looked at with its name in a header, and its errors are told', async () => {
  const server = scripted([WORKING, { status: 'completed', result }]);
  expect(said(await run(server))).toBe('ok');
  const asked = server.received.filter(({ method }) => method === 'tasks/get');
  expect(asked.map(({ headers }) => [headers.get('mcp-method'), headers.get('mcp-name')])).toEqual([
    ['tasks/get', 't1'],
    ['tasks/get', 't1'],
  ]);
  const failed = scripted([{ status: 'failed', error: { code: -32_603, message: 'no\u202e disk' } }]);
  expect(said(await run(failed))).toContain('The task t1 of MCP server "srv" failed: no disk');
  expect(said(await run(scripted([{ status: 'cancelled' }])))).toContain('"srv" has cancelled the task t1');
  expect(said(await run(scripted([{ status: 'completed', result: { content: 1 } }])))).toContain('not one of a tool');
  expect(said(await run(scripted([{ status: 'lost' }])))).toContain('an unknown status');
});

test('a task that the server does not know any more is an error, and the call is not made again', async () => {
  const gone = (): never => {
    throw new RpcError(-32_602, 'Task not found');
  };
  const server = scripted([], { 'tasks/get': gone });
  expect(said(await run(server))).toMatch(/The task t1 .* cannot be found .*Task not found.* It is not known whether/);
  expect(server.methods.filter((method) => method === 'tools/call')).toHaveLength(1);
});

test('a run without a journal waits until its time is over, and the task is cancelled', async () => {
  const cancelled = Promise.withResolvers<unknown>();
  const cancel: Handler = ({ params }) => {
    cancelled.resolve(params['taskId']);
    return { resultType: 'complete' };
  };
  const server = scripted([WORKING], { 'tasks/cancel': cancel });
  const options = { url: 'http://mcp.test/mcp', fetch: server.fetch };
  const tools = await mcpTools(connectTo(options, { timeoutMs: 200, parkAfterMs: 0 }));
  const end = await runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go' });
  expect(end.waiting).toEqual([]);
  expect(said(end)).toContain('200 ms');
  expect(await cancelled.promise).toBe('t1');
});

test('what a task asks is a question of the run, and the answer goes to the task from another process', async () => {
  const form = { type: 'object', properties: { seat: { type: 'string' } }, required: ['seat'] };
  const ask = { method: 'elicitation/create', params: { message: 'Which seat?', requestedSchema: form } };
  const asking = { status: 'input_required', inputRequests: { seat: ask } };
  const server = scripted([WORKING, asking, asking, WORKING, { status: 'completed', result }]);
  const loop = { journal: memoryJournal(), runId: 'r' };
  const tools = async () => mcpTools(connectTo({ url: 'http://mcp.test/mcp', fetch: server.fetch }));
  const first = await runLoop({ ...loop, model: scriptedModel([CALL]), tools: await tools(), input: 'go' });
  expect(first.waiting).toMatchObject([
    { type: 'question', question: { prompt: 'MCP server "srv" asks: Which seat?' } },
  ]);
  const answers: Answer[] = [{ type: 'answer', effect: first.waiting[0]!.effect, value: { seat: '7a' } }];
  const end = await runLoop({ ...loop, model: scriptedModel(['done']), tools: await tools(), answers });
  expect(said(end)).toBe('ok');
  const sent = server.received.filter(({ method }) => method === 'tools/call' || method.startsWith('tasks/update'));
  expect(sent.map(({ method, params: { _meta, ...params } }) => [method, params])).toEqual([
    ['tools/call', { name: 'job', arguments: {} }],
    ['tasks/update', { taskId: 't1', inputResponses: { seat: { action: 'accept', content: { seat: '7a' } } } }],
  ]);
  expect(server.methods).not.toContain('tasks/cancel');
});

test('a task that asks for what it cannot have is cancelled, and the call is an error', async () => {
  const cancelled = Promise.withResolvers<unknown>();
  const cancel: Handler = ({ params }) => {
    cancelled.resolve(params['taskId']);
    return { resultType: 'complete' };
  };
  const params = { messages: [{ role: 'user', content: { type: 'text', text: 'Hi' } }], maxTokens: 5 };
  const asking = { status: 'input_required', inputRequests: { a: { method: 'sampling/createMessage', params } } };
  const server = scripted([WORKING, asking], { 'tasks/cancel': cancel });
  expect(said(await run(server))).toContain('may not ask for a model');
  expect(await cancelled.promise).toBe('t1');
});

test('a server that answers a look at a task as if it had made one is understood', async () => {
  const states = [
    { ...WORKING, resultType: 'task' },
    { status: 'completed', resultType: 'task', result },
  ];
  expect(said(await run(scripted(states)))).toBe('ok');
});
