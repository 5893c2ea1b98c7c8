import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { isIPv4 } from 'node:net';
import type { HttpBindings } from '@hono/node-server';
import { TreadleError, type RunFacts } from '@treadle/core';
import type { Logger } from 'pino';
import { ApiError, badRequest } from '../api-error.ts';
import { DEFAULT_TENANT, presentedKey, SCOPES, type Keys, type KnownKey, type Scope } from './keys.ts';
import { runFactsIn } from './run-facts.ts';
import { addressId, rateHeaders, RETRY_SECONDS, type Held, type Rate } from './limits.ts';
import type { Begun, SharedLimits } from './shared-limits.ts';
import type { Upgrade } from './websocket.ts';

/** Who sent a request. */
export interface Caller {
  /** Callers of one tenant see the same responses. */
  readonly tenant: string;
  /** The name of its key; empty if the server has no keys. */
  readonly key: string;
  readonly scopes: readonly string[];
  /** Sent as `x-request-id`, and part of every line that `log` writes. */
  readonly requestId: string;
  readonly log: Logger;
  /** Counts bytes that its request holds: `hold` of the exchange. Absent: nothing is counted. */
  readonly hold?: Exchange['hold'];
  /** What the headers of the request say about its run. Reading it throws a 400 if one is not valid. */
  readonly facts?: RunFacts | undefined;
  /** The run that the request has started. Set when it starts, for the log. */
  runId?: string;
}

/** The context of the routes. Streams are written to `c.env.outgoing`. `upgrade` is set if the client asks for a WebSocket. */
export type Env = {
  Bindings: HttpBindings & { exchange: Exchange; upgrade?: Upgrade };
  Variables: { caller: Caller };
};

/** The answer to a request: an HTTP response, or what answers a message on a socket. */
export interface Answering {
  setHeader(name: string, value: string): unknown;
  once(event: 'close', listener: () => void): unknown;
}

/**
 * Who may use a route: keys with a scope; with `any-key`, keys with any scope other than `metrics:read`, which is for `/metrics`
 * alone; with `signed`, everybody whose signature the handler accepts; with `open`, everybody.
 */
export type RouteScope = Scope | 'any-key' | 'signed' | 'open';

export interface MatchedRoute {
  /** Its path in the form of OpenAPI: `/v1/runs/{id}`. */
  readonly pattern: string;
  readonly scope: RouteScope;
  readonly errorForm?: ErrorForm;
  readonly failureFor?: FailureFor;
}

/** The answer to a client that reads errors in a way of its own. Undefined: the client is another one. */
export type FailureFor = (error: ApiError, headers: IncomingHttpHeaders) => Response | undefined;

/** How an API tells its clients about an error: with a status of its own, and a header with the id of the request. */
export interface ErrorForm {
  /** The header of every response with the id of the request. */
  readonly idHeader: string;
  /** JSON Schema of the body. */
  readonly schema: Readonly<Record<string, unknown>>;
  statusOf(error: ApiError): number;
  bodyOf(error: ApiError, requestId: string): object;
}

/** One request, from its arrival to the end of its response. */
export interface Exchange {
  readonly requestId: string;
  /** The server's log. The log of a caller contains the request id. */
  readonly log: Logger;
  /** Set when the request was admitted. */
  caller?: Caller;
  /** Set if the request ended without an HTTP response: with an upgrade, or with a handshake that was not valid. */
  status?: number;
  /** The route that it matches. Absent: none. */
  route?: MatchedRoute;
  /**
   * Counts bytes that the request holds until its end, or until they are given back with a negative number. Throws a 429 or a
   * 503 if they are too many.
   */
  hold(bytes: number): void;
  /**
   * Calls the listener at the end of the request: its response is closed, and nothing is done for it any more. The work for a
   * client that has disconnected may take longer than the connection.
   */
  onEnd(listener: () => void): void;
  /** Nothing is done for the request any more. */
  workEnded(): void;
  /**
   * Returns a promise if something that the request may have read is not durable yet: the response leaves after it. Rejects if
   * it cannot become durable: then the client gets an error instead.
   */
  durable(): void | Promise<void>;
  /** Counts bytes that it holds for a shorter time. They are released by the caller. */
  holder(): Held;
  /**
   * Counts the response as an open stream until it is closed. Throws a 429 if the tenant or the server has too many. The stream
   * is cut when its key is removed.
   */
  openStream(): void;
}

