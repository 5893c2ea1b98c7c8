/** Clients that vanish. */
import { connect } from 'node:net';
import fc from 'fast-check';
import { expect } from 'vitest';
import type { Provider, Script } from '../../provider/provider.ts';
import type { Step } from '../../provider/script.ts';
import type { WireResponse } from '../open-responses/asking.ts';
import { modelOf, type ServerProcess } from '../process/start.ts';
import { streamClient } from './client.ts';

export interface Place {
  readonly server: ServerProcess;
  readonly provider: Provider;
}

/** Crowds of clients, one after the other; in each, every client vanishes at a moment of its own. */
export function vanishingCrowds(place: Place, numRuns: number): Promise<void> {
  return fc.assert(
    fc.asyncProperty(fc.array(moment, { minLength: 15, maxLength: 20 }), async (moments) => {
      const ids = await Promise.all(moments.map((its) => vanish(place, its)));
      // Nobody waits for an answer any more, so nothing is asked of the model any more.
      await place.provider.quiet();
      for (const id of ids) if (id !== undefined) expect((await ended(place, id)).status).toBe('cancelled');
      await askShortly(place);
    }),
    { numRuns, endOnFailure: true },
  );
}

/** When a client goes, and what its run does at that moment. */
type Moment =
  /** So much of the body of its request was sent. */
  | { readonly type: 'asking'; readonly part: number }
  /** Not streamed: the answer would have come later. `tag`: its tool waits; otherwise its model. */
  | { readonly type: 'waiting'; readonly path: string; readonly tag: string | undefined }
  /** Streamed, after so many events; `held`: when the tool waits. */
  | { readonly type: 'reading'; readonly events: number; readonly tag: string | undefined; readonly held: boolean };

const tag = fc.option(fc.uuid(), { nil: undefined });
const moment: fc.Arbitrary<Moment> = fc.oneof(
  fc.record({ type: fc.constant('asking' as const), part: fc.constantFrom(0, 0.5, 1) }),
  fc.record({
    type: fc.constant('waiting' as const),
    path: fc.constantFrom('/v1/responses', '/v1/chat/completions'),
    tag,
  }),
  fc.record({
    type: fc.constant('reading' as const),
    events: fc.integer({ min: 1, max: 25 }),
    tag,
    held: fc.boolean(),
  }),
);

const TOOLS = [{ type: 'mcp', server_label: 'treadle' }];
const ADD = { name: 'add', arguments: '{"a":1,"b":2}' };

/** A run that never ends by itself: after some text its tool waits, or its model says no more. */
function stuck(its: string | undefined): Step[] {
  const text = 'There is much to be said of this. '.repeat(4);
  const first: Step = { text, calls: [ADD] };
  if (its === undefined) return [first, { fault: 'stall', reply: { text } }];
  return [first, { text, calls: [{ name: 'hold', arguments: JSON.stringify({ tag: its }) }] }];
}

/** Goes through it up to its moment, and vanishes. Resolves with the id of the response if it was told. */
async function vanish({ server, provider }: Place, its: Moment): Promise<string | undefined> {
  const waits = its.type === 'asking' ? undefined : its.tag;
  const script = await provider.script(stuck(waits));
  const body = { model: modelOf(script), input: 'go', tools: TOOLS };
  switch (its.type) {
    case 'asking':
      await sendPart(server, { ...body, stream: true }, its.part);
      return undefined;
    case 'waiting': {
      const gone = new AbortController();
      const isChat = its.path.includes('chat');
      const messages = [{ role: 'user', content: 'go' }];
      const answer = post(server, its.path, isChat ? { ...body, messages } : body, gone.signal);
      await (waits === undefined ? asked(script, 2) : server.held(waits));
      gone.abort();
      await expect(answer).rejects.toThrow('aborted');
      return undefined;
    }
    case 'reading': {
      const client = streamClient(server.url, body);
      await client.begun;
      // So many come in any case, before the run is stuck.
      await client.reached(its.events);
      if (its.held && waits !== undefined) await server.held(waits);
      client.vanish();
      await client.over;
      return client.events[0]!.response!.id;
    }
    default:
      return its satisfies never;
  }
}

/** Resolves when the model was asked so often. */
export async function asked(script: Script, times: number): Promise<void> {
  while ((await script.requests()).length < times);
}

function sendPart({ url }: ServerProcess, body: object, part: number): Promise<void> {
  const { hostname, port } = new URL(url);
  const json = JSON.stringify(body);
  const head = ['POST /v1/responses HTTP/1.1', `Host: ${hostname}:${port}`, 'Content-Type: application/json'];
  const text = [...head, `Content-Length: ${json.length}`, '', json.slice(0, json.length * part)].join('\r\n');
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    socket.on('error', reject);
    socket.on('connect', () => socket.write(text, () => socket.destroy()));
    socket.on('close', () => resolve());
  });
}

/** Somebody else asks for something short, and gets it. */
export async function askShortly({ server, provider }: Place): Promise<void> {
  const script = await provider.script([{ calls: [ADD] }, { text: 'Three.' }]);
  const answer = await post(server, '/v1/responses', { model: modelOf(script), input: '1 + 2?', tools: TOOLS });
  const output = [{ type: 'mcp_call', output: '3' }, { content: [{ text: 'Three.' }] }];
  expect(await answer.json()).toMatchObject({ status: 'completed', output });
}

function post(
  { url }: ServerProcess,
  path: string,
  body: object,
  signal: AbortSignal | null = null,
): Promise<Response> {
  return fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
}

/** The response, once it has ended. */
export async function ended({ server }: Pick<Place, 'server'>, id: string): Promise<WireResponse> {
  for (;;) {
    const response = (await (await fetch(`${server.url}/v1/responses/${id}`)).json()) as WireResponse;
    if (response.status !== 'in_progress') return response;
  }
}
