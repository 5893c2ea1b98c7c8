import { once } from 'node:events';
import fs from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { PassThrough } from 'node:stream';
import { tool, type Model, type Stored } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { newLog } from '@treadle/server';
import { mcpStdioServer } from '@treadle/server/mcp';
import { expect, test } from 'vitest';
import { heldDisk, type HeldDisk } from './support/held-disk.ts';
import { responseIdIn, startInProcess, type InProcessServer } from './support/in-process.ts';
import { openSocket } from './support/socket-client.ts';
import { storeOfTest } from './support/test-store.ts';

/*
 * What a client is told survives a power failure. A second store with the same file commits what the server's own store has not
 * synced, as another server does.
 */

const model = (): ReturnType<typeof scriptedModel> => scriptedModel(Array<string>(12).fill('Hello.'));

/** Something that the other server has committed. Nobody here knows whether it is synced. */
async function commitElsewhere({ other }: HeldDisk, text = 'told'): Promise<void> {
  await other.streams.append('noise', (await other.streams.last('noise')) + 1, [{ text }]);
}

/** More than the transactions, one after the other, in which a server that starts deletes what is old. */
const STARTING_WRITES = 20;

/** Resolves when the server's own store has nothing to sync. */
async function settled({ store }: HeldDisk): Promise<void> {
  for (let count = 0; count < STARTING_WRITES; count++) await store.append('any', []);
}

/** One of everything that can be read. */
async function filled(server: InProcessServer): Promise<{ response: string; background: string; chat: string }> {
  const response = responseIdIn((await server.post({ input: 'Hi' }, { 'idempotency-key': 'k' })).text);
  const background = responseIdIn((await server.post({ input: 'Hi', background: true, stream: true })).text);
  const chat = await fetch(`${server.url}/v1/chat`, json({ message: 'Hi', on_disconnect: 'continue' }));
  await fetch(`${server.url}/v1/chat/completions`, json({ messages: [USER] }, { 'idempotency-key': 'c' }));
  const streamed = await fetch(`${server.url}/v1/chat/completions`, STREAMED);
  await streamed.text();
  await fetch(`${server.url}/v1/messages`, json(SENT, { 'idempotency-key': 'm' }));
  return { response, background, chat: /conv_\w+/.exec(await chat.text())![0] };
}

const USER = { role: 'user', content: 'Hi' };
const STREAMED = json({ messages: [USER], stream: true }, { 'idempotency-key': 's' });
const SENT = { model: 'm', max_tokens: 9, messages: [USER] };
const EVENTS = { headers: { accept: 'text/event-stream' } };
const INITIALIZE = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};
const TOOLS = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: {} } };

function json(body: object, headers: Readonly<Record<string, string>> = {}): RequestInit {
  return { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) };
}

