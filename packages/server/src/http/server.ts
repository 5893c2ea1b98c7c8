import { lookup } from 'node:dns/promises';
import {
  createServer as createHttpServer,
  ServerResponse,
  STATUS_CODES,
  type Server as HttpServer,
  type IncomingMessage,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { messageOf, systemClock, TreadleError, type Clock } from '@treadle/core';
import { churnSet } from '@treadle/core/churn';
import { memoryQuotas, type QuotaStore } from '@treadle/store';
import type { Logger } from 'pino';
import { ApiError, badRequest, errorBody, shuttingDown } from '../api-error.ts';
import { newRequestId } from '../ids.ts';
import {
  admission,
  checkOrigins,
  checkReach,
  checkSocketOrigin,
  type Answering,
  type Env,
  type Exchange,
  type RateLimits,
} from './admission.ts';
import { errorResponse, requestHandler } from './app.ts';
import { DEFAULT_TENANT, serverKeys, type ApiKey, type Keys } from './keys.ts';
import { afterConnections, arrivals } from './large-work.ts';
import { memoryLimit, type CountLimit, type Held, type Memory } from './limits.ts';
import { newLog } from './log.ts';
import { NO_ROUTE, type ConnectionGauges, type ServerMetrics } from './metrics.ts';
import type { Route } from './routes.ts';
import { sharedLimits } from './shared-limits.ts';
import { slowClientFinder } from './slow-clients.ts';
import type { AcceptedSocket, MessageAnswer, Upgrade } from './websocket.ts';

export interface ServerOptions {
  /** Default 127.0.0.1. An address beyond loopback requires keys. */
  readonly host?: string;
  /** Default 3210; 0 for any free port. */
  readonly port?: number;
  /** Default none: every program on this machine may use the server, and no other. */
  readonly keys?: readonly ApiKey[] | Keys;
  /** Default none. */
  readonly limits?: RateLimits;
  /** Origins of web pages that may use the server from a browser; default none, `*` is all. */
  readonly cors?: readonly string[];
  readonly timeouts?: Timeouts;
  /** Limits the bytes of all requests in progress; default: no limit. */
  readonly memory?: Memory;
  /** Limits the number of open event streams and WebSockets; default: no limit. */
  readonly streams?: CountLimit;
  readonly log?: Logger;
  /** Counts requests; default: nothing is counted. */
  readonly metrics?: ServerMetrics;
  readonly clock?: Clock;
  /** Where requests are counted; default: in the memory of this server. */
  readonly quotas?: QuotaStore;
  /** The API. */
  readonly routes: readonly Route[];
  /** Writes the OpenAPI document of all routes; default: there is none. */
  readonly describe?: (routes: readonly Route[]) => Promise<Buffer>;
  /** Resolves if the store answers. */
  readonly ready: () => Promise<void>;
  /** Resolves when everything that was read so far is durable; nothing if it already is. */
  readonly durable: () => void | Promise<void>;
  /** Called at shutdown: detaches the runs, so that they can be resumed later. May take up to 5 s. */
  readonly drain: () => Promise<void>;
}

/** How long a client may take to send a request and to read the response. A response may take any time to make. */
export interface Timeouts {
  /** Default 20 s. */
  readonly headersMs?: number;
  /** Headers and body; default 2 min. */
  readonly requestMs?: number;
  /** Until the next request on an open connection; default 75 s, because proxies reuse connections for up to a minute. */
  readonly keepAliveMs?: number;
  /**
   * How long a client may read nothing while data is waiting for it; default 1 min. A client that reads less than 1,000 bytes a
   * second in that time is disconnected after it, or after twice the time.
   */
  readonly sendMs?: number;
}

export interface Listening {
  /** Where a client on this machine reaches the server, also if it listens on all addresses. */
  readonly url: string;
  /** The address that the server listens on, such as `http://0.0.0.0:3210`. */
  readonly address: string;
  readonly port: number;
}

export interface Server {
  /** Rejects with advice if the host or the port cannot be used. */
  listen(): Promise<Listening>;
  /**
   * Answers new requests with a 503, except `/healthz`, and waits up to `graceMs` (default 10 s) for those in progress. Then
   * detaches the remaining runs and closes the port and all connections. Further calls wait for the same shutdown.
   */
  close(graceMs?: number): Promise<void>;
}

/** How long detaching the runs may take, and then sending their last events. */
const DRAIN_MS = 5_000;
const LAST_EVENTS_MS = 1_000;

/** A timer of Node with a longer delay fires at once. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** How many connections may wait to be accepted. A client whose connection finds no room tries again after a second. */
const BACKLOG = 4_096;

export function createServer(options: ServerOptions): Server {
  const { host = '127.0.0.1', port = 3210, keys: given = [], limits = {}, cors = [], timeouts = {} } = options;
  const { log = newLog(), clock = systemClock, memory = memoryLimit({ max: Infinity }), metrics } = options;
  const keys = 'areRequired' in given ? given : serverKeys(given, clock);
  const { headersMs = 20_000, requestMs = 120_000, keepAliveMs = 75_000 } = timeouts;
  const sendMs = Math.min(timeouts.sendMs ?? 60_000, MAX_DELAY_MS);
  checkServerOptions(host, port, limits);
  checkOrigins(cors, keys.areRequired);
  let listening: Promise<Listening> | undefined;
  let closed: Promise<void> | undefined;
  const isClosing = (): boolean => closed !== undefined;

  const shared = sharedLimits(options.quotas ?? memoryQuotas(clock.now), clock);
  const admit = admission({ keys, limits, cors, shared });
  const answerRequest = requestHandler({ ...options, admit, cors, log, clock, isClosing });
  const exchangeOptions = { ...options, log, clock, memory, metrics, keys };
  const sockets = new Set<AcceptedSocket>();
  const server = createHttpServer({
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    keepAliveTimeout: keepAliveMs,
    connectionsCheckingInterval: Math.min(5_000, Math.ceil(headersMs / 4)),
    // Detects clients that vanished without closing the connection while nothing is sent to them.
    keepAlive: true,
    keepAliveInitialDelay: 60_000,
    // All others are answered without an upgrade. Some clients of HTTP/2 ask for one with every first request.
    shouldUpgradeCallback: isWebSocketRequest,
  });
  const connections = trackConnections(server);
  const findSlowClients = slowClientFinder(sendMs);
  let slowCheck: NodeJS.Timeout | undefined;
  metrics?.addConnections(connections.counts);
  // Node calls it after this time without progress in either direction, and after the time for the next request.
  server.setTimeout(sendMs, (socket) => {
    if (!connections.isBusy(socket) || socket.writableLength > 0) socket.destroy();
  });
  function closeSlowConnections(): void {
    for (const socket of findSlowClients(connections.sockets())) socket.destroy();
  }
  server.on('request', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const exchange = beginExchange(incoming, outgoing, exchangeOptions);
    const listener = listenerFor({ incoming, outgoing, exchange });
    const start = (): void => void listener(incoming, outgoing);
    connections.addRequest(incoming.socket, outgoing, start, isProbe(incoming.url ?? '') ? URGENT : undefined);
  });
  // A client that asks for a WebSocket. It is refused with an HTTP response, as any other request.
  server.on('upgrade', (incoming: IncomingMessage, stream: Duplex, head: Buffer) => {
    const socket = stream as Socket;
    // `close` follows.
    socket.on('error', () => {});
    const outgoing = new ServerResponse(incoming);
    outgoing.shouldKeepAlive = false;
    const exchange = beginExchange(incoming, outgoing, exchangeOptions);
    const listener = listenerFor({
      incoming,
      outgoing,
      exchange,
      upgrade: upgradeOf({ incoming, outgoing, exchange, head }),
    });
    connections.addRequest(socket, outgoing, () => {
      outgoing.assignSocket(socket);
      outgoing.once('finish', () => socket.destroySoon());
      void listener(incoming, outgoing);
    });
  });

  function listenerFor(env: Env['Bindings']): ReturnType<typeof getRequestListener> {
    return getRequestListener((request) => answerRequest(request, env), {
      // The program that embeds this server keeps its own Request and Response.
      overrideGlobalObjects: false,
      errorHandler: () => errorResponse(badRequest('The URL or the Host header of the request is not valid.')),
    });
  }

  /** After the upgrade, each message on the socket is an exchange of its own. */
  function upgradeOf({ incoming, outgoing, exchange, head }: Env['Bindings'] & { readonly head: Buffer }): Upgrade {
    const { socket } = incoming;
    return {
      async accept(caller, socketLimits, open) {
        checkSocketOrigin(incoming.headers, cors);
        const free = options.streams?.take(caller.tenant);
        if (free) socket.once('close', free);
        const { acceptSocket } = await import('./websocket.ts');
        if (socket.destroyed) return free?.();
        outgoing.detachSocket(socket);
        const accepted = acceptSocket({
          ...socketLimits,
          incoming,
          socket,
          head,
          caller,
          memory,
          sendMs,
          clock,
          isClosing,
          durable: options.durable,
          begin(answer) {
            const begun = beginExchange(incoming, answer, { ...exchangeOptions, method: 'WS' });
            if (exchange.route) begun.route = exchange.route;
            return begun;
          },
          enqueue: (answer, start) => connections.addRequest(socket, answer, start),
          admit(answer, begun) {
            if (isClosing()) throw shuttingDown();
            return admit(incoming, answer, begun);
          },
          open,
        });
        if (accepted) {
          sockets.add(accepted);
          socket.once('close', () => sockets.delete(accepted));
        }
        exchange.status = accepted ? SWITCHING : 400;
        outgoing.emit('close');
      },
    };
  }
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // A second response must not be written into the one that is being sent.
    if (connections.isBusy(socket)) socket.destroy();
    else refuseUnreadable(error, socket, { log, metrics });
  });

  async function openPort(): Promise<Listening> {
    try {
      // Resolved first, so that the server never listens on an address that it may not use.
      const { address } = await lookup(host);
      checkReach(host, address, keys.areRequired);
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host: address, port, backlog: BACKLOG }, () => {
          server.off('error', reject);
          // A connection could not be accepted, for example for lack of file descriptors. The others continue.
          server.on('error', (error) => log.error({ err: error }, 'a connection was not accepted'));
          resolve();
        });
      });
    } catch (error) {
      throw error instanceof TreadleError ? error : listenError(error as NodeJS.ErrnoException, host, port);
    }
    slowCheck = setInterval(closeSlowConnections, sendMs).unref();
    const bound = server.address() as AddressInfo;
    const address = urlOf(bound.address, bound.port);
    log.info({ url: address }, 'listening');
    return { url: urlOf(LOCAL[host] ?? host, bound.port), address, port: bound.port };
  }

  async function shutDown(graceMs: number): Promise<void> {
    await listening?.catch(() => undefined);
    log.info('shutting down');
    for (const socket of sockets) socket.closeIfIdle();
    // The port stays open until the end: whoever watches the server gets an answer, and everybody else a 503.
    connections.closeIdle();
    await atMost(clock, graceMs, connections.allAnswered());
    await atMost(clock, DRAIN_MS, drainRuns());
    await atMost(clock, LAST_EVENTS_MS, connections.allAnswered());
    const stopped = new Promise<void>((resolve) => void server.close(() => resolve()));
    connections.destroyAll();
    clearInterval(slowCheck);
    await Promise.all([stopped, shared.close()]);
    log.info('stopped');
  }

  async function drainRuns(): Promise<void> {
    try {
      await options.drain();
    } catch (error) {
      log.error({ err: error }, 'runs could not be detached');
    }
  }

  return {
    listen() {
      if (closed) throw new TreadleError('invalid-options', 'The server was closed: create a new one.');
      listening ??= openPort();
      return listening;
    },
    close(graceMs = 10_000) {
      closed ??= shutDown(graceMs);
      return closed;
    },
  };
}

