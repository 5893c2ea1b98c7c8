/*
 * HTTP requests to hosts that a check allows.
 *
 * 1. The URL is checked, then every address that its host resolves to. The connection is made to one of these addresses, not
 *    to the name, so a name server cannot answer differently in between. The address of the socket is compared once more.
 * 2. Each redirect is a new request with all checks. Another origin receives only the headers in CROSS_ORIGIN_HEADERS.
 * 3. Time, redirects, interim replies, and the size of the body before and after decompression are limited.
 * 4. Proxies in the environment are not used, cookies are not kept, connections are not shared.
 */
import { lookup } from 'node:dns/promises';
import type { IncomingMessage } from 'node:http';
import { connect as tcpConnect, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { ConnectionOptions } from 'node:tls';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { DeniedError } from '../denied.ts';
import { addressOf } from './addresses.ts';
import { urlFacts } from './url-facts.ts';

export interface HttpOptions {
  /**
   * Says why a request may not be made, or nothing. It is called with each URL, also of redirects. If the host is a name, it is
   * called again for every address that the name resolves to: with a URL that has the address as its host, and the name.
   */
  readonly check: UrlCheck;
  /** Finds the addresses of a name. Default: those that the system finds. */
  readonly resolve?: (name: string) => Promise<readonly string[]>;
  /** For the whole request with its redirects. Default: 30,000. */
  readonly timeoutMs?: number;
  /** Of the body, as it is received and after decompression. Default: 10 MB. */
  readonly maxBytes?: number;
  /** Default: 5. */
  readonly maxRedirects?: number;
  /** Certificates to trust instead of those that Node trusts, in PEM. */
  readonly ca?: string;
}

export type UrlCheck = (url: string, resolvedFrom?: string) => string | undefined | Promise<string | undefined>;

export interface HttpRequest {
  /** Default: `GET`. */
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  /** The body of the reply is not read: in `HttpReply` it is empty. */
  readonly ignoreBody?: boolean;
  readonly signal?: AbortSignal;
}

export interface HttpReply {
  /** Where it came from, after redirects. */
  readonly url: string;
  readonly status: number;
  /** Names in lower case. Several values of one name are joined with a comma. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

export interface HttpClient {
  /** Throws a `DeniedError` if the check does not allow the request, and other errors if it fails or exceeds a limit. */
  request(url: string, request?: HttpRequest): Promise<HttpReply>;
  /**
   * The same for code that uses `fetch`, such as a client of a protocol with streams. The time limit is for the headers: the
   * body is read until its end, its limit, or the abort of the signal. Bodies of requests are texts or bytes.
   */
  readonly fetch: typeof fetch;
}

/** A reply whose body has not been read. */
interface OpenReply extends Omit<HttpReply, 'body'> {
  /** Undefined if the reply has none. */
  readonly content: Readable | undefined;
  /** Ends the connection. */
  readonly close: () => void;
}

/** All that another origin gets of the headers. Others may be credentials. */
const CROSS_ORIGIN_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'accept-language',
  'content-language',
  'content-type',
  'range',
  'user-agent',
]);
/** Headers about the connection. A caller that could set them could reach another host than the one checked. */
const CONNECTION_HEADERS =
  /^(host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|keep-alive|accept-encoding|proxy-.*|http2-settings)$/;
/** Replies such as 103, before the reply itself. They belong to no body, so no other limit of size applies. */
const MAX_INTERIM = 50;
const METHOD = /^[A-Z]+$/;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

