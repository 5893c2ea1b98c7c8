import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import { call, SERVER_TOOLS, waitForRequests } from './support/fixture.ts';
import { responsesClient, textIn } from './support/responses-client.ts';
import { modelOf, startServer, type ServerProcess } from './support/server-process.ts';
import { streamClient, type StreamClient } from './support/stream-client.ts';
import { validateStream } from './support/stream-rules.ts';

const COUNT = 30;

let folder: string;
let provider: Provider;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'treadle-shutdown-'));
  provider = await startProvider();
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

interface StartedRun {
  readonly tag: string;
  readonly client: StreamClient;
  /** The text of the response if it runs to its end. */
  readonly text: string;
}

/** Starts a stream; resolves when its tool is waiting. */
async function startInTool(server: ServerProcess, n: number): Promise<StartedRun> {
  const tag = `${server.url} ${n}`;
  const script = await provider.script([
    { text: `First ${n}. `, calls: [call('add', { a: 1, b: 2 })] },
    { text: `Then ${n}. `, calls: [call('hold', { tag })] },
    { text: `At last ${n}.` },
  ]);
  const client = streamClient(server.url, { model: modelOf(script), input: 'go', tools: [SERVER_TOOLS] });
  await server.held(tag);
  return { tag, client, text: `First ${n}. Then ${n}. At last ${n}.` };
}

/** Starts a stream whose model stalls. When the request is repeated, the model replies. */
async function startInModel(server: ServerProcess, n: number): Promise<StartedRun> {
  const script = await provider.script([
    { text: `First ${n}. `, calls: [call('add', { a: 1, b: 2 })] },
    { fault: 'stall', reply: { text: 'This is broken off, and must not appear in the response.' } },
    { text: `At last ${n}.` },
  ]);
  const client = streamClient(server.url, { model: modelOf(script), input: 'go', tools: [SERVER_TOOLS] });
  await waitForRequests(script, 2);
  return { tag: '', client, text: `First ${n}. At last ${n}.` };
}

const startMany = <T>(start: (n: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: COUNT }, (_, n) => start(n)));

test('lets streams complete within the grace period, then exits without waiting for the rest of it', async () => {
  const server = await startServer(provider, { store: path.join(folder, 'in-time.db') });
  const runs = await startMany((n) => startInTool(server, n));
  const closed = server.close(50_000);
  await waitUntilClosing(server.url);
  for (const { tag } of runs) server.release(tag);
  for (const { client, text } of runs) {
    expect(await client.ended).toBe(true);
    const response = validateStream(client.events);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe(text);
  }
  await closed;
});

test('detaches streams that exceed the grace period, and the next server resumes each of them', async () => {
  const store = path.join(folder, 'too-late.db');
  const server = await startServer(provider, { store });
  const runs = [
    ...(await startMany((n) => startInTool(server, n))),
    ...(await startMany((n) => startInModel(server, n))),
  ];
  for (const { client } of runs) await client.received(1);
  const ids = runs.map(({ client }) => client.events[0]!.response!.id);
  await server.close(0);
  for (const { client } of runs) {
    expect(await client.ended).toBe(true);
    expect(client.events.at(-1)).toMatchObject({ type: 'error', code: 'server_stopping' });
    // The response has not ended, so no event says so.
    for (const { response } of client.events) expect(response?.status ?? 'in_progress').toBe('in_progress');
    for (const [at, event] of client.events.entries()) expect(event.sequence_number).toBe(at);
  }

  await using next = await startServer(provider, { store });
  expect(next.recovered).toBe(2 * COUNT);
  const { retrieveEnded } = responsesClient(() => next.url);
  for (const { tag } of runs) if (tag !== '') next.release(tag);
  for (const [n, { text }] of runs.entries()) {
    const response = await retrieveEnded(ids[n]!);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe(text);
    const calls = response.output.filter(({ type }) => type === 'mcp_call');
    expect(calls.every(({ status }) => status === 'completed')).toBe(true);
  }
});

/** Resolves when the server says that it is shutting down. */
async function waitUntilClosing(url: string): Promise<void> {
  let status = 200;
  while (status === 200) ({ status } = await fetch(`${url}/readyz`, { headers: { connection: 'close' } }));
  expect(status).toBe(503);
}
