import { isIPv6 } from 'node:net';
import type { Clock } from '@treadle/core';

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

export interface RateLimiter {
  /** Counts a request of `id`, unless it exceeds the limit. */
  countRequest(id: string, perMinute: number): Rate;
  /** The number of stored ids. */
  readonly size: number;
}

const WINDOW_MS = 60_000;

/**
 * GCRA: stores for each id only the time at which its quota is whole again. The quota of a minute can be used at once and
 * is refilled evenly. The least recently used id is dropped if there are more than `maxIds`.
 */
export function rateLimiter(clock: Clock, maxIds = 10_000): RateLimiter {
  const wholeAt = new Map<string, number>();
  return {
    countRequest(id, perMinute) {
      const now = clock.now();
      const each = WINDOW_MS / perMinute;
      // If the clock was set back, no id is blocked.
      const before = Math.min(Math.max(wholeAt.get(id) ?? now, now), now + WINDOW_MS);
      const after = before + each;
      // Tolerates rounding errors.
      const room = WINDOW_MS - (after - now) + 1e-6;
      if (room < 0) {
        return { allowed: false, limit: perMinute, remaining: 0, resetMs: before - now, retryMs: -room };
      }
      wholeAt.delete(id);
      if (wholeAt.size >= maxIds) wholeAt.delete(wholeAt.keys().next().value ?? '');
      wholeAt.set(id, after);
      return { allowed: true, limit: perMinute, remaining: Math.floor(room / each), resetMs: after - now, retryMs: 0 };
    },
    get size() {
      return wholeAt.size;
    },
  };
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
