import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import { textIn } from './open-responses/asking.ts';
import { checkedStream } from './open-responses/stream-rules.ts';
import { modelOf, startServer, type ServerProcess } from './process/start.ts';
import { streamClient, type StreamClient } from './streams/client.ts';
import { asked, ended } from './streams/crowds.ts';

const TOOLS = [{ type: 'mcp', server_label: 'treadle' }];
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

interface Begun {
  readonly tag: string;
  readonly client: StreamClient;
  /** All that it says if it comes to its end. */
  readonly text: string;
}

/** A stream whose tool waits. */
async function inTool(server: ServerProcess, n: number): Promise<Begun> {
  const tag = `${server.url} ${n}`;
  const script = await provider.script([
    { text: `First ${n}. `, calls: [{ name: 'add', arguments: '{"a":1,"b":2}' }] },
    { text: `Then ${n}. `, calls: [{ name: 'hold', arguments: JSON.stringify({ tag }) }] },
    { text: `At last ${n}.` },
  ]);
  const client = streamClient(server.url, { model: modelOf(script), input: 'go', tools: TOOLS });
  await server.held(tag);
  return { tag, client, text: `First ${n}. Then ${n}. At last ${n}.` };
}

/** A stream whose model says no more. Asked again, it says all. */
async function inModel(server: ServerProcess, n: number): Promise<Begun> {
  const script = await provider.script([
    { text: `First ${n}. `, calls: [{ name: 'add', arguments: '{"a":1,"b":2}' }] },
    { fault: 'stall', reply: { text: 'This is broken off, and nobody wants to hear of it again.' } },
    { text: `At last ${n}.` },
  ]);
  const client = streamClient(server.url, { model: modelOf(script), input: 'go', tools: TOOLS });
  await asked(script, 2);
  return { tag: '', client, text: `First ${n}. At last ${n}.` };
}

const counted = <T>(make: (n: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: COUNT }, (_, n) => make(n)));

test('streams that come to their end in time do, and the server does not wait longer', async () => {
  const server = await startServer(provider, { store: path.join(folder, 'in-time.db') });
  const begun = await counted((n) => inTool(server, n));
  const closed = server.close(50_000);
  // It takes no more.
  await refused(server.url);
  for (const { tag } of begun) server.release(tag);
  for (const { client, text } of begun) {
    expect(await client.over).toBe(true);
    const response = checkedStream(client.events);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe(text);
  }
  await closed;
});

test('streams that do not are put aside, and the next server goes on with each where it was', async () => {
  const store = path.join(folder, 'too-late.db');
  const server = await startServer(provider, { store });
  const begun = [...(await counted((n) => inTool(server, n))), ...(await counted((n) => inModel(server, n)))];
  for (const { client } of begun) await client.reached(1);
  const ids = begun.map(({ client }) => client.events[0]!.response!.id);
  await server.close(0);
  for (const { client } of begun) {
    // The client is told, and that the response is not lost.
    expect(await client.over).toBe(true);
    expect(client.events.slice(-2)).toMatchObject([
      { type: 'error', code: 'server_stopping' },
      { type: 'response.failed', response: { status: 'failed', error: { code: 'server_stopping' } } },
    ]);
    for (const [at, event] of client.events.entries()) expect(event.sequence_number).toBe(at);
  }

  await using next = await startServer(provider, { store });
  expect(next.recovered).toBe(2 * COUNT);
  for (const { tag } of begun) if (tag !== '') next.release(tag);
  for (const [n, { text }] of begun.entries()) {
    const response = await ended({ server: next }, ids[n]!);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe(text);
    const calls = response.output.filter(({ type }) => type === 'mcp_call');
    expect(calls.every(({ status }) => status === 'completed')).toBe(true);
  }
});

/** Resolves when nobody listens there any more. */
async function refused(url: string): Promise<void> {
  try {
    for (;;) await (await fetch(`${url}/healthz`, { headers: { connection: 'close' } })).text();
  } catch {}
}
