import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type ServerStore, type TreadleServerOptions } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { testDatabase, type TestDatabase } from '../store/shared-postgres.ts';
import { storeOfTest } from '../server/support/test-store.ts';

/* Sessions of older clients, whose requests reach any of two servers with one store. */

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

let folder: string | undefined;
afterEach(() => {
  if (folder !== undefined) rmSync(folder, { recursive: true });
  folder = undefined;
});

const STORES: readonly { readonly name: string; readonly open: () => Promise<ServerStore> }[] = [
  {
    name: 'an SQLite file',
    async open() {
      folder ??= mkdtempSync(path.join(tmpdir(), 'treadle-sessions-'));
      return sqliteStore(path.join(folder, 'store.db'));
    },
  },
  { name: 'PostgreSQL', open: async () => database.open() },
];

interface TwoServers extends AsyncDisposable {
  readonly servers: readonly [InProcessServer, InProcessServer];
}

async function twoServers(
  open: () => Promise<ServerStore>,
  options: Partial<TreadleServerOptions> = {},
): Promise<TwoServers> {
  const one = async (): Promise<InProcessServer> => {
    const store = await open();
    const server = await startInProcess(scriptedModel([]), { ...options, store });
    return {
      ...server,
      async [Symbol.asyncDispose]() {
        await server[Symbol.asyncDispose]();
        await store.close();
      },
    };
  };
  const servers = [await one(), await one()] as const;
  return {
    servers,
    async [Symbol.asyncDispose]() {
      for (const server of servers) await server[Symbol.asyncDispose]();
    },
  };
}

interface Message {
  readonly method?: string;
  readonly result?: unknown;
}

/** Which server gets a request. */
type Route = (sent: Message & { readonly http: string }) => 0 | 1;

interface Listening {
  /** Called when the client has the stream of its session. */
  readonly onOpened?: () => void;
  /** The client asks for the stream of its session then. */
  readonly after?: Promise<unknown>;
}

/** The official client, whose requests reach the servers that `route` says. */
async function clientOf(
  { servers }: TwoServers,
  route: Route,
  { onOpened, after }: Listening = {},
): Promise<{ readonly client: Client; readonly transport: StreamableHTTPClientTransport } & AsyncDisposable> {
  const client = new Client({ name: 'test', version: '1.0.0' }, { capabilities: { elicitation: {} } });
  const transport = new StreamableHTTPClientTransport(new URL('http://treadle/mcp'), {
    requestInit: { headers: { authorization: 'Bearer tk_ann' } },
    async fetch(_, init) {
      const message = typeof init?.body === 'string' ? (JSON.parse(init.body) as Message) : {};
      const http = init?.method ?? 'GET';
      if (http === 'GET') await after;
      const answer = await fetch(`${servers[route({ ...message, http })].url}/mcp`, init);
      if (http === 'GET') onOpened?.();
      return answer;
    },
  });
  // Its types do not fit `exactOptionalPropertyTypes`.
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  return { client, transport, [Symbol.asyncDispose]: () => client.close() };
}

const keys = ['ann', 'bob'].map((name) => ({
  name,
  hash: hashKey(`tk_${name}`),
  scopes: ['tools:execute', 'runs:read', 'runs:write'] as const,
}));

const erase = tool({
  name: 'erase',
  description: 'Needs an approval',
  input: { type: 'object', properties: {} },
  needsApproval: true,
  execute: () => 'Erased.',
});

/** A tool that runs until it is cancelled. */
function holding(): { readonly hold: Tool; readonly called: Promise<void>; readonly cancelled: Promise<void> } {
  const [called, cancelled] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const hold = tool({
    name: 'hold',
    description: 'Waits',
    input: { type: 'object', properties: {} },
    touches: () => [],
    execute(_, { signal }) {
      called.resolve();
      return new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          cancelled.resolve();
          reject(signal.reason as Error);
        });
      });
    },
  });
  return { hold, called: called.promise, cancelled: cancelled.promise };
}

/** A run of the client that waits for it. */
async function waitingRun(
  { servers: [server] }: TwoServers,
  client: Client,
): Promise<{
  readonly uri: string;
  readonly cancel: () => Promise<void>;
  /** Resolves when the client is told that the run has changed. */
  readonly updated: Promise<void>;
}> {
  const asked = Promise.withResolvers<void>();
  client.setRequestHandler(ElicitRequestSchema, () => {
    asked.resolve();
    return new Promise(() => {});
  });
  client.callTool({ name: 'erase' }).catch(() => {});
  await asked.promise;
  const ann = { authorization: 'Bearer tk_ann' };
  const { id } = (await server.send('GET', '/v1/runs', undefined, ann)).body.data[0];
  const uri = `treadle://runs/${id}`;
  return {
    uri,
    updated: updateOf(client, uri),
    cancel: async () => void (await server.send('POST', `/v1/runs/${id}/cancel`, undefined, ann)),
  };
}

