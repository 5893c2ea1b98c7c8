import type { IncomingMessage } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import type { Clock } from '@treadle/core';
import type { Logger } from 'pino';
import { ApiError, badRequest } from '../api-error.ts';
import { DEFAULT_TENANT, presentedKey, SCOPES, type Keys, type KnownKey, type Scope } from './keys.ts';
import { checkLocal } from './origins.ts';
import { addressId, rateHeaders, rateLimiter } from './rate-limit.ts';
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
 * alone; with `open`, everybody.
 */
export type RouteScope = Scope | 'any-key' | 'open';

export interface MatchedRoute {
  /** Its path in the form of OpenAPI: `/v1/runs/{id}`. */
  readonly pattern: string;
  readonly scope: RouteScope;
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
  readonly clock: Clock;
}

export interface RateLimits {
  /** For each key that has no limit of its own. */
  readonly requestsPerMinute?: number;
  /** For each remote address, for requests without a valid key: all requests on a server without keys. */
  readonly requestsPerMinutePerAddress?: number;
}

/**
 * Identifies the caller of a request, which it sets on the exchange, and counts the request. Then checks the scope of its
 * route; a request without a route needs any key. Throws an `ApiError` if the request is not admitted.
 */
export type Admit = (incoming: IncomingMessage, outgoing: Answering, exchange: Exchange) => Caller;

export interface Admission extends Admit {
  /** For routes without a key: throws if the request has several hosts, or comes from the page of another site to a server without keys. */
  checkAddress(incoming: IncomingMessage): void;
}

export function admission({ keys, cors, limits, clock }: AdmissionOptions): Admission {
  const limiter = rateLimiter(clock);
  /** The requests in progress of each key that limits them. */
  const inProgress = new Map<string, number>();

  /** The headers are set on Node's response, so that streams have them too. */
  function countRequest(outgoing: Answering, id: string, perMinute: number): void {
    const rate = limiter.countRequest(id, perMinute);
    for (const [name, value] of Object.entries(rateHeaders(rate))) outgoing.setHeader(name, value);
    if (rate.allowed) return;
    throw new ApiError(
      429,
      'rate_limit_error',
      `You sent more than ${perMinute} requests in a minute. Retry after the time in the Retry-After header.`,
      { code: 'rate_limit_exceeded' },
    );
  }

  function countAddress({ socket }: IncomingMessage, outgoing: Answering): void {
    const perMinute = limits.requestsPerMinutePerAddress;
    if (perMinute !== undefined) countRequest(outgoing, `address ${addressId(socket.remoteAddress)}`, perMinute);
  }

  function beginRequest({ name, maxConcurrentRequests: max }: KnownKey, exchange: Exchange): void {
    if (max === undefined) return;
    const count = inProgress.get(name) ?? 0;
    if (count >= max) {
      const message = `The key "${name}" has ${count} requests in progress, which is its limit. Retry when one has ended.`;
      const headers = { 'Retry-After': String(RETRY_SECONDS) };
      throw new ApiError(429, 'rate_limit_error', message, { code: 'too_many_requests', headers });
    }
    inProgress.set(name, count + 1);
    exchange.onEnd(() => {
      const remaining = (inProgress.get(name) ?? 1) - 1;
      if (remaining === 0) inProgress.delete(name);
      else inProgress.set(name, remaining);
    });
  }

  function admittedKey(incoming: IncomingMessage, outgoing: Answering, exchange: Exchange): KnownKey {
    const presented = presentedKey(incoming.headers);
    const key = presented === undefined ? undefined : keys.find(presented);
    const isExpired = key !== undefined && keys.isExpired(key);
    if (key && !isExpired) {
      const perMinute = key.requestsPerMinute ?? limits.requestsPerMinute;
      if (perMinute !== undefined) countRequest(outgoing, `key ${key.name}`, perMinute);
      beginRequest(key, exchange);
      return key;
    }
    countAddress(incoming, outgoing);
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
  }

  function checkAddress(incoming: IncomingMessage): void {
    checkHost(incoming);
    if (!keys.areRequired) checkLocal(incoming.headers.host, incoming.headers.origin, cors);
  }

  const admit: Admit = (incoming, outgoing, exchange) => {
    const { requestId, log, hold, route } = exchange;
    checkAddress(incoming);
    if (!keys.areRequired) countAddress(incoming, outgoing);
    const { name: key, tenant, scopes } = keys.areRequired ? admittedKey(incoming, outgoing, exchange) : NO_KEY;
    const caller = new AdmittedCaller({ tenant, key, scopes, requestId, hold }, log);
    // Set before the scope is checked: the log names the key of a request that is refused.
    exchange.caller = caller;
    requireRouteScope(caller, route?.scope ?? 'any-key');
    return caller;
  };
  return Object.assign(admit, { checkAddress });
}

const NO_KEY: KnownKey = { name: '', tenant: DEFAULT_TENANT, scopes: SCOPES };

/** A caller whose log is made when something is written to it, which most requests do not. */
class AdmittedCaller implements Caller {
  readonly tenant: string;
  readonly key: string;
  readonly scopes: readonly string[];
  readonly requestId: string;
  readonly hold: Exchange['hold'];
  declare runId?: string;
  readonly #serverLog: Logger;
  #log: Logger | undefined;

