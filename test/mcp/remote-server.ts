import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';
import { scriptedServer } from './scripted-server.ts';

/** An MCP server over HTTP, at an address of this machine. */
export interface RemoteServer extends AsyncDisposable {
  readonly url: string;
  /** The calls that it executed, as `name input`. */
  readonly calls: string[];
  /** The headers of all requests. */
  readonly headers: Headers[];
  /** How it describes `send_mail`. */
  mailText: string;
  /** Further tools. */
  added: readonly string[];
  /** The tools that it adds, and announces, at the next call. */
  adds: readonly string[];
  /** The answer to a request instead of that of the server; undefined: its own. */
  instead: ((request: RemoteRequest) => Response | Promise<Response> | undefined) | undefined;
}

export interface RemoteRequest {
  readonly path: string;
  readonly headers: Headers;
  readonly body: string;
}

const NOTHING = { type: 'object', properties: {} };
const RECIPIENT = { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] };

/** Offers `read_note`, which only reads, `send_mail`, which does not, and `repeat_headers`, which says nothing about itself. */
export async function startRemoteServer(): Promise<RemoteServer> {
  const calls: string[] = [];
  const headers: Headers[] = [];
  const results: Record<string, (input: Readonly<Record<string, unknown>>) => string> = {
    read_note: () => 'the note',
    send_mail: ({ to }) => `sent to ${String(to)}`,
    repeat_headers: () => JSON.stringify([...headers.at(-1)!]),
  };
  const { fetch } = scriptedServer({
    'tools/list': () => ({
      tools: [
        {
          name: 'send_mail',
          description: server.mailText,
          inputSchema: RECIPIENT,
          annotations: { readOnlyHint: false, destructiveHint: true },
        },
        { name: 'read_note', description: 'Reads a note', inputSchema: NOTHING, annotations: { readOnlyHint: true } },
        { name: 'repeat_headers', description: 'Repeats what it was sent', inputSchema: NOTHING },
        ...server.added.map((name) => ({ name, description: server.mailText, inputSchema: NOTHING })),
      ],
    }),
    'tools/call'({ params, send }) {
      if (server.adds.length > 0) {
        [server.added, server.adds] = [[...server.added, ...server.adds], []];
        send({ method: 'notifications/tools/list_changed' });
      }
      const { name, arguments: input = {} } = params as { name: string; arguments?: Record<string, unknown> };
      calls.push(`${name} ${JSON.stringify(input)}`);
      return { content: [{ type: 'text', text: results[name]?.(input) ?? 'done' }] };
    },
  });
  const http = createServer(async (incoming, outgoing) => {
    const sent = new Headers(incoming.headers as Record<string, string>);
    headers.push(sent);
    const body = Buffer.concat(await Array.fromAsync(incoming as AsyncIterable<Uint8Array>)).toString();
    const { url: path = '', method = 'GET' } = incoming;
    const other = await server.instead?.({ path, headers: sent, body });
    const reply = other ?? (await fetch(path, { method, body, headers: sent }));
    outgoing.writeHead(reply.status, Object.fromEntries(reply.headers));
    if (reply.body) await pipeline(Readable.fromWeb(reply.body as ReadableStream), outgoing).catch(() => {});
    else outgoing.end();
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const server: RemoteServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    calls,
    headers,
    mailText: 'Sends a mail',
    added: [],
    adds: [],
    instead: undefined,
    async [Symbol.asyncDispose]() {
      http.closeAllConnections();
      http.close();
      await once(http, 'close');
    },
  };
  return server;
}
