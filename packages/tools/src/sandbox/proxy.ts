import { lookup } from 'node:dns/promises';
import type * as Http from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { UrlCheck } from '../http/client.ts';
import { urlFacts } from '../http/url-facts.ts';

/*
 * A proxy for sandboxes without a network of their own: HTTP requests, and tunnels by CONNECT.
 *
 * 1. The host of each request is checked, then every address that it resolves to. The connection goes to one of these.
 * 2. Names are resolved here, so a program inside sends none to a name server.
 */

/** Gets `http://HOST:PORT/` for each request, and again with every address of the host and its name. */
export type HostCheck = UrlCheck;

const CONNECT_MS = 30_000;
const MAX_CONNECTIONS = 256;

/** As an ES module it loads what the `fetch` of Node needs, too, at the start of each command. */
const http = (): typeof Http => process.getBuiltinModule('node:http');

/** Listens on a socket. Does not keep the process alive. */
export async function startProxy(socket: string, check: HostCheck): Promise<void> {
  const server = http().createServer({ maxHeaderSize: 16 * 1024, keepAliveTimeout: 1_000 });
  server.maxConnections = MAX_CONNECTIONS;
  server.on('request', (request, response) => void forward(request, response, check).catch(() => response.destroy()));
  server.on('connect', (request, client: Socket, head: Buffer) => void tunnel({ request, client, head, check }));
  server.on('clientError', (_, client) => client.destroy());
  await new Promise<void>((done, fail) => server.once('error', fail).listen(socket, done));
  server.unref();
}

interface Tunnel {
  readonly request: IncomingMessage;
  readonly client: Socket;
  readonly head: Buffer;
  readonly check: HostCheck;
}

async function tunnel({ request, client, head, check }: Tunnel): Promise<void> {
  client.on('error', () => client.destroy());
  const target = await targetOf(`https://${request.url ?? ''}/`, check);
  if ('refused' in target) {
    client.end(`HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n${target.refused}\n`);
    return;
  }
  const server = connect({ host: target.address, port: target.port, timeout: CONNECT_MS });
  const end = (): void => {
    client.destroy();
    server.destroy();
  };
  server.on('error', end).on('timeout', end).on('close', end);
  client.on('close', end);
  server.once('connect', () => {
    server.setTimeout(0);
    client.write('HTTP/1.1 200 Connection Established\r\n\r\n');
    server.write(head);
    server.pipe(client).pipe(server);
  });
}

async function forward(request: IncomingMessage, response: ServerResponse, check: HostCheck): Promise<void> {
  const target = await targetOf(request.url ?? '', check);
  if ('refused' in target || !/^http:\/\//i.test(request.url ?? '')) {
    response.writeHead(403, { 'content-type': 'text/plain' });
    response.end(`${'refused' in target ? target.refused : 'The sandbox allows only http and https.'}\n`);
    return;
  }
  const { pathname, search, host } = new URL(request.url!);
  const { 'proxy-connection': _, 'proxy-authorization': __, ...headers } = request.headers;
  const sent = http().request({
    host: target.address,
    port: target.port,
    method: request.method ?? 'GET',
    path: `${pathname}${search}`,
    headers: { ...headers, host },
    timeout: CONNECT_MS,
    agent: false,
  });
  sent.on('response', (reply) => {
    response.writeHead(reply.statusCode ?? 502, reply.headers);
    reply.pipe(response);
  });
  sent.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  request.pipe(sent);
}

/** Where a request goes, or why it is refused. */
async function targetOf(
  url: string,
  check: HostCheck,
): Promise<{ readonly address: string; readonly port: number } | { readonly refused: string }> {
  const { host, port, scheme, unclear, range } = urlFacts(url);
  if (unclear !== undefined) return { refused: `The sandbox does not allow the request: ${unclear}.` };
  try {
    const reason = await check(`${scheme}://${shownHost(host)}:${port}/`);
    if (reason !== undefined) return { refused: `The sandbox does not allow ${host}: ${reason}` };
    const isAddress =
      range !== undefined && urlFacts(`http://${shownHost(host)}/`).host === host && /^[\d.]+$|:/.test(host);
    const addresses = isAddress ? [host] : (await lookup(host, { all: true })).map(({ address }) => address);
    for (const address of isAddress ? [] : addresses) {
      const why = await check(`${scheme}://${shownHost(address)}:${port}/`, host);
      if (why !== undefined) return { refused: `The sandbox does not allow ${host} (${address}): ${why}` };
    }
    const [address] = addresses;
    return address === undefined ? { refused: `${host} has no address.` } : { address, port };
  } catch (error) {
    return { refused: `${host} cannot be reached: ${(error as Error).message}` };
  }
}

function shownHost(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
