import { connect } from 'node:net';
import fc from 'fast-check';
import { expect } from 'vitest';
import type { Step } from '../../provider/script.ts';
import { call, expectServerResponds, SERVER_TOOLS, waitForRequests, type ServerFixture } from './fixture.ts';
import { responsesClient } from './responses-client.ts';
import { modelOf, type ServerProcess } from './server-process.ts';
import { streamClient } from './stream-client.ts';

type Target = Pick<ServerFixture, 'server' | 'provider'>;

/** Checks groups of clients, one group after the other. Each client disconnects at its own random moment. */
export function checkDisconnects(target: Target, numRuns: number): Promise<void> {
  const { retrieveEnded } = responsesClient(() => target.server.url);
  return fc.assert(
    fc.asyncProperty(fc.array(moment, { minLength: 15, maxLength: 20 }), async (moments) => {
      const ids = await Promise.all(moments.map((one) => disconnectAt(target, one)));
      // No client waits for a response, so no model request may remain open.
      await target.provider.quiet();
      for (const id of ids) if (id !== undefined) expect((await retrieveEnded(id)).status).toBe('cancelled');
      await expectServerResponds(target);
    }),
    { numRuns, endOnFailure: true },
  );
}

/** When a client disconnects. With a `tag` the run is waiting in the tool `hold`, otherwise in the model. */
type Moment =
  /** After this part of the request body was sent. */
  | { readonly type: 'sending'; readonly part: number }
  /** While it waits for a response that is not streamed. */
  | { readonly type: 'waiting'; readonly path: string; readonly tag: string | undefined }
  /** After this many streamed events; with `held` also not before the tool is waiting. */
  | { readonly type: 'reading'; readonly events: number; readonly tag: string | undefined; readonly held: boolean };

const tag = fc.option(fc.uuid(), { nil: undefined });
const moment: fc.Arbitrary<Moment> = fc.oneof(
  fc.record({ type: fc.constant('sending' as const), part: fc.constantFrom(0, 0.5, 1) }),
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

/** A run that never ends by itself: after some text either its tool or its model hangs. */
function endlessRun(holdTag: string | undefined): Step[] {
  const text = 'There is much to be said of this. '.repeat(4);
  const first: Step = { text, calls: [call('add', { a: 1, b: 2 })] };
  if (holdTag === undefined) return [first, { fault: 'stall', reply: { text } }];
  return [first, { text, calls: [call('hold', { tag: holdTag })] }];
}

/** Starts a request and disconnects at the given moment. Resolves with the id of the response, if it was received. */
async function disconnectAt({ server, provider }: Target, at: Moment): Promise<string | undefined> {
  const holdTag = at.type === 'sending' ? undefined : at.tag;
  const script = await provider.script(endlessRun(holdTag));
  const body = { model: modelOf(script), input: 'go', tools: [SERVER_TOOLS] };
  switch (at.type) {
    case 'sending':
      await sendPart(server, { ...body, stream: true }, at.part);
      return undefined;
    case 'waiting': {
      const connection = new AbortController();
      const isChat = at.path.includes('chat');
      const messages = [{ role: 'user', content: 'go' }];
      const answer = fetch(server.url + at.path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(isChat ? { ...body, messages } : body),
        signal: connection.signal,
      });
      await (holdTag === undefined ? waitForRequests(script, 2) : server.held(holdTag));
      connection.abort();
      await expect(answer).rejects.toThrow('aborted');
      return undefined;
    }
    case 'reading': {
      const client = streamClient(server.url, body);
      await client.started;
      // The run emits at least 25 events before it hangs.
      await client.received(at.events);
      if (at.held && holdTag !== undefined) await server.held(holdTag);
      client.disconnect();
      await client.ended;
      return client.events[0]!.response!.id;
    }
    default:
      return at satisfies never;
  }
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