test('no kind of reader tells what cannot be synced: the client gets a 503, or the stream is cut before its first byte', async () => {
  await using disk = await heldDisk();
  await using server = await startInProcess(model(), { store: disk.store });
  const { response, background, chat } = await filled(server);
  const accept = 'application/json, text/event-stream';
  const mcp = { accept, 'mcp-protocol-version': '2026-07-28' };
  const opened = await fetch(`${server.url}/mcp`, json(INITIALIZE, { accept }));
  await opened.text();
  disk.fail();
  await commitElsewhere(disk);
  const readers: readonly (readonly [string, RequestInit?])[] = [
    [`/v1/responses/${response}`],
    ['/v1/responses/resp_deleted'],
    [`/v1/responses/${response}/input_items`],
    ['/v1/responses', json({ input: 'Hi' }, { 'idempotency-key': 'k' })],
    ['/v1/chat/completions', json({ messages: [USER] }, { 'idempotency-key': 'c' })],
    ['/v1/messages', json(SENT, { 'idempotency-key': 'm' })],
    ['/v1/responses/input_tokens', json({ input: 'Hi', previous_response_id: response })],
    ['/v1/chat'],
    [`/v1/chat/${chat}`],
    [`/v1/chat/${chat}/export?format=markdown`],
    [`/v1/conversations/${chat}`],
    [`/v1/conversations/${chat}/items`],
    ['/v1/memory'],
    ['/v1/memory?query=hi'],
    ['/v1/memory/none'],
    ['/v1/runs'],
    [`/v1/runs/${response}`],
    [`/v1/runs/${response}/events`],
    [`/v1/runs/${response}/export`],
    [`/v1/runs/${response}/replay`, { method: 'POST' }],
    ['/mcp', json(TOOLS, mcp)],
    // The session of an older client is stored before the client gets its id.
    ['/mcp', json(INITIALIZE, { accept })],
    // In its session it gets an event stream, whose headers name the session.
    ['/mcp', json(TOOLS, { accept, 'mcp-session-id': opened.headers.get('mcp-session-id')! })],
  ];
  const answered = readers.map(async ([path, init]) => {
    const answer = await fetch(server.url + path, init);
    return [path, answer.status, /store_unavailable/.test(await answer.text())];
  });
  expect(await Promise.all(answered)).toEqual(readers.map(([path]) => [path, 503, true]));
  const streams: readonly (readonly [string, RequestInit?])[] = [
    [`/v1/responses/${background}?stream=true`],
    [`/v1/responses/${response}?stream=true`],
    ['/v1/responses', json({ input: 'Hi', stream: true, store: false, previous_response_id: response })],
    [`/v1/chat/${chat}/stream`],
    ['/v1/chat/completions', STREAMED],
    ['/v1/runs', EVENTS],
    [`/v1/runs/${response}/events`, EVENTS],
  ];
  for (const [path, init] of streams)
    await expect(fetch(server.url + path, init), path).rejects.toThrow('fetch failed');
  using socket = await openSocket(server.url);
  socket.send({ type: 'response.create', input: 'Hi', store: false, previous_response_id: response });
  await expect(socket.answer()).rejects.toThrow('closed after 0 events');
  expect(await socket.closed).toBe(1011);
  // What is not read from the store is told.
  expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
  expect((await fetch(`${server.url}/metrics`)).status).toBe(200);
  expect(await (await fetch(`${server.url}/v1/status`)).json()).toMatchObject({ ready: false });
});

/** Those that tell nothing that is stored. `/readyz` and `/v1/status` say that the store fails. */
const UNSTORED = ['/', '/assets/{file}', '/healthz', '/readyz', '/metrics', '/v1/status'];

test('no route of the OpenAPI document answers while nothing can be synced, also not that a request is invalid', async () => {
  await using disk = await heldDisk();
  await using server = await startInProcess(model(), { store: disk.store });
  const { body: document } = await server.send('GET', '/openapi.json');
  disk.fail();
  await commitElsewhere(disk);
  const requests = Object.entries(document.paths as Record<string, object>).flatMap(([path, operations]) =>
    UNSTORED.includes(path) ? [] : Object.keys(operations).map((method) => [method.toUpperCase(), path] as const),
  );
  const answered = requests.map(async ([method, path]) => {
    const init = method === 'GET' || method === 'DELETE' ? { method } : { ...json({}), method };
    const { status } = await fetch(server.url + path.replaceAll(/\{\w+\}/g, 'x1'), init);
    return [method, path, status];
  });
  expect(await Promise.all(answered)).toEqual(requests.map((one) => [...one, 503]));
  expect(requests.map(([, path]) => path)).toEqual(expect.arrayContaining(['/v1/traces', '/v1/chat/ag-ui', '/mcp']));
});

test('a response waits for one sync that covers what another server has committed; then nobody waits until something changes', async () => {
  await using disk = await heldDisk();
  await using server = await startInProcess(model(), { store: disk.store });
  await settled(disk);
  await commitElsewhere(disk);
  const syncs = disk.syncs();
  const started = disk.hold();
  let answers = 0;
  const read = async (): Promise<unknown> => {
    const { body } = await server.send('GET', '/v1/chat');
    answers += 1;
    return body.data;
  };
  const reads = [read(), read(), read()];
  const proceed = await started;
  expect(answers).toBe(0);
  proceed();
  expect(await Promise.all(reads)).toEqual([[], [], []]);
  expect(await read()).toEqual([]);
  expect(disk.syncs() - syncs).toBe(1);
});

