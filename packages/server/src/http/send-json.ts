import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import type { Env } from './env.ts';

/**
 * Answers with JSON, straight to Node's response: on the way over a web `Response` and its stream it would cost more
 * than all that is in between.
 */
export function sendJson({ env: { outgoing } }: Pick<Context<Env>, 'env'>, body: object): Response {
  const bytes = Buffer.from(JSON.stringify(body));
  outgoing.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': bytes.length }).end(bytes);
  return RESPONSE_ALREADY_SENT;
}
