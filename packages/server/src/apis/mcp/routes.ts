import type { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { AuthInfo } from '@modelcontextprotocol/server';
import type { Context } from 'hono';
import { ApiError } from '../../api-error.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { disconnectSignal } from '../../http/respond.ts';
import { EVENTS, JSON_TYPE, route, type Route } from '../../http/routes.ts';
import type { McpEndpoint } from './endpoint.ts';

export interface McpRoutesOptions {
  /** Called for the first request: a server that is not used over MCP does not load its code. */
  readonly open: () => Promise<McpEndpoint>;
  readonly maxBodyBytes: number;
}

/** `/mcp`: streamable HTTP of all revisions. The scopes of tools and agents are checked when they are called. */
export function mcpRoutes({ open, maxBodyBytes }: McpRoutesOptions): readonly Route[] {
  let opened: Promise<McpEndpoint> | undefined;

  async function serve(c: Context<Env>): Promise<Response> {
    const caller = c.get('caller');
    const { incoming, exchange } = c.env;
    let body: unknown;
    if (incoming.method === 'POST') {
      try {
        body = await readJson(c, maxBodyBytes);
      } catch (error) {
        if (!(error instanceof ApiError && error.code === 'invalid_json')) throw error;
        return c.json({ jsonrpc: '2.0', id: null, error: { code: -32700, message: error.message } }, 400);
      }
    }
    // A stream that ends when the client disconnects.
    if (incoming.method === 'GET') exchange.openStream();
    const endpoint = await (opened ??= open());
    const request = webRequest(incoming, disconnectSignal(c));
    const response = await endpoint.serve(request, { body, caller, authInfo: authInfoOf(caller) });
    return sendWebResponse(response, c.env);
  }

  return [
    route({
      method: 'POST',
      path: '/mcp',
      scope: 'any-key',
      summary: 'Send a message of the Model Context Protocol',
      answers: [JSON_TYPE, EVENTS],
      others: { '202': 'The message needs no answer.' },
      handle: serve,
    }),
    route({
      method: 'GET',
      path: '/mcp',
      scope: 'any-key',
      summary: 'Open the stream of an MCP session',
      answers: [EVENTS],
      handle: serve,
    }),
    route({ method: 'DELETE', path: '/mcp', scope: 'any-key', summary: 'End an MCP session', handle: serve }),
  ];
}

/** Without its body, which is read already. */
function webRequest({ method = 'GET', headers }: IncomingMessage, signal: AbortSignal): Request {
  const sent = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (typeof value === 'string') sent.set(name, value);
  }
  return new Request('http://treadle/mcp', { method, headers: sent, signal });
}

/** The server has checked the key. Handlers get the caller of each request by this. */
function authInfoOf(caller: Caller): AuthInfo {
  return { token: '', clientId: caller.key, scopes: [...caller.scopes], extra: { caller } };
}

/** Sends a response of the SDK. A stream is read only as fast as the client reads it. */
async function sendWebResponse(
  { status, headers, body }: Response,
  { outgoing, exchange }: Env['Bindings'],
): Promise<Response> {
  const sent = Object.fromEntries(headers);
  if (!sent['content-type']?.startsWith('text/event-stream')) {
    const bytes = body === null ? undefined : Buffer.from(await new Response(body).arrayBuffer());
    exchange.hold(bytes?.length ?? 0);
    await exchange.durable();
    outgoing.writeHead(status, { ...sent, 'Content-Length': bytes?.length ?? 0 }).end(bytes);
    return RESPONSE_ALREADY_SENT;
  }
  const reader = body!.getReader();
  outgoing.once('close', () => void reader.cancel().catch(() => {}));
  outgoing.on('error', () => {});
  // The headers name the session.
  await exchange.durable();
  outgoing.writeHead(status, { ...sent, 'x-accel-buffering': 'no' });
  outgoing.flushHeaders();
  for (;;) {
    const { done, value } = await reader.read();
    if (done || outgoing.destroyed) break;
    await exchange.durable();
    if (!outgoing.write(value)) await hasRoom(outgoing);
  }
  outgoing.end();
  return RESPONSE_ALREADY_SENT;
}

/** Resolves when the client has read enough, or has disconnected. */
function hasRoom(outgoing: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      outgoing.off('drain', done).off('close', done);
      resolve();
    };
    outgoing.on('drain', done).on('close', done);
  });
}
