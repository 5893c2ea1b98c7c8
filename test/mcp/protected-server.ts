import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An MCP server at `/mcp` and its authorization server. Tokens are `token-N`, of which only the last is accepted. */
export interface ProtectedServer {
  readonly base: string;
  issued: number;
  accepted: string | undefined;
  refresh: string | undefined;
  registrations: number;
  /** What was requested, such as `POST /token refresh_token`, without the requests to the MCP server. */
  log: string[];
  /** The tokens that reached the MCP server. */
  received: (string | undefined)[];
  /** What the metadata of the MCP server names. */
  authorizationServer: () => string;
  /** Holds answers with new tokens back. */
  gate: Promise<void> | undefined;
  close(): Promise<void>;
}

/** `mcp`: answers the requests to the MCP server that have a token; default: with what was sent. */
export async function protectedServer(mcp: typeof fetch = echo): Promise<ProtectedServer> {
  const server = createServer((request, response) => void answer(request, response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const state: ProtectedServer = {
    base,
    issued: 0,
    accepted: undefined,
    refresh: undefined,
    registrations: 0,
    log: [],
    received: [],
    authorizationServer: () => base,
    gate: undefined,
    async close() {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const url = new URL(request.url!, base);
    const json = (status: number, value: unknown, headers = {}): void => {
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
    };
    if (url.pathname === '/mcp') {
      const token = request.headers.authorization?.replace('Bearer ', '');
      state.received.push(token);
      if (token !== undefined && token === state.accepted) return send(await mcp(url, initOf(request, text)), response);
      const metadata = `${base}/.well-known/oauth-protected-resource/mcp`;
      return json(401, {}, { 'www-authenticate': `Bearer resource_metadata="${metadata}", scope="tools"` });
    }
    const form = new URLSearchParams(text);
    state.log.push([request.method, url.pathname, form.get('grant_type') ?? ''].join(' ').trim());
    if (url.pathname.startsWith('/.well-known/oauth-protected-resource')) {
      return json(200, { resource: `${base}/mcp`, authorization_servers: [state.authorizationServer()] });
    }
    const issuer = url.pathname.includes('/second') ? `${base}/second` : base;
    if (url.pathname.startsWith('/.well-known/oauth-authorization-server')) {
      return json(200, {
        issuer,
        authorization_endpoint: `${issuer}/authorize`,
        token_endpoint: `${issuer}/token`,
        registration_endpoint: `${issuer}/register`,
        response_types_supported: ['code'],
        code_challenge_methods_supported: ['S256'],
      });
    }
    if (url.pathname.endsWith('/register')) {
      state.registrations += 1;
      return json(201, { ...(JSON.parse(text) as object), client_id: `client-${state.registrations}` });
    }
    if (!url.pathname.endsWith('/token')) return json(404, {});
    const grant = form.get('grant_type');
    const isUnknown = grant === 'refresh_token' && form.get('refresh_token') !== state.refresh;
    if (isUnknown) return json(400, { error: 'invalid_grant' });
    if (grant === 'authorization_code' && !form.get('code_verifier')) return json(400, { error: 'invalid_request' });
    await state.gate;
    state.issued += 1;
    state.accepted = `token-${state.issued}`;
    state.refresh = `refresh-${state.issued}`;
    const { accepted: access_token, refresh: refresh_token } = state;
    json(200, { access_token, token_type: 'bearer', refresh_token, scope: 'tools' });
  }
  return state;
}

async function echo(_: unknown, init?: RequestInit): Promise<Response> {
  return Response.json({ echoed: init?.body });
}

function initOf({ method = 'GET', headers }: IncomingMessage, body: string): RequestInit {
  const given = Object.entries(headers).map(([name, value]) => [name, String(value)] as [string, string]);
  return { method, headers: given, ...(body !== '' && { body }) };
}

async function send(reply: Response, response: ServerResponse): Promise<void> {
  response.writeHead(reply.status, Object.fromEntries(reply.headers));
  for await (const chunk of reply.body ?? []) response.write(chunk);
  response.end();
}
