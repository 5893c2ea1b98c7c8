import { isIPv6 } from 'node:net';
import { ApiError } from '../api-error.ts';
import { DEFAULT_TENANT, type Keys } from './keys.ts';

/* How much clients may use: requests in a minute, things at a time, bytes in progress. */

/** When a client that was refused should try again. */
export const RETRY_SECONDS = 2;

const WINDOW_MS = 60_000;

/** The quota of an id after a request. */
export interface Rate {
  readonly allowed: boolean;
  /** Requests per minute. */
  readonly limit: number;
  readonly remaining: number;
  /** Until the whole quota is available again. */
  readonly resetMs: number;
  /** Until the next request is allowed; 0 if this one was. */
  readonly retryMs: number;
}

/** The fields of the IETF (draft-ietf-httpapi-ratelimit-headers-10), and those that OpenAI's clients read. */
export function rateHeaders({ allowed, limit, remaining, resetMs, retryMs }: Rate): Record<string, string> {
  return {
    'RateLimit-Policy': `"requests";q=${limit};w=${WINDOW_MS / 1000}`,
    RateLimit: `"requests";r=${remaining};t=${Math.ceil(resetMs / 1000)}`,
    'x-ratelimit-limit-requests': String(limit),
    'x-ratelimit-remaining-requests': String(remaining),
    'x-ratelimit-reset-requests': duration(resetMs),
    ...(!allowed && { 'Retry-After': String(Math.max(1, Math.ceil(retryMs / 1000))) }),
  };
}

/**
 * One id for all addresses that one client can choose from: an IPv6 network has 64 bits. The address is that of the
 * connection, behind a proxy the proxy's, because headers with another address can be forged.
 */
export function addressId(address: string | undefined): string {
  if (address === undefined) return 'unknown';
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  if (!isIPv6(address)) return address;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const front = head === '' ? [] : head.split(':');
  const back = tail === undefined || tail === '' ? [] : tail.split(':');
  const gap = tail === undefined ? 0 : Math.max(0, 8 - front.length - back.length);
  const groups = [...front, ...Array.from({ length: gap }, () => '0'), ...back];
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}

/** In OpenAI's format: `120ms`, `8.64s`, `1m0s`. */
function duration(ms: number): string {
  const whole = Math.ceil(ms);
  if (whole < 1000) return `${whole}ms`;
  const minutes = Math.floor(whole / 60_000);
  const seconds = (whole % 60_000) / 1000;
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds}s`;
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
