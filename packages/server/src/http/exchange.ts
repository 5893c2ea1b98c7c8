import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '@treadle/core';
import type { Logger } from 'pino';
import { randomHex } from '../random-hex.ts';
import type { Caller } from './env.ts';

/** One request and its answer. */
export interface Exchange {
  readonly requestId: string;
  /** The server's own. A caller has one that names the request. */
  readonly log: Logger;
  /** Known once the request was let in. */
  caller?: Caller;
}

const REQUEST_ID = /^[\w.:-]{1,128}$/;

/** The client that gave up before there was an answer; nginx made the number known. */
const GAVE_UP = 499;

/** Names the request, in the answer too, and writes its line to the log when it is over, however it ends. */
export function beginExchange(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  { log, clock }: { readonly log: Logger; readonly clock: Clock },
): Exchange {
  const wished = incoming.headers['x-request-id'];
  const requestId = typeof wished === 'string' && REQUEST_ID.test(wished) ? wished : newRequestId();
  const exchange: Exchange = { requestId, log };
  const began = clock.now();
  outgoing.setHeader('x-request-id', requestId);
  outgoing.setHeader('X-Content-Type-Options', 'nosniff');
  outgoing.setHeader('Cache-Control', 'no-store');
  outgoing.once('close', () => {
    const path = pathOf(incoming.url);
    const status = outgoing.headersSent ? outgoing.statusCode : GAVE_UP;
    const line = {
      method: incoming.method,
      path,
      status,
      ms: clock.now() - began,
      requestId,
      ...(exchange.caller && { tenant: exchange.caller.tenant, key: exchange.caller.key }),
      ...(!outgoing.writableFinished && { aborted: true }),
    };
    log[levelOf(path, status)](line, 'request');
  });
  return exchange;
}

export function newRequestId(): string {
  return `req_${randomHex()}`;
}

function levelOf(path: string, status: number): 'error' | 'info' | 'debug' {
  if (status >= 500) return path === '/readyz' ? 'info' : 'error';
  return path === '/healthz' || path === '/readyz' ? 'debug' : 'info';
}

/** Without the query, which may hold a key, and without the host. */
function pathOf(url: string | undefined): string {
  const path = (url ?? '').replace(/^https?:\/\/[^/?#]*/i, '').split(/[?#]/, 1)[0] ?? '';
  return path.length > 500 ? `${path.slice(0, 500)}…` : path;
}
