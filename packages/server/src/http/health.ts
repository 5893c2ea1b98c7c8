import type { Clock } from '@treadle/core';
import { Hono } from 'hono';
import type { Logger } from 'pino';

export interface HealthOptions {
  /** Resolves if the store answers. */
  readonly ready: () => Promise<void>;
  readonly isClosing: () => boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

/** How long the store may take to answer. */
const PATIENCE_MS = 2_000;

/** `/healthz`: the process is alive. `/readyz`: send it requests. Neither asks for a key. */
export function healthRoutes({ ready, isClosing, log, clock }: HealthOptions): Hono {
  let asking: Promise<boolean> | undefined;
  // However many probes come while the store hangs, it is asked once.
  const storeAnswers = (): Promise<boolean> => {
    asking ??= within(clock, PATIENCE_MS, Promise.resolve().then(ready))
      .then(() => true)
      .catch((error: unknown) => {
        log.error({ err: error }, 'not ready: the store does not answer');
        return false;
      })
      .finally(() => (asking = undefined));
    return asking;
  };
  return new Hono()
    .get('/healthz', (c) => c.json({ status: 'ok' }))
    .get('/readyz', async (c) => {
      if (isClosing()) return c.json({ status: 'unavailable', reason: 'The server is shutting down.' }, 503);
      if (await storeAnswers()) return c.json({ status: 'ok' });
      return c.json({ status: 'unavailable', reason: 'The store does not answer.' }, 503);
    });
}

function within<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const callOff = clock.timer(ms, () => late.reject(new Error(`no answer within ${ms} ms`)));
  return Promise.race([work, late.promise]).finally(callOff);
}
