import { lookup } from 'node:dns/promises';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { systemClock, TreadleError, type Clock } from '@treadle/core';
import type { Hono } from 'hono';
import type { Logger } from 'pino';
import { badRequest } from './api-error.ts';
import type { RateLimits } from './http/admission.ts';
import { answering } from './http/app.ts';
import { refuseUnreadable } from './http/client-error.ts';
import { connectionsOf } from './http/connections.ts';
import { checkOrigins } from './http/cors.ts';
import type { Env } from './http/env.ts';
import { errorResponse } from './http/errors.ts';
import { beginExchange } from './http/exchange.ts';
import type { ApiKey } from './http/keys.ts';
import { urlOf, whyNot } from './http/listening.ts';
import { newLog } from './http/log.ts';
import { checkReach } from './http/loopback.ts';

export interface ServerOptions {
  /** 127.0.0.1 if not given. Beyond loopback it needs keys. */
  readonly host?: string;
  /** 3210 if not given; 0 for any that is free. */
  readonly port?: number;
  /** None: whoever reaches the server may use it, and only this machine does. */
  readonly keys?: readonly ApiKey[];
  /** None if not given. */
  readonly limits?: RateLimits;
  /** Origins of web pages that may use the server from a browser; none if not given, `*` is all. */
  readonly cors?: readonly string[];
  readonly timeouts?: Timeouts;
  readonly log?: Logger;
  readonly clock?: Clock;
  /** Puts the API in. Its handlers find out who calls by `c.get('caller')`. */
  readonly routes: (app: Hono<Env>) => void;
  /** Resolves if the store answers. */
  readonly ready: () => Promise<void>;
  /** The server stops: what still runs is to be left so that it can go on later. It is not waited for longer than 5 s. */
  readonly drain: () => Promise<void>;
}

/** How long a client may take to send a request; an answer, such as a stream, may take as long as it needs. */
export interface Timeouts {
  /** 20 s. */
  readonly headersMs?: number;
  /** Headers and body; 2 min. */
  readonly requestMs?: number;
  /** Until the next request on an open connection; 75 s, for proxies keep theirs open for up to a minute. */
  readonly keepAliveMs?: number;
}

export interface Server {
  /** Rejects with what to do if the host or the port cannot be used. */
  listen(): Promise<{ readonly url: string; readonly port: number }>;
  /**
   * Stops: takes no more requests, waits up to `graceMs` (10 s) for those that run, has what is left put aside, then cuts
   * off. Calling it again waits for the same end.
   */
  close(graceMs?: number): Promise<void>;
}

/** How long putting runs aside may take, and then their last words. */
const DRAIN_MS = 5_000;
const LAST_WORDS_MS = 1_000;

export function createServer(options: ServerOptions): Server {
  const { host = '127.0.0.1', port = 3210, keys = [], limits = {}, cors = [], timeouts = {} } = options;
  const { log = newLog(), clock = systemClock } = options;
  const { headersMs = 20_000, requestMs = 120_000, keepAliveMs = 75_000 } = timeouts;
  checkOptions(host, port, limits);
  checkOrigins(cors, keys.length > 0);
  let listening: Promise<{ readonly url: string; readonly port: number }> | undefined;
  let closed: Promise<void> | undefined;
  const isClosing = (): boolean => closed !== undefined;

  const answer = answering({ ...options, keys, limits, cors, log, clock, isClosing });
  const server = createHttpServer({
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    keepAliveTimeout: keepAliveMs,
    connectionsCheckingInterval: Math.min(5_000, Math.ceil(headersMs / 4)),
    // So that a client that vanished without a word is noticed while nothing is sent to it.
    keepAlive: true,
    keepAliveInitialDelay: 60_000,
  });
  const connections = connectionsOf(server);
  server.on('request', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    connections.begin(incoming.socket, outgoing);
    const exchange = beginExchange(incoming, outgoing, { log, clock });
    const listener = getRequestListener((request) => answer(request, { incoming, outgoing, exchange }), {
      // The program that this server is part of keeps its own Request and Response.
      overrideGlobalObjects: false,
      errorHandler: () => errorResponse(badRequest('The URL or the Host header of the request is not valid.')),
    });
    void listener(incoming, outgoing);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // What is being answered must not get another answer into it.
    if (connections.isBusy(socket)) socket.destroy();
    else refuseUnreadable(error, socket, log);
  });

  async function open(): Promise<{ readonly url: string; readonly port: number }> {
    try {
      // Looked up first, so that nothing listens before it is known how far it can be reached.
      const { address } = await lookup(host);
      checkReach(host, address, keys.length > 0);
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host: address, port }, () => {
          server.off('error', reject);
          // A connection could not be taken, such as for want of file descriptors; the others go on.
          server.on('error', (error) => log.error({ err: error }, 'a connection was not taken'));
          resolve();
        });
      });
    } catch (error) {
      throw error instanceof TreadleError ? error : whyNot(error as NodeJS.ErrnoException, host, port);
    }
    const bound = (server.address() as AddressInfo).port;
    const url = urlOf(host, bound);
    log.info({ url }, 'listening');
    return { url, port: bound };
  }

  async function shutDown(graceMs: number): Promise<void> {
    await listening?.catch(() => undefined);
    log.info('shutting down');
    const stopped = new Promise<void>((resolve) => void server.close(() => resolve()));
    connections.closeIdle();
    await atMost(clock, graceMs, connections.quiet());
    await atMost(clock, DRAIN_MS, drained());
    await atMost(clock, LAST_WORDS_MS, connections.quiet());
    connections.destroy();
    await stopped;
    log.info('stopped');
  }

  async function drained(): Promise<void> {
    try {
      await options.drain();
    } catch (error) {
      log.error({ err: error }, 'runs could not be put aside');
    }
  }

  return {
    listen() {
      if (closed) throw new TreadleError('invalid-options', 'The server was closed: make a new one.');
      listening ??= open();
      return listening;
    },
    close(graceMs = 10_000) {
      closed ??= shutDown(graceMs);
      return closed;
    },
  };
}

function checkOptions(host: string, port: number, limits: RateLimits): void {
  if (host === '') throw new TreadleError('invalid-options', 'The host is empty: use 127.0.0.1, or leave it out.');
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new TreadleError('invalid-options', `The port must be a whole number from 0 to 65535, not ${port}.`);
  for (const [name, limit] of Object.entries(limits))
    if (limit !== undefined && !(Number.isSafeInteger(limit) && limit > 0))
      throw new TreadleError('invalid-options', `limits.${name} must be a whole number above 0, not ${limit}.`);
}

/** Waits for the work, but no longer than `ms`. */
async function atMost(clock: Clock, ms: number, work: Promise<void>): Promise<void> {
  const late = Promise.withResolvers<void>();
  const callOff = clock.timer(ms, late.resolve);
  await Promise.race([work, late.promise]);
  callOff();
}