export function httpClient(options: HttpOptions): HttpClient {
  const { check, timeoutMs = 30_000, maxBytes = 10 * 1024 * 1024, maxRedirects = 5, ca } = options;
  const resolve = options.resolve ?? systemAddresses;

  return {
    async request(url, { method = 'GET', headers = {}, body, ignoreBody = false, signal } = {}) {
      checkMethod(method);
      const deadline = AbortSignal.timeout(timeoutMs);
      const stop = signal ? AbortSignal.any([signal, deadline]) : deadline;
      try {
        const reply = await follow({ url, method, headers: checkedHeaders(headers), body, ignoreBody }, stop);
        return await wholeReply(reply);
      } catch (error) {
        if (!deadline.aborted || signal?.aborted) throw error;
        throw new Error(`The request of ${url} took more than ${timeoutMs} ms.`, { cause: error });
      }
    },
    async fetch(input, init = {}) {
      const request = fetchRequest(input, init);
      checkMethod(request.method);
      const stopped = new AbortController();
      const timer = setTimeout(() => {
        stopped.abort(new Error(`${request.url} sent no reply in ${timeoutMs} ms.`));
      }, timeoutMs);
      const stop = init.signal ? AbortSignal.any([init.signal, stopped.signal]) : stopped.signal;
      try {
        return streamedResponse(await follow(request, stop), stop);
      } catch (error) {
        throw stopped.signal.aborted ? stopped.signal.reason : error;
      } finally {
        clearTimeout(timer);
      }
    },
  };

  async function wholeReply({ content, close, ...reply }: OpenReply): Promise<HttpReply> {
    try {
      return { ...reply, body: content ? await bodyOf(content, reply.url) : new Uint8Array() };
    } finally {
      close();
    }
  }

  function streamedResponse({ url, status, headers, content, close }: OpenReply, stop: AbortSignal): Response {
    async function* limited(): AsyncGenerator<Uint8Array> {
      let bytes = 0;
      try {
        for await (const chunk of content as AsyncIterable<Uint8Array>) {
          bytes += chunk.length;
          if (bytes > maxBytes) throw tooLong(url);
          yield chunk;
        }
      } finally {
        stop.removeEventListener('abort', close);
        close();
      }
    }
    if (!content) {
      close();
      return new Response(null, { status, headers });
    }
    stop.addEventListener('abort', close, { once: true });
    // The body is decoded.
    const { 'content-encoding': _, 'content-length': __, ...others } = headers;
    return new Response(ReadableStream.from(limited()), { status, headers: others });
  }

  function tooLong(url: string): Error {
    return new Error(`The body of ${url} has more than ${maxBytes} bytes.`);
  }

  async function follow(first: Hop, stop: AbortSignal): Promise<OpenReply> {
    let hop = first;
    for (let redirects = 0; ; redirects++) {
      const reply = await requestOnce(hop, stop);
      const location = reply.headers['location'];
      if (!REDIRECTS.has(reply.status) || location === undefined) return reply;
      reply.close();
      if (redirects === maxRedirects) throw new Error(`${first.url} redirects more than ${maxRedirects} times.`);
      hop = redirected(hop, reply.status, location);
    }
  }

  async function requestOnce(hop: Hop, stop: AbortSignal): Promise<OpenReply> {
    stop.throwIfAborted();
    const facts = urlFacts(hop.url);
    if (facts.unclear !== undefined)
      throw new DeniedError(`${JSON.stringify(hop.url)} is not requested: ${facts.unclear}.`);
    const { scheme, host, port } = facts;
    if (scheme !== 'http' && scheme !== 'https')
      throw new DeniedError(`Only http and https are supported, not ${scheme}.`);
    await demand(hop.url, stop);
    const isName = !addressOf(host);
    const addresses = isName ? await checkedAddresses(scheme, host, port, stop) : [host];
    const socket = await connectToFirst(addresses, port, stop);
    try {
      const secured = scheme === 'https' ? await secure(socket, isName ? host : undefined, host, stop) : socket;
      return await exchange(secured, hop, { isSecure: scheme === 'https', host, port, stop });
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  async function demand(url: string, stop: AbortSignal, resolvedFrom?: string): Promise<void> {
    const reason = await untilStopped(check(url, resolvedFrom), stop);
    if (reason !== undefined) throw new DeniedError(reason);
  }

  /** All of them, or none: a name with an address that is denied is not trusted with the others. */
  async function checkedAddresses(scheme: string, name: string, port: number, stop: AbortSignal): Promise<string[]> {
    const found = await untilStopped(resolve(name), stop);
    if (found.length === 0) throw new Error(`${name} has no address.`);
    const addresses: string[] = [];
    for (const text of found) {
      const address = addressOf(text)?.address;
      if (address === undefined)
        throw new DeniedError(`${name} resolves to ${JSON.stringify(text)}, which is no address.`);
      await demand(`${scheme}://${bracketed(address)}:${port}/`, stop, name);
      addresses.push(address);
    }
    return addresses;
  }

  async function secure(
    socket: Socket,
    servername: string | undefined,
    host: string,
    stop: AbortSignal,
  ): Promise<Socket> {
    const tls: ConnectionOptions = {
      socket,
      host,
      rejectUnauthorized: true,
      ALPNProtocols: ['http/1.1'],
      ...(ca !== undefined && { ca }),
    };
    // Certificates are compared with the server name, or with the host if it is an address.
    // Most processes never need it, and it takes 4 ms to load.
    const { connect: connectTls } = process.getBuiltinModule('node:tls');
    const secured = connectTls(servername === undefined ? tls : { ...tls, servername });
    await eventOf(secured, 'secureConnect', stop);
    return secured;
  }

  async function exchange(
    socket: Socket,
    { url, method, headers, body, ignoreBody }: Hop,
    to: { isSecure: boolean; host: string; port: number; stop: AbortSignal },
  ): Promise<OpenReply> {
    const { pathname, search } = new URL(url);
    const isUsualPort = to.port === (to.isSecure ? 443 : 80);
    // As an ES module it loads what the `fetch` of Node needs, too. That takes 50 ms of the start of each command.
    const outgoing = process.getBuiltinModule('node:http').request({
      createConnection: () => socket,
      method,
      path: pathname + search,
      signal: to.stop,
      setHost: false,
      headers: {
        ...headers,
        host: bracketed(to.host) + (isUsualPort ? '' : `:${to.port}`),
        'accept-encoding': 'gzip, deflate, br',
        connection: 'close',
        ...(body !== undefined && { 'content-length': String(Buffer.byteLength(body)) }),
      },
    });
    const { promise, resolve: received, reject } = Promise.withResolvers<IncomingMessage>();
    outgoing.on('response', received).on('error', reject);
    outgoing.on('upgrade', () => reject(new Error(`${url} switches to another protocol, which is not supported.`)));
    let interim = 0;
    outgoing.on('information', () => {
      if (++interim > MAX_INTERIM)
        outgoing.destroy(new Error(`${url} sends more than ${MAX_INTERIM} interim replies.`));
    });
    outgoing.end(body);
    const incoming = await promise;
    const replyHeaders = joinedHeaders(incoming);
    const status = incoming.statusCode!;
    const isRedirect = REDIRECTS.has(status) && 'location' in replyHeaders;
    const hasBody = method !== 'HEAD' && status !== 204 && status !== 304 && !isRedirect && !ignoreBody;
    const close = (): void => void socket.destroy();
    return { url, status, headers: replyHeaders, content: hasBody ? contentOf(incoming, url) : undefined, close };
  }

  function contentOf(incoming: IncomingMessage, url: string): Readable {
    const content = decoded(incoming, url);
    if (content !== incoming) {
      // A compressed body may be endless and yet have no content.
      let received = 0;
      incoming.on('data', (chunk: Uint8Array) => {
        received += chunk.length;
        if (received > maxBytes) incoming.destroy(tooLong(url));
      });
    }
    return content;
  }

  async function bodyOf(content: Readable, url: string): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of content as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > maxBytes) throw tooLong(url);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  }
}