export interface AdmissionOptions {
  readonly keys: Keys;
  readonly cors: readonly string[];
  readonly limits: RateLimits;
  /** What counts requests. */
  readonly shared: SharedLimits;
}

export interface RateLimits {
  /** For each key that has no limit of its own. */
  readonly requestsPerMinute?: number;
  /** For each remote address, for requests without a valid key: all requests on a server without keys. */
  readonly requestsPerMinutePerAddress?: number;
}

/**
 * Identifies the caller of a request, which it sets on the exchange, and counts the request. Then checks the scope of its
 * route; a request without a route needs any key. Throws an `ApiError`, or rejects with it, if the request is not admitted. A
 * promise is returned only if the store has to be asked.
 */
export type Admit = (incoming: IncomingMessage, outgoing: Answering, exchange: Exchange) => Caller | Promise<Caller>;

export interface Admission extends Admit {
  /** For routes without a key: throws if the request has several hosts, or comes from the page of another site to a server without keys. */
  checkAddress(incoming: IncomingMessage): void;
}

export function admission({ keys, cors, limits, shared }: AdmissionOptions): Admission {
  /** Nothing if there is no limit. */
  function countRequest(outgoing: Answering, id: string, perMinute: number | undefined): void | Promise<void> {
    if (perMinute === undefined) return undefined;
    return after(shared.countRequest(id, perMinute), (rate) => checkRate(outgoing, rate, perMinute));
  }

  /** The headers are set on Node's response, so that streams have them too. */
  function checkRate(outgoing: Answering, rate: Rate, perMinute: number): void {
    for (const [name, value] of Object.entries(rateHeaders(rate))) outgoing.setHeader(name, value);
    if (rate.allowed) return;
    throw new ApiError(
      429,
      'rate_limit_error',
      `You sent more than ${perMinute} requests in a minute. Retry after the time in the Retry-After header.`,
      { code: 'rate_limit_exceeded' },
    );
  }

  function countAddress({ socket }: IncomingMessage, outgoing: Answering): void | Promise<void> {
    return countRequest(outgoing, `address ${addressId(socket.remoteAddress)}`, limits.requestsPerMinutePerAddress);
  }

  function beginRequest({ name, maxConcurrentRequests: max }: KnownKey, exchange: Exchange): void | Promise<void> {
    if (max === undefined) return undefined;
    return after(shared.beginRequest(`key ${name}`, max), (begun: Begun | undefined) => {
      if (begun) return exchange.onEnd(begun);
      const message = `The key "${name}" has ${max} requests in progress, which is its limit. Retry when one has ended.`;
      const headers = { 'Retry-After': String(RETRY_SECONDS) };
      throw new ApiError(429, 'rate_limit_error', message, { code: 'too_many_requests', headers });
    });
  }

  function admittedKey(
    incoming: IncomingMessage,
    outgoing: Answering,
    exchange: Exchange,
  ): KnownKey | Promise<KnownKey> {
    const presented = presentedKey(incoming.headers);
    const key = presented === undefined ? undefined : keys.find(presented);
    const isExpired = key !== undefined && keys.isExpired(key);
    if (key && !isExpired) {
      const perMinute = key.requestsPerMinute ?? limits.requestsPerMinute;
      const counted = countRequest(outgoing, `key ${key.name}`, perMinute);
      const begun = after(counted, () => beginRequest(key, exchange));
      return after(begun, () => key);
    }
    return after(countAddress(incoming, outgoing), () => {
      throw new ApiError(
        401,
        'authentication_error',
        presented === undefined
          ? 'The request has no API key. Send one in the header "Authorization: Bearer <key>".'
          : isExpired
            ? 'The API key has expired.'
            : 'The API key is not valid for this server.',
        { code: 'invalid_api_key', headers: { 'WWW-Authenticate': 'Bearer realm="treadle"' } },
      );
    });
  }

  function checkAddress(incoming: IncomingMessage): void {
    checkHost(incoming);
    if (!keys.areRequired) checkLocal(incoming.headers.host, incoming.headers.origin, cors);
  }

  const admit: Admit = (incoming, outgoing, exchange) => {
    const { requestId, log, hold, route } = exchange;
    checkAddress(incoming);
    const known = keys.areRequired
      ? admittedKey(incoming, outgoing, exchange)
      : after(countAddress(incoming, outgoing), () => NO_KEY);
    return after(known, ({ name: key, tenant, scopes }) => {
      const caller = new AdmittedCaller({ tenant, key, scopes, requestId, hold }, log, incoming.headers);
      // Set before the scope is checked: the log names the key of a request that is refused.
      exchange.caller = caller;
      requireRouteScope(caller, route?.scope ?? 'any-key');
      return caller;
    });
  };
  return Object.assign(admit, { checkAddress });
}

