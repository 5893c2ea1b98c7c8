import { ApiError } from '../api-error.ts';
import { DEFAULT_TENANT } from './keys.ts';

/**
 * The bytes that requests and runs hold in memory, and the limit on them. It counts what clients send and what is sent to
 * them; the process needs a few times as much.
 */
export interface Memory {
  /** For one request or run of a tenant. */
  holder(tenant?: string): Held;
}

/** What one request or run holds. */
export interface Held {
  /** Throws a 429 or a 503 if it would be too much. */
  hold(bytes: number): void;
  /** Nothing is held any more, also not by later calls of `hold`. */
  release(): void;
}

export interface MemoryOptions {
  readonly max: number;
  /** For one tenant; default: half of `max`, so that one tenant cannot keep the others from being served. */
  readonly maxPerTenant?: number;
}

/** A request or run with at most this many bytes is never refused: large ones must not keep small ones from being served. */
const SMALL = 65_536;
const RETRY_SECONDS = 2;

export function memoryLimit({ max, maxPerTenant = Math.ceil(max / 2) }: MemoryOptions): Memory {
  const byTenant = new Map<string, number>();
  let used = 0;
  return {
    holder(tenant = DEFAULT_TENANT) {
      let held = 0;
      let isReleased = false;
      return {
        hold(bytes) {
          if (isReleased) return;
          const own = byTenant.get(tenant) ?? 0;
          // The only request of a tenant is not refused, however large: later there is no more room than now.
          if (held + bytes > SMALL && own > held && own + bytes > maxPerTenant)
            throw tooMuch(429, 'Your requests in progress are too large together. Retry when one has ended.');
          if (held + bytes > SMALL && used > held && used + bytes > max)
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

function tooMuch(status: 429 | 503, message: string): ApiError {
  return new ApiError(status, status === 429 ? 'rate_limit_error' : 'server_error', message, {
    code: 'too_many_bytes',
    headers: { 'Retry-After': String(RETRY_SECONDS) },
  });
}