  constructor({ tenant, key, scopes, requestId, hold }: Required<Omit<Caller, 'log' | 'runId'>>, log: Logger) {
    this.tenant = tenant;
    this.key = key;
    this.scopes = scopes;
    this.requestId = requestId;
    this.hold = hold;
    this.#serverLog = log;
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
  if (scope === 'open') return;
  if (scope !== 'metrics:read' && !caller.scopes.some((one) => one !== 'metrics:read'))
    throw insufficientScope(`The key "${caller.key}" has no scope for anything but /metrics.`);
  if (scope !== 'any-key') requireScope(caller, scope);
}

/**
 * Throws a 403 unless the caller's key has the scope. The scope of a route was checked before its handler: this is for a field
 * of the body that needs another one, which the route names in `fieldScopes`.
 */
export function requireScope({ scopes, key }: ScopedCaller, scope: Scope): void {
  if (!scopes.includes(scope)) throw insufficientScope(`The key "${key}" lacks the scope "${scope}".`);
}

function insufficientScope(message: string): ApiError {
  return new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
}

/** Limits how many of something are open at the same time. */
export interface CountLimit {
  /** Counts one, until the returned function is called. Throws if there are too many. */
  take(tenant: string): () => void;
  readonly count: number;
}

export interface CountLimitOptions {
  /** On the whole server. */
  readonly max: number;
  /** For one tenant; default: half of `max` if there are several, else `max`. */
  readonly maxPerTenant?: number;
  /** Has the number of tenants, which may change; default: there is one. */
  readonly keys?: Pick<Keys, 'tenants'>;
  /** `own`: how many the tenant has, if that is its limit. */
  tooMany(own?: number): ApiError;
}

export function countLimit({ max, maxPerTenant, keys = ONE_TENANT, tooMany }: CountLimitOptions): CountLimit {
  const byTenant = new Map<string, number>();
  let count = 0;
  return {
    take(tenant) {
      const own = byTenant.get(tenant) ?? 0;
      const most = maxPerTenant ?? (keys.tenants > 1 ? Math.ceil(max / 2) : max);
      if (own >= most && most < max) throw tooMany(own);
      if (count >= max) throw tooMany();
      count += 1;
      byTenant.set(tenant, own + 1);
      let isReleased = false;
      return () => {
        if (isReleased) return;
        isReleased = true;
        count -= 1;
        const remaining = (byTenant.get(tenant) ?? 1) - 1;
        if (remaining === 0) byTenant.delete(tenant);
        else byTenant.set(tenant, remaining);
      };
    },
    get count() {
      return count;
    },
  };
}

const ONE_TENANT = { tenants: 1 };

/** The limit on open streams of events. Their clients may wait for a run for any time. */
export function streamLimit(limits: Omit<CountLimitOptions, 'tooMany'>): CountLimit {
  function tooMany(own?: number): ApiError {
    const message =
      own === undefined
        ? 'The server has reached its limit of open event streams. Retry in a moment.'
        : `You have ${own} event streams open, which is your limit. Close one, or retry when one has ended.`;
    const headers = { 'Retry-After': String(RETRY_SECONDS) };
    return new ApiError(429, 'rate_limit_error', message, { code: 'too_many_streams', headers });
  }
  return countLimit({ ...limits, tooMany });
}

/**
 * The bytes that requests and runs hold in memory, and the limit on them. It counts what clients send and what is sent to
 * them; the process needs a few times as much.
 */
export interface Memory {
  /** The bytes that are held now. */
  readonly used: number;
  /** For one request or run of a tenant. */
  holder(tenant?: string): Held;
}

/** What one request or run holds. */
export interface Held {
  /** Throws a 429 or a 503 if it would be too much. A negative number gives back what was held. */
  hold(bytes: number): void;
  /** Nothing is held any more, also not by later calls of `hold`. */
  release(): void;
}

export interface MemoryOptions {
  readonly max: number;
  /** For one tenant; default: half of `max`, so that one tenant cannot keep the others from being served. */
  readonly maxPerTenant?: number;
}

/**
 * A request or run with at most this many bytes is refused only if twice as much as allowed is held: large ones must not keep
 * small ones from being served, but there can be many small ones.
 */
const SMALL = 65_536;
const RETRY_SECONDS = 2;

export function memoryLimit({ max, maxPerTenant = Math.ceil(max / 2) }: MemoryOptions): Memory {
  const byTenant = new Map<string, number>();
  let used = 0;
  return {
    get used() {
      return used;
    },
    holder(tenant = DEFAULT_TENANT) {
      let held = 0;
      let isReleased = false;
      return {
        hold(bytes) {
          if (isReleased) return;
          const own = byTenant.get(tenant) ?? 0;
          const share = held + bytes > SMALL ? 1 : 2;
          // The only request of a tenant is not refused, however large: later there is no more room than now.
          if (bytes > 0 && own > held && own + bytes > share * maxPerTenant)
            throw tooMuch(429, 'Your requests in progress are too large together. Retry when one has ended.');
          if (bytes > 0 && used > held && used + bytes > share * max)
            throw tooMuch(503, 'The server has reached its limit of memory for requests. Retry in a moment.');
          held += bytes;
          used += bytes;
          byTenant.set(tenant, own + bytes);
        },
        release() {
          if (isReleased) return;
          isReleased = true;
          used -= held;
          const remaining = (byTenant.get(tenant) ?? held) - held;
          if (remaining === 0) byTenant.delete(tenant);
          else byTenant.set(tenant, remaining);
        },
      };
    },
  };
}

/** The code of the error for too many bytes in progress. */
export const TOO_MANY_BYTES = 'too_many_bytes';

function tooMuch(status: 429 | 503, message: string): ApiError {
  return new ApiError(status, status === 429 ? 'rate_limit_error' : 'server_error', message, {
    code: TOO_MANY_BYTES,
    headers: { 'Retry-After': String(RETRY_SECONDS) },
  });
}