test('an MCP message to standard output waits too', async () => {
  await using disk = await heldDisk();
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  const connection = mcpStdioServer({ store: disk.store, stdin, stdout, log: newLog({ level: 'silent' }) });
  await commitElsewhere(disk);
  // The message may tell what was read before it.
  expect(await disk.store.streams.last('noise')).toBe(1);
  const started = disk.hold();
  stdin.write(`${JSON.stringify(INITIALIZE)}\n`);
  const proceed = await started;
  expect(stdout.readableLength).toBe(0);
  proceed();
  const [message] = (await once(stdout, 'data')) as [Buffer];
  expect(JSON.parse(message.toString())).toMatchObject({ id: 1, result: { protocolVersion: '2025-06-18' } });
  await connection.close();
});

test('every step of a run is durable before its client is told of it', async () => {
  const store = await storeOfTest();
  const waits = new Set<Stored | undefined>();
  const append: typeof store.append = (runId, entries, lease, until) => {
    waits.add(until);
    return store.append(runId, entries, lease, until);
  };
  const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'a bird' });
  const looking = scriptedModel([{ calls: [{ name: 'look' }] }, 'A bird.', { calls: [{ name: 'look' }] }, 'A bird.']);
  await using server = await startInProcess(looking, {
    store: { ...store, append },
    tools: [look],
    defaultTools: ['look'],
  });
  expect((await server.post({ input: 'Hi', stream: true })).text).toContain('A bird.');
  const chat = await fetch(`${server.url}/v1/chat`, json({ message: 'Hi' }));
  expect(await chat.text()).toContain('a bird');
  expect([...waits]).toEqual(['durable']);
});

test('bytes leave the server in a few files only, each of which waits for the disk or sends nothing that is stored', () => {
  const sources = new URL('../../packages/server/src/', import.meta.url);
  const sends = /\.(writeHead|flushHeaders)\(|\b(outgoing|socket)\.(write|end)\(|\bws\.send\(|\bstdout\b/;
  const files = fs
    .globSync('**/*.ts', { cwd: sources.pathname })
    .filter((file) => !file.endsWith('.test.ts') && sends.test(fs.readFileSync(new URL(file, sources), 'utf8')));
  expect(files.toSorted()).toEqual([
    'apis/mcp/routes.ts',
    'apis/mcp/stdio.ts',
    // The output of a shell call, which the client has sent, has a field stdout.
    'apis/responses/built-in-calls.ts',
    'apis/responses/parse-input.ts',
    'apis/responses/wire.ts',
    'http/app.ts',
    // The files of the page.
    'http/page.ts',
    'http/respond.ts',
    // Requests that cannot be read.
    'http/server.ts',
    'http/websocket.ts',
  ]);
});

/** A client that follows the events of a response. */
interface Follower {
  /** Resolves when it has received this text. */
  received(text: string): Promise<void>;
  readonly text: () => string;
  close(): void;
}

async function follower(url: string, id: string): Promise<Follower> {
  const asked = request(`${url}/v1/responses/${id}?stream=true`, { agent: false }).end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  let text = '';
  response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  response.on('error', () => {});
  return {
    async received(wanted) {
      while (!text.includes(wanted)) await once(response, 'data');
    },
    text: () => text,
    close: () => void response.destroy(),
  };
}

test('a stored event leaves after it is durable, and many followers share the sync', async () => {
  await using disk = await heldDisk();
  const { store, other } = disk;
  const silent: Model = { ...model(), reply: () => new Promise<never>(() => {}) };
  await using server = await startInProcess(silent, { store });
  const { id } = JSON.parse((await server.post({ input: 'Hi', background: true })).text) as { id: string };
  const followers = await Promise.all(Array.from({ length: 100 }, () => follower(server.url, id)));
  await Promise.all(followers.map(({ received }) => received('response.in_progress')));
  const stream = `events_${id}`;
  await settled(disk);
  const syncs = disk.syncs();
  const started = disk.hold();
  await other.streams.append(stream, (await other.streams.last(stream)) + 1, [{ type: 'response.told' }]);
  const proceed = await started;
  expect(followers.some(({ text }) => text().includes('response.told'))).toBe(false);
  proceed();
  await Promise.all(followers.map(({ received }) => received('response.told')));
  expect(disk.syncs() - syncs).toBe(1);
  for (const { close } of followers) close();
});

test('a server that looks for notices and finds none that is due writes nothing', async () => {
  await using disk = await heldDisk();
  await settled(disk);
  const syncs = disk.syncs();
  const now = Date.now();
  expect(await disk.store.notices.take({ now, until: now + 1_000, limit: 9 })).toEqual([]);
  expect(disk.syncs()).toBe(syncs);
});