/** Goes on at once, or when the promise is resolved. */
function after<T, U>(value: T | Promise<T>, then: (value: T) => U | Promise<U>): U | Promise<U> {
  return value instanceof Promise ? value.then(then) : then(value);
}

const NO_KEY: KnownKey = { name: '', tenant: DEFAULT_TENANT, scopes: SCOPES };

/** A caller whose log and facts are made when they are used, which most requests do not. */
class AdmittedCaller implements Caller {
  readonly tenant: string;
  readonly key: string;
  readonly scopes: readonly string[];
  readonly requestId: string;
  readonly hold: Exchange['hold'];
  declare runId?: string;
  readonly #serverLog: Logger;
  readonly #headers: IncomingHttpHeaders;
  #log: Logger | undefined;

  constructor(
    { tenant, key, scopes, requestId, hold }: Required<Omit<Caller, 'log' | 'runId' | 'facts'>>,
    log: Logger,
    headers: IncomingHttpHeaders,
  ) {
    this.tenant = tenant;
    this.key = key;
    this.scopes = scopes;
    this.requestId = requestId;
    this.hold = hold;
    this.#serverLog = log;
    this.#headers = headers;
  }

  get facts(): RunFacts | undefined {
    return runFactsIn(this.#headers);
  }

  get log(): Logger {
    const { requestId, tenant, key } = this;
    return (this.#log ??= this.#serverLog.child({ requestId, tenant, key: key || undefined }));
  }
}

/** Node takes the first of several Host headers, and a proxy before it may take another. */
function checkHost({ rawHeaders }: IncomingMessage): void {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]!.toLowerCase() === 'host') count += 1;
  if (count > 1) throw badRequest('The request has more than one Host header. Send one.', undefined, 'invalid_request');
}

type ScopedCaller = Pick<Caller, 'scopes' | 'key'>;

function requireRouteScope(caller: ScopedCaller, scope: RouteScope): void {
  if (scope === 'open' || scope === 'signed') return;
  if (scope !== 'metrics:read' && !caller.scopes.some((one) => one !== 'metrics:read'))
    throw insufficientScope(`The key "${caller.key}" has no scope for anything but /metrics.`);
  if (scope !== 'any-key') requireScope(caller, scope);
}

/**
 * Throws a 403 unless the caller's key has the scope. The scope of a route was checked before its handler: this is for a field
 * of the body that needs another one, which the route names in `fieldScopes`.
 */
export function requireScope({ scopes, key }: ScopedCaller, scope: Scope): void {
  // What a key for single agents may use is checked when its run is planned.
  if (scope === 'agents:invoke' && scopes.some((one) => one.startsWith('agents:invoke:'))) return;
  if (!scopes.includes(scope)) throw insufficientScope(`The key "${key}" lacks the scope "${scope}".`);
}

function insufficientScope(message: string): ApiError {
  return new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
}

/* From where the server may be used: loopback only without keys, and only by web pages whose origin is allowed. */

/** Whether only programs on this machine can connect to this address. */
export function isLoopback(address: string): boolean {
  const plain = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '');
  return plain === '::1' || (isIPv4(plain) && plain.startsWith('127.'));
}

/** Throws if a server without keys could be reached from the network. */
export function checkReach(host: string, address: string, hasKeys: boolean): void {
  if (hasKeys || isLoopback(address)) return;
  const where = host === address ? host : `${host} (${address})`;
  throw new TreadleError(
    'invalid-options',
    `Without keys the server listens on loopback only, and ${where} is reachable from the network. ` +
      'Add at least one key ([[server.keys]] with name and hash), or use the host 127.0.0.1.',
  );
}