/** Resolves when the client is told that a resource has changed. */
async function updateOf(client: Client, uri: string, onTold: (uri: string) => void = () => {}): Promise<void> {
  const updated = Promise.withResolvers<void>();
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
    onTold(params.uri);
    if (params.uri === uri) updated.resolve();
  });
  await updated.promise;
}

/** Sends one message, or ends the session. */
async function send(server: InProcessServer, session: string, key: string, http = 'POST'): Promise<number> {
  const answer = await fetch(`${server.url}/mcp`, {
    method: http,
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-session-id': session,
    },
    ...(http === 'POST' && { body: JSON.stringify({ jsonrpc: '2.0', id: randomUUID(), method: 'tools/list' }) }),
  });
  await answer.text();
  return answer.status;
}

describe.each(STORES)('a session on two servers with $name', ({ open }) => {
  test('is used at the other server, by its key alone, until it is ended anywhere', async () => {
    await using both = await twoServers(open, { tools: [erase], keys });
    const [one, other] = both.servers;
    await using opened = await clientOf(both, () => 0);
    const session = opened.transport.sessionId!;
    expect(await send(other, session, 'tk_bob')).toBe(404);
    expect(await Promise.all([send(other, session, 'tk_ann'), send(other, session, 'tk_ann')])).toEqual([200, 200]);
    expect(await send(other, session, 'tk_bob')).toBe(404);
    expect(await send(other, session.replaceAll(/\d/g, '0'), 'tk_ann')).toBe(404);
    expect(await send(other, session, 'tk_ann', 'DELETE')).toBe(200);
    expect(await send(other, session, 'tk_ann')).toBe(404);
    await vi.waitFor(async () => expect(await send(one, session, 'tk_ann')).toBe(404));
  });

  test('goes on when its server has stopped', async () => {
    await using both = await twoServers(open, { tools: [erase], keys });
    let at: 0 | 1 = 0;
    await using opened = await clientOf(both, () => at);
    await both.servers[0][Symbol.asyncDispose]();
    at = 1;
    expect((await opened.client.listTools()).tools.map(({ name }) => name)).toEqual(['erase']);
  });

  test('gets the answers of its client at the other server', async () => {
    await using both = await twoServers(open, { tools: [erase], keys });
    const route: Route = ({ method, result }) => (method === 'tools/call' || result === undefined ? 0 : 1);
    await using opened = await clientOf(both, route);
    opened.client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { approve: true } }));
    expect(await opened.client.callTool({ name: 'erase' })).toMatchObject({ content: [{ text: 'Erased.' }] });
  });

  test('asks from both servers at once, and never confuses the answers', async () => {
    const asking = tool({
      name: 'asking',
      description: 'Asks',
      input: { type: 'object', properties: { name: { type: 'string' } } },
      touches: () => [],
      execute: async ({ name }, { ask }) =>
        `${String(name)}: ${String(await ask({ prompt: `Who is ${String(name)}?` }))}`,
    });
    await using both = await twoServers(open, { tools: [asking], keys });
    let calls = 0;
    let answers = 0;
    const route: Route = ({ method, result }) =>
      ((method === 'tools/call' ? calls++ : result === undefined ? 0 : answers++) % 2) as 0 | 1;
    await using opened = await clientOf(both, route);
    const asked = Promise.withResolvers<void>();
    let count = 0;
    opened.client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
      count += 1;
      if (count === 4) asked.resolve();
      await asked.promise;
      return { action: 'accept', content: { answer: params.message } };
    });
    const names = ['a', 'b', 'c', 'd'];
    const results = await Promise.all(
      names.map((name) => opened.client.callTool({ name: 'asking', arguments: { name } })),
    );
    expect(results.map(({ content }) => (content as { text: string }[])[0]!.text)).toEqual(
      names.map((name) => `${name}: Who is ${name}?`),
    );
  });

  test('cancels at the other server', async () => {
    const { hold, called, cancelled } = holding();
    await using both = await twoServers(open, { tools: [hold], keys });
    await using opened = await clientOf(both, ({ method }) => (method === 'notifications/cancelled' ? 1 : 0));
    const stop = new AbortController();
    const call = opened.client.callTool({ name: 'hold' }, undefined, { signal: stop.signal });
    await called;
    stop.abort();
    await expect(call).rejects.toThrow('aborted');
    await cancelled;
  });

  test('tells its client of a run, also if it has subscribed at the other server', async () => {
    await using both = await twoServers(open, { tools: [erase], keys });
    const [one, other] = both.servers;
    const listening = Promise.withResolvers<void>();
    await using opened = await clientOf(
      both,
      ({ http, method }) => (http === 'GET' || method === 'tools/call' ? 0 : 1),
      { onOpened: listening.resolve },
    );
    const [asked, updated] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()];
    opened.client.setRequestHandler(ElicitRequestSchema, () => {
      asked.resolve();
      return new Promise(() => {});
    });
    opened.client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) =>
      updated.resolve(params.uri),
    );
    opened.client.callTool({ name: 'erase' }).catch(() => {});
    await Promise.all([asked.promise, listening.promise]);
    const ann = { authorization: 'Bearer tk_ann' };
    const { id } = (await one.send('GET', '/v1/runs', undefined, ann)).body.data[0];
    const uri = `treadle://runs/${id}`;
    await opened.client.subscribeResource({ uri });
    const there = await fetch(`${other.url}/mcp`, {
      headers: { ...ann, accept: 'text/event-stream', 'mcp-session-id': opened.transport.sessionId! },
    });
    await other.send('POST', `/v1/runs/${id}/cancel`, undefined, ann);
    expect(await updated.promise).toBe(uri);
    // The stream at the other server, of which the one that has subscribed did not know.
    const { value } = await there.body!.getReader().read();
    expect(Buffer.from(value!).toString()).toContain(uri);
  });

  test('tells its client of a run that has changed before the server with its stream knew of the subscription', async () => {
    const heard = Promise.withResolvers<void>();
    let isFirst = true;
    await using both = await twoServers(
      async () => {
        const store = await open();
        if (!isFirst) return store;
        isFirst = false;
        const watch: typeof store.streams.watch = (stream, listener) =>
          store.streams.watch(stream, () => void heard.promise.then(listener));
        return { ...store, streams: { ...store.streams, watch } };
      },
      { tools: [erase], keys },
    );
    const listening = Promise.withResolvers<void>();
    await using opened = await clientOf(
      both,
      ({ http, method }) => (http === 'GET' || method === 'tools/call' ? 0 : 1),
      { onOpened: listening.resolve },
    );
    const run = await waitingRun(both, opened.client);
    await listening.promise;
    await opened.client.subscribeResource({ uri: run.uri });
    await run.cancel();
    heard.resolve();
    await run.updated;
  });

  test.each([0, 1] as const)(
    'tells its client of a run that has changed before it has a stream, at server %i',
    async (at) => {
      await using both = await twoServers(open, { tools: [erase], keys });
      const changed = Promise.withResolvers<void>();
      await using opened = await clientOf(both, ({ http }) => (http === 'GET' ? at : 0), { after: changed.promise });
      const run = await waitingRun(both, opened.client);
      await opened.client.subscribeResource({ uri: run.uri });
      await using other = await clientOf(both, () => 0);
      const isOtherTold = updateOf(other.client, run.uri);
      await other.client.subscribeResource({ uri: run.uri });
      await run.cancel();
      // It has subscribed later, so it is told later.
      await isOtherTold;
      changed.resolve();
      await run.updated;
    },
  );

  test('does not tell its client at the other server of a run that it does not watch any more', async () => {
    await using both = await twoServers(open, { tools: [erase], keys });
    const subscribed = Promise.withResolvers<void>();
    await using opened = await clientOf(both, ({ http }) => (http === 'GET' ? 1 : 0), { after: subscribed.promise });
    const { client } = opened;
    const runs = [await waitingRun(both, client), await waitingRun(both, client)] as const;
    const uris = runs.map(({ uri }) => uri);
    const told: string[] = [];
    const updated = updateOf(client, uris[1]!, (uri) => told.push(uri));
    await client.subscribeResource({ uri: uris[0]! });
    await client.unsubscribeResource({ uri: uris[0]! });
    await client.subscribeResource({ uri: uris[1]! });
    subscribed.resolve();
    await updated;
    expect(told).toEqual([uris[1]]);
  });

  test('asks its client on the stream that it has at the other server', async () => {
    await using both = await twoServers(open, { tools: [erase], keys });
    const listening = Promise.withResolvers<void>();
    await using opened = await clientOf(both, ({ http }) => (http === 'GET' ? 0 : 1), {
      onOpened: listening.resolve,
    });
    opened.client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { approve: true } }));
    await listening.promise;
    const { task } = await opened.client.request(
      { method: 'tools/call', params: { name: 'erase', arguments: {}, task: {} } },
      z.object({ task: z.object({ taskId: z.string() }) }),
    );
    const get = { method: 'tasks/get', params: { taskId: task.taskId } };
    await vi.waitFor(
      async () => {
        expect(await opened.client.request(get, z.looseObject({ status: z.string() }))).toMatchObject({
          status: 'completed',
        });
      },
      { timeout: 10_000 },
    );
  });
});

test('a session writes what opens and changes it, and nothing for other requests', async () => {
  const store = await storeOfTest();
  const written: string[] = [];
  const streams: typeof store.streams = {
    ...store.streams,
    append: (stream, first, events, lease) => {
      written.push(...events.map((event) => (event as { readonly type: string }).type));
      return store.streams.append(stream, first, events, lease);
    },
  };
  const sum = tool({ ...erase, name: 'sum', needsApproval: false, touches: () => [], execute: () => 'Done.' });
  await using both = await twoServers(async () => ({ ...store, streams }), { tools: [sum], keys });
  await using opened = await clientOf(both, () => 0);
  for (let i = 0; i < 3; i++) await opened.client.callTool({ name: 'sum' });
  await opened.client.listTools();
  expect(written).toEqual(['opened']);
  await opened.client.setLoggingLevel('error');
  expect(written).toEqual(['opened', 'received']);
});