function checkMethod(method: string): void {
  if (METHOD.test(method) && method !== 'CONNECT' && method !== 'TRACE') return;
  throw new Error(`The method ${JSON.stringify(method)} is not supported. Use GET, HEAD, POST, PUT, PATCH or DELETE.`);
}

function fetchRequest(input: Parameters<typeof fetch>[0], init: RequestInit): Hop {
  const { method = 'GET', headers, body } = init;
  if (input instanceof Request) throw new Error('A Request is not supported. Pass a URL and options.');
  const isBytes = body instanceof Uint8Array;
  if (body != null && typeof body !== 'string' && !isBytes && !(body instanceof URLSearchParams)) {
    throw new Error('The body of a request has to be a text or bytes.');
  }
  const type = body instanceof URLSearchParams && { 'content-type': 'application/x-www-form-urlencoded' };
  return {
    url: String(input),
    method,
    headers: checkedHeaders({ ...type, ...Object.fromEntries(new Headers(headers)) }),
    body: body == null ? undefined : isBytes ? body : String(body),
    ignoreBody: false,
  };
}

interface Hop {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | undefined;
  readonly ignoreBody: boolean;
}

function redirected({ url, method, headers, body, ignoreBody }: Hop, status: number, location: string): Hop {
  const next = URL.parse(location, url);
  if (!next) throw new DeniedError(`${url} redirects to ${JSON.stringify(location)}, which is not a URL.`);
  const becomesGet = (status === 303 && method !== 'HEAD') || ((status === 301 || status === 302) && method === 'POST');
  const isSameOrigin = next.origin === new URL(url).origin;
  const kept = Object.entries(headers).filter(
    ([name]) => (isSameOrigin || CROSS_ORIGIN_HEADERS.has(name)) && !(becomesGet && name.startsWith('content-')),
  );
  next.hash = '';
  return {
    url: next.href,
    method: becomesGet ? 'GET' : method,
    headers: Object.fromEntries(kept),
    body: becomesGet ? undefined : body,
    ignoreBody,
  };
}

function checkedHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const checked: Record<string, string> = {};
  for (const [given, value] of Object.entries(headers)) {
    const name = given.toLowerCase();
    if (CONNECTION_HEADERS.test(name)) throw new Error(`The header ${given} is set by the client. Remove it.`);
    checked[name] = value;
  }
  return checked;
}

async function connectToFirst(addresses: readonly string[], port: number, stop: AbortSignal): Promise<Socket> {
  let failure: unknown;
  for (const address of addresses) {
    const socket = tcpConnect({ host: address, port, autoSelectFamily: false });
    try {
      await eventOf(socket, 'connect', stop);
      const connected = addressOf(socket.remoteAddress ?? '')?.address;
      if (!isUnspecified(address) && connected !== address) {
        throw new DeniedError(`The connection to ${address} reached ${connected}.`);
      }
      return socket;
    } catch (error) {
      socket.destroy();
      if (stop.aborted || error instanceof DeniedError) throw error;
      failure = error;
    }
  }
  throw failure;
}

/** Connections to it reach this machine, at 127.0.0.1 or ::1. */
function isUnspecified(address: string): boolean {
  return address === '0.0.0.0' || address === '::';
}

/** Waits for an event of a socket. An error of the socket, or the signal, ends the wait and the socket. */
async function eventOf(socket: Socket, event: 'connect' | 'secureConnect', stop: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const abort = (): void => {
    socket.destroy();
    reject(stop.reason);
  };
  // Errors after the event end what reads from the socket. They must not end the process.
  socket.on('error', reject).once(event, resolve);
  stop.addEventListener('abort', abort, { once: true });
  if (stop.aborted) abort();
  try {
    await promise;
  } finally {
    stop.removeEventListener('abort', abort);
  }
}

/** A look-up or a check cannot be stopped; its result is ignored. */
async function untilStopped<T>(work: T | Promise<T>, stop: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(stop.reason);
  stop.addEventListener('abort', abort, { once: true });
  if (stop.aborted) abort();
  try {
    return await Promise.race([work, promise]);
  } finally {
    stop.removeEventListener('abort', abort);
  }
}

async function systemAddresses(name: string): Promise<string[]> {
  return (await lookup(name, { all: true })).map(({ address }) => address);
}

function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

function joinedHeaders({ headers }: IncomingMessage): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value = '']) => [name, Array.isArray(value) ? value.join(', ') : value]),
  );
}

/** Decompresses piece by piece, so that a small reply cannot fill the memory before the limit applies. */
function decoded(incoming: IncomingMessage, url: string): Readable {
  const encoding = (incoming.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'identity' || encoding === '') return incoming;
  const create = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined;
  if (!create) {
    incoming.destroy();
    throw new Error(`The body of ${url} has the encoding ${encoding}, which is not supported.`);
  }
  const decoder = create();
  incoming.on('error', (error) => decoder.destroy(error));
  return incoming.pipe(decoder);
}

const DECODERS: Readonly<Record<string, () => ReturnType<typeof createGunzip>>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};
