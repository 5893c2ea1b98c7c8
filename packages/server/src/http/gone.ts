import type { Context } from 'hono';
import type { Env } from './env.ts';

/** Aborts when the client goes away before it has its answer. */
export function whenGone({ env: { outgoing } }: Pick<Context<Env>, 'env'>): AbortSignal {
  const gone = new AbortController();
  if (outgoing.destroyed) gone.abort();
  outgoing.once('close', () => {
    if (!outgoing.writableEnded) gone.abort();
  });
  return gone.signal;
}
