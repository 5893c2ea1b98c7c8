import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '@treadle/core';
import { ApiError } from '../api-error.ts';
import type { Caller } from './env.ts';
import type { Exchange } from './exchange.ts';
import { DEFAULT_TENANT, keyring, presentedKey, SCOPES, type ApiKey, type KnownKey, type Scope } from './keys.ts';
import { checkLocal } from './loopback.ts';
import { addressId, rateHeaders, rateLimiter } from './rate-limit.ts';

export interface AdmissionOptions {
  readonly keys: readonly ApiKey[];
  readonly cors: readonly string[];
  readonly limits: RateLimits;
  readonly clock: Clock;
}

export interface RateLimits {
  /** Of each key that has no limit of its own. */
  readonly requestsPerMinute?: number;
  /** Of each remote address, for requests without a valid key: all of them on a server without keys. */
  readonly requestsPerMinutePerAddress?: number;
}

type Admit = (incoming: IncomingMessage, outgoing: ServerResponse, exchange: Exchange) => Caller;

/** Finds out who sends a request and counts it. Throws an `ApiError` if it is not let in. */
export function admission({ keys, cors, limits, clock }: AdmissionOptions): Admit {
  const find = keyring(keys);
  const limiter = rateLimiter(clock);

  /** The headers are set on the raw response, so that streams have them, too. */
  function count(outgoing: ServerResponse, id: string, perMinute: number | undefined): void {
    if (perMinute === undefined) return;
    const rate = limiter.take(id, perMinute);
    for (const [name, value] of Object.entries(rateHeaders(rate))) outgoing.setHeader(name, value);
    if (rate.allowed) return;
    throw new ApiError(
      429,
      'rate_limit_error',
      `More than ${perMinute} requests in a minute. Go on after the time that the Retry-After header says.`,
      { code: 'rate_limit_exceeded' },
    );
  }

  function countAddress({ socket }: IncomingMessage, outgoing: ServerResponse): void {
    count(outgoing, `address ${addressId(socket.remoteAddress)}`, limits.requestsPerMinutePerAddress);
  }

  function knownKey(incoming: IncomingMessage, outgoing: ServerResponse): KnownKey {
    const presented = presentedKey(incoming.headers);
    const key = presented === undefined ? undefined : find(presented);
    if (key) {
      count(outgoing, `key ${key.name}`, key.requestsPerMinute ?? limits.requestsPerMinute);
      return key;
    }
    countAddress(incoming, outgoing);
    throw new ApiError(
      401,
      'authentication_error',
      presented === undefined
        ? 'No API key was sent. Send one in the header "Authorization: Bearer <key>".'
        : 'The API key that was sent is not one of this server.',
      { code: 'invalid_api_key', headers: { 'WWW-Authenticate': 'Bearer realm="treadle"' } },
    );
  }

  return (incoming, outgoing, { requestId, log }) => {
    if (keys.length > 0) {
      const { name, tenant, scopes } = knownKey(incoming, outgoing);
      return { tenant, key: name, scopes, requestId, log: log.child({ requestId, tenant, key: name }) };
    }
    checkLocal(incoming.headers.host, incoming.headers.origin, cors);
    countAddress(incoming, outgoing);
    return {
      tenant: DEFAULT_TENANT,
      key: '',
      scopes: SCOPES,
      requestId,
      log: log.child({ requestId, tenant: DEFAULT_TENANT }),
    };
  };
}

/** Throws a 403 unless the caller's key has the scope. */
export function requireScope({ scopes, key }: Caller, scope: Scope): void {
  if (scopes.includes(scope)) return;
  throw new ApiError(403, 'permission_error', `The key "${key}" lacks the scope "${scope}".`, {
    code: 'insufficient_scope',
  });
}