function isWebSocketRequest({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket';
}

function checkServerOptions(host: string, port: number, limits: RateLimits): void {
  if (host === '') throw new TreadleError('invalid-options', 'The host is empty: use 127.0.0.1, or leave it out.');
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new TreadleError('invalid-options', `The port must be a whole number from 0 to 65535, not ${port}.`);
  for (const [name, limit] of Object.entries(limits))
    if (limit !== undefined && !(Number.isSafeInteger(limit) && limit > 0))
      throw new TreadleError('invalid-options', `limits.${name} must be a whole number above 0, not ${limit}.`);
}

/** Where a browser on this machine reaches a server that listens on all addresses. */
const LOCAL: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

function urlOf(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Why the server cannot listen, and what to do. */
function listenError(error: NodeJS.ErrnoException, host: string, port: number): TreadleError {
  const advice: Record<string, string> = {
    EADDRINUSE: `Port ${port} of ${host} is in use: stop the program that listens there, or choose another port.`,
    EACCES: `This user may not listen on port ${port}: choose one above 1023.`,
    EADDRNOTAVAIL: `${host} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all of its addresses.`,
    ENOTFOUND: `The host name ${host} is unknown: use 127.0.0.1, or an address of this machine.`,
  };
  const message = advice[error.code ?? ''] ?? `The server cannot listen on ${host}, port ${port}: ${messageOf(error)}`;
  return new TreadleError('invalid-options', message, { cause: error });
}

/** Waits for the work, but no longer than `ms`. */
async function atMost(clock: Clock, ms: number, work: Promise<void>): Promise<void> {
  const timeout = Promise.withResolvers<void>();
  const cancelTimer = clock.timer(ms, timeout.resolve);
  await Promise.race([work, timeout.promise]);
  cancelTimer();
}

/** The connections of a server, and the requests that are being answered on them. */
interface Connections {
  /**
   * Calls `answer` as soon as all earlier responses on the connection have been sent. So a client that pipelines requests and
   * does not read takes the memory of one response. If many requests arrive at once, some wait for the next turn of the event
   * loop, unless they are urgent.
   */
  addRequest(
    socket: Socket,
    outgoing: ServerResponse | MessageAnswer,
    answer: () => void,
    options?: { readonly isUrgent: boolean },
  ): void;
  /** Whether a request is being answered on the connection. */
  isBusy(socket: Duplex): boolean;
  /**
   * From now on, closes each connection without a request: at once, or after its last response, which announces it. A new
   * connection may still send one.
   */
  closeIdle(): void;
  /** Resolves when no request is being answered on a connection that was there before `closeIdle`. */
  allAnswered(): Promise<void>;
  destroyAll(): void;
  sockets(): Iterable<Socket>;
  readonly counts: ConnectionGauges;
}

interface Connection {
  isBusy: boolean;
  /** It was opened during the shutdown, which does not wait for it. */
  readonly isLate: boolean;
  readonly waiting: (() => void)[];
}

/** A connection with this many waiting requests is not read until one of them is answered. */
const MOST_WAITING = 16;
/** How many requests are started in one turn of the event loop. Each takes up to half a millisecond until it waits. */
const MOST_STARTED = 32;
/** Whoever watches the server must not take it for dead because many requests arrive. */
const URGENT = { isUrgent: true };

/**
 * Node's own `closeIdleConnections` does not close connections that have not sent a request yet, and those that stay open
 * after a stream.
 */
function trackConnections(server: HttpServer): Connections {
  const connections = new Map<Socket, Connection>();
  const responses = churnSet<ServerResponse | MessageAnswer>();
  let isClosing = false;
  let waiting: (() => void)[] = [];
  /** Requests that wait for the next turn. */
  const ready: (() => void)[] = [];
  let started = 0;
  function startInTurn(start: () => void): void {
    if (started === 0) setImmediate(() => (started = 0));
    started += 1;
    if (started <= MOST_STARTED) start();
    else if (ready.push(start) === 1) afterConnections(startReady);
  }
  function startReady(): void {
    for (const start of ready.splice(0, MOST_STARTED)) start();
    if (ready.length > 0) afterConnections(startReady);
    else resolveIfAnswered();
  }
  function resolveIfAnswered(): void {
    if (responses.size > 0 || ready.length > 0) return;
    for (const resolve of waiting) resolve();
    waiting = [];
  }
  server.on('connection', (socket: Socket) => {
    arrivals.connections += 1;
    connections.set(socket, { isBusy: false, isLate: isClosing, waiting: [] });
    socket.once('close', () => connections.delete(socket));
  });
  return {
    addRequest(socket, outgoing, answer, options) {
      const connection = connections.get(socket);
      // The connection was closed while the request arrived.
      if (!connection) return;
      const start = (): void => {
        // It was closed while the request waited for its turn.
        if (socket.destroyed) return;
        const removeResponse = connection.isLate ? undefined : responses.add(outgoing);
        if (isClosing) outgoing.shouldKeepAlive = false;
        outgoing.once('close', () => {
          removeResponse?.();
          if (connection.waiting.length === MOST_WAITING) socket.resume();
          const next = connection.waiting.shift();
          connection.isBusy = next !== undefined;
          if (next) startInTurn(next);
          else if (isClosing) socket.destroySoon();
          resolveIfAnswered();
        });
        answer();
      };
      if (!connection.isBusy) {
        connection.isBusy = true;
        return options?.isUrgent ? start() : startInTurn(start);
      }
      connection.waiting.push(start);
      // Not at the first one: nobody notices the end of a connection that is not read.
      if (connection.waiting.length >= MOST_WAITING) socket.pause();
    },
    isBusy: (socket) => connections.get(socket as Socket)?.isBusy ?? false,
    closeIdle() {
      isClosing = true;
      for (const outgoing of responses) outgoing.shouldKeepAlive = false;
      for (const [socket, { isBusy }] of connections) if (!isBusy) socket.destroySoon();
    },
    allAnswered: () =>
      new Promise((resolve) => {
        waiting.push(resolve);
        resolveIfAnswered();
      }),
    destroyAll() {
      for (const socket of connections.keys()) socket.destroy();
    },
    sockets: () => connections.keys(),
    counts: {
      connections: () => connections.size,
      requestsInProgress: () => responses.size,
      requestsWaiting: () => [...connections.values()].reduce((sum, one) => sum + one.waiting.length, 0),
    },
  };
}

const REQUEST_ID = /^[\w.:-]{1,128}$/;

/** The status in the log for a client that disconnected before the response; nginx introduced the number. */
const CLIENT_CLOSED = 499;
const SWITCHING = 101;

type ExchangeOptions = Required<Pick<ServerOptions, 'log' | 'clock' | 'memory' | 'durable'>> &
  Pick<ServerOptions, 'streams'> & {
    readonly keys: Keys;
    readonly metrics: ServerMetrics | undefined;
    /** The method in the log and the metrics; default: that of the request. */
    readonly method?: string;
  };

type Answered = Answering & Pick<ServerResponse, 'headersSent' | 'statusCode' | 'writableFinished'>;

/** Sets the headers that every response has, and logs one line when the response is closed. */
function beginExchange(
  incoming: IncomingMessage,
  outgoing: Answered,
  { log, clock, memory, durable, keys, streams, metrics, method = incoming.method ?? '' }: ExchangeOptions,
): Exchange {
  const requested = incoming.headers['x-request-id'];
  const requestId = typeof requested === 'string' && REQUEST_ID.test(requested) ? requested : newRequestId();
  let held: Held | undefined;
  let isWorking = true;
  let isClosed = false;
  let onEnd: (() => void)[] | undefined;
  const endIfDone = (): void => {
    if (isWorking || !isClosed || !onEnd) return;
    for (const listener of onEnd) listener();
    onEnd = undefined;
  };
  const exchange: Exchange = {
    requestId,
    log,
    hold(bytes) {
      if (!held) exchange.onEnd((held = exchange.holder()).release);
      held.hold(bytes);
    },
    onEnd(listener) {
      (onEnd ??= []).push(listener);
      endIfDone();
    },
    workEnded() {
      isWorking = false;
      endIfDone();
    },
    // A request that was not admitted has read nothing, and metrics are not stored.
    durable() {
      const scope = exchange.route?.scope;
      return (exchange.caller || scope === 'signed') && scope !== 'metrics:read' ? durable() : undefined;
    },
    holder: () => memory.holder(exchange.caller?.tenant),
    openStream() {
      if (isClosed) return;
      const { caller } = exchange;
      if (streams) outgoing.once('close', streams.take(caller?.tenant ?? DEFAULT_TENANT));
      // A stream may stay open for days. Its client has to open it again, with a key that is valid.
      const endIfRevoked = (): void => void (caller && keys.whyRevoked(caller) && incoming.socket.destroy());
      outgoing.once('close', keys.onReplaced(endIfRevoked));
    },
  };
  const startedAt = clock.now();
  outgoing.setHeader('x-request-id', requestId);
  outgoing.setHeader('X-Content-Type-Options', 'nosniff');
  outgoing.setHeader('Cache-Control', 'no-store');
  outgoing.once('close', () => {
    isClosed = true;
    endIfDone();
    const path = loggedPath(incoming.url);
    const isUpgrade = exchange.status !== undefined;
    const status = exchange.status ?? (outgoing.headersSent ? outgoing.statusCode : CLIENT_CLOSED);
    const ms = clock.now() - startedAt;
    metrics?.requestEnded(method, exchange.route?.pattern ?? NO_ROUTE, status, ms);
    const { caller } = exchange;
    // What is undefined is not in the line.
    const line = {
      method,
      path,
      status,
      ms,
      requestId,
      tenant: caller?.tenant,
      key: caller?.key,
      runId: caller?.runId,
      aborted: (!outgoing.writableFinished && !isUpgrade) || undefined,
    };
    log[levelOf(path, status)](line, 'request');
  });
  return exchange;
}

function levelOf(path: string, status: number): 'error' | 'info' | 'debug' {
  if (status >= 500) return path === '/readyz' ? 'info' : 'error';
  return isProbe(path) || path === '/metrics' ? 'debug' : 'info';
}

function isProbe(path: string): boolean {
  return path === '/healthz' || path === '/readyz';
}

/** Without the query, which may contain a key, and without the host. */
function loggedPath(url: string | undefined): string {
  const path = (url ?? '').replace(/^https?:\/\/[^/?#]*/i, '').split(/[?#]/, 1)[0] ?? '';
  return path.length > 500 ? `${path.slice(0, 500)}…` : path;
}

/** Answers a request that Node could not parse. Its error is not logged, because it contains the raw bytes, and keys. */
function refuseUnreadable(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  { log, metrics }: Pick<ExchangeOptions, 'log' | 'metrics'>,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const refusal = unreadableError(error.code);
  metrics?.requestUnreadable(refusal.status);
  const requestId = newRequestId();
  const body = JSON.stringify(errorBody(refusal));
  log.info({ requestId, status: refusal.status, code: error.code }, 'unreadable request');
  const head = [
    `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`,
    'Connection: close',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}

function unreadableError(code: string | undefined): ApiError {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError(408, 'invalid_request_error', 'The request did not arrive in time. Send it again.', {
        code: 'request_timeout',
      });
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError(431, 'invalid_request_error', 'The headers of the request are too large.', {
        code: 'headers_too_large',
      });
    default:
      return new ApiError(400, 'invalid_request_error', 'This is not a valid HTTP/1.1 request.', {
        code: 'invalid_request',
      });
  }
}
