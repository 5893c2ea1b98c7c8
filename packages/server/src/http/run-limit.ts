import { ApiError } from '../api-error.ts';

/** How many runs there may be at once. */
export interface RunLimit {
  /** Takes a place; the returned function gives it back. Throws a 429 if there is none. */
  enter(tenant: string): () => void;
  readonly running: number;
}

export interface RunLimitOptions {
  /** On the whole server. */
  readonly runs: number;
  /** Of one tenant, so that it leaves room for others. */
  readonly runsPerTenant?: number;
}

const RETRY_SECONDS = 2;

export function runLimit({ runs, runsPerTenant = runs }: RunLimitOptions): RunLimit {
  const byTenant = new Map<string, number>();
  let running = 0;
  return {
    enter(tenant) {
      const own = byTenant.get(tenant) ?? 0;
      if (own >= runsPerTenant && runsPerTenant < runs)
        throw full(
          `You have ${own} runs under way, which is as many as you may have at once. Try again when one ended.`,
        );
      if (running >= runs)
        throw full('The server has as many runs under way as it takes at once. Try again in a moment.');
      running += 1;
      byTenant.set(tenant, own + 1);
      let inside = true;
      return () => {
        if (!inside) return;
        inside = false;
        running -= 1;
        const left = (byTenant.get(tenant) ?? 1) - 1;
        if (left === 0) byTenant.delete(tenant);
        else byTenant.set(tenant, left);
      };
    },
    get running() {
      return running;
    },
  };
}

function full(message: string): ApiError {
  return new ApiError(429, 'rate_limit_error', message, {
    code: 'too_many_runs',
    headers: { 'Retry-After': String(RETRY_SECONDS) },
  });
}