/**
 * Throws a 403 for requests of web pages to a server without keys. A page can make its own host name resolve to
 * 127.0.0.1, but then the Host header contains that name. It can also post to 127.0.0.1 directly, but then the Origin header
 * contains the page's origin.
 */
export function checkLocal(
  host: string | undefined,
  origin: string | undefined,
  allowedOrigins: readonly string[],
): void {
  if (!isLocalName(host ?? ''))
    throw notLocal('The server has no keys, so it accepts only localhost, 127.0.0.1 and [::1] in the Host header.');
  if (origin !== undefined && origin !== `http://${host}` && !allowedOrigins.includes(origin))
    throw notLocal(
      'The server has no keys, so it rejects requests of other web pages. Allow their origin in its cors setting.',
    );
}

/** Whether the Host header, without its port, is a name that only this machine can have. */
function isLocalName(host: string): boolean {
  const name = host.replace(/:\d*$/, '').toLowerCase();
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  return name.startsWith('[') ? name.endsWith(']') && isLoopback(name.slice(1, -1)) : isLoopback(name) && isIPv4(name);
}

function notLocal(message: string): ApiError {
  return new ApiError(403, 'permission_error', message, { code: 'not_local' });
}

/**
 * Throws a 403 if the page of another origin opens a WebSocket. Browsers do not apply CORS to WebSockets, so the server has to
 * refuse those that it does not allow.
 */
export function checkSocketOrigin({ host, origin }: IncomingHttpHeaders, allowedOrigins: readonly string[]): void {
  if (origin === undefined || allowedOrigins.includes('*') || allowedOrigins.includes(origin)) return;
  if (origin === `http://${host}` || origin === `https://${host}`) return;
  const message = 'The server rejects WebSockets of other web pages. Allow their origin in its cors setting.';
  throw new ApiError(403, 'permission_error', message, { code: 'origin_not_allowed' });
}

const EXPOSED = [
  'x-request-id',
  'request-id',
  'retry-after',
  'ratelimit',
  'ratelimit-policy',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'mcp-session-id',
].join(', ');

/** A list of header names, as browsers send it. */
const HEADER_LIST = /^[\w!#$%&'*+.^`|~-]+(?: *, *[\w!#$%&'*+.^`|~-]+)*$/;

/** Throws if an origin can never match, or if it would open a server without keys to every web page. */
export function checkOrigins(origins: readonly string[], hasKeys: boolean): void {
  for (const origin of origins) {
    if (origin === '*') {
      if (hasKeys) continue;
      throw new TreadleError(
        'invalid-options',
        'cors = ["*"] lets every web page use a server without keys: add keys, or list the origins.',
      );
    }
    if (!URL.canParse(origin) || new URL(origin).origin !== origin)
      throw new TreadleError(
        'invalid-options',
        `"${origin}" in cors is not an origin: write scheme and host as in "https://app.example.com".`,
      );
  }
}

/**
 * Sets the CORS headers for an allowed origin, on Node's response so that streams have them too. Returns true if the
 * request was a preflight, which needs no other answer.
 */
export function allowOrigin(origins: readonly string[], incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  if (origins.length === 0) return false;
  outgoing.setHeader('Vary', 'Origin');
  const { origin } = incoming.headers;
  if (origin === undefined || !(origins.includes('*') || origins.includes(origin))) return false;
  outgoing.setHeader('Access-Control-Allow-Origin', origin);
  outgoing.setHeader('Access-Control-Expose-Headers', EXPOSED);
  if (incoming.method !== 'OPTIONS' || incoming.headers['access-control-request-method'] === undefined) return false;
  // Clients send headers of their own, such as `x-stainless-…`. Any header is safe, because there are no cookies.
  const requested = incoming.headers['access-control-request-headers'];
  if (requested !== undefined && HEADER_LIST.test(requested))
    outgoing.setHeader('Access-Control-Allow-Headers', requested);
  outgoing.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE');
  outgoing.setHeader('Access-Control-Max-Age', '600');
  return true;
}
