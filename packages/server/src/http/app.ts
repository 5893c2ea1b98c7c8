import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Clock } from '@treadle/core';
import { Hono, type Context } from 'hono';
import { methodNotAllowed } from 'hono/method-not-allowed';
import { matchedRoutes } from 'hono/route';
import type { Logger } from 'pino';
import { ApiError, errorBody, toApiError } from '../api-error.ts';
import { NO_ROUTE } from './metrics.ts';
import { requireApiScope, requireScope, type Admission, type AdmissionOptions, type Env } from './admission.ts';
import { allowOrigin } from './origins.ts';
import { pageRoutes } from './page.ts';

export interface AppOptions extends Pick<AdmissionOptions, 'cors'> {
  readonly admit: Admission;
  readonly routes: (app: Hono<Env>) => void;
  /** Resolves if the store can be written. */
  readonly ready: () => Promise<void>;
  readonly isClosing: () => boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Answers every request. An error becomes an error body for the client, and a line in the log if it is unexpected. */
export type AnswerRequest = (request: Request, env: Env['Bindings']) => Promise<Response>;

/** What surrounds the routes: health checks, CORS, admission and errors. */
export function requestHandler(options: AppOptions): AnswerRequest {
  const { isClosing, cors, admit } = options;
  const app = new Hono<Env>({ strict: false });
  app.router = withKnownMatches(app.router);

  app.route('/', healthRoutes(options));
  const checkOpen = (): void => {
    if (isClosing()) throw shuttingDown();
  };
  app.route(
    '/',
    pageRoutes((incoming) => {
      checkOpen();
      admit.checkAddress(incoming);
    }),
  );
  app.use(async (c, next) => {
    const { incoming, outgoing, exchange } = c.env;
    exchange.route = routeOf(c);
    if (allowOrigin(cors, incoming, outgoing)) return c.body(null, 204);
    checkOpen();
    exchange.caller = admit(incoming, outgoing, exchange);
    c.set('caller', exchange.caller);
    if (!METRICS.test(c.req.path)) requireApiScope(exchange.caller);
    await next();
    return undefined;
  });
  app.use(
    methodNotAllowed({
      app,
      onMethodNotAllowed: (c, methods) => {
        const message = `${c.req.path} supports ${methods.join(', ')}, not ${c.req.method}.`;
        return errorResponse(
          new ApiError(405, 'invalid_request_error', message, {
            code: 'method_not_allowed',
            headers: { Allow: methods.join(', ') },
          }),
        );
      },
    }),
  );
  app.use('/v1/*', async (c, next) => {
    if (!OWN_SCOPES.test(c.req.path)) requireScope(c.get('caller'), 'agents:invoke');
    await next();
  });
  const api = new Hono<Env>();
  options.routes(api);
  app.route('/', api);
  app.notFound(({ req }) =>
    errorResponse(
      new ApiError(404, 'not_found_error', `This server has no route ${req.method} ${req.path}.`, {
        code: 'unknown_url',
      }),
    ),
  );
  app.onError((error, { env }) => failedResponse(error, env));

  return async (request, env) => {
    try {
      const response = await app.fetch(request, env);
      if (response.headers.has(ALREADY_SENT)) return response;
      // Not left to the adapter, which writes its errors to the console and to the client.
      const body = response.body === null ? undefined : Buffer.from(await response.arrayBuffer());
      if (body) env.exchange.hold(body.length);
      sendResponse(response, body, env);
    } catch (thrown) {
      const response = failedResponse(thrown, env);
      if (!response.headers.has(ALREADY_SENT)) sendResponse(response, Buffer.from(await response.arrayBuffer()), env);
    } finally {
      env.exchange.workEnded();
    }
    return RESPONSE_ALREADY_SENT;
  };
}

type Router = Hono<Env>['router'];

/** Keeps the matches of paths without parameters, which are always the same: Hono makes some twenty objects for each. */
function withKnownMatches(router: Router): Router {
  const known = new Map<string, Map<string, ReturnType<Router['match']>>>();
  return {
    name: router.name,
    add(method, path, handler) {
      if (!/[:*]/.test(path)) known.set(path, new Map());
      router.add(method, path, handler);
    },
    match(method, path) {
      const matches = known.get(path);
      const found = matches?.get(method) ?? router.match(method, path);
      matches?.set(method, found);
      return found;
    },
  };
}

/** The pattern of the route that a request matches. */
function routeOf(c: Context<Env>): string {
  const route = matchedRoutes(c).findLast(({ method }) => method !== 'ALL');
  if (!route) return NO_ROUTE;
  const known = PATTERNS.get(route.path);
  if (known !== undefined) return known;
  const pattern = routePattern(route.path);
  PATTERNS.set(route.path, pattern);
  return pattern;
}

/** The pattern of each path of a route that was requested. */
const PATTERNS = new Map<string, string>();

/** The path of a route in the form of OpenAPI: `/runs/{id}` for `/runs/:id{.+}`. */
export function routePattern(path: string): string {
  return path.replaceAll(/:(\w+)(?:\{[^/]*\})?/g, '{$1}');
}

/** The only route for a key without a scope of the API. */
const METRICS = /^\/metrics\/?$/;

/** Routes that check other scopes themselves. */
const OWN_SCOPES = /^\/v1\/(server|runs|conversations|chat(?!\/completions(\/|$)))(\/|$)/;

const [ALREADY_SENT = ''] = RESPONSE_ALREADY_SENT.headers.keys();

function failedResponse(thrown: unknown, { outgoing, exchange }: Env['Bindings']): Response {
  const { requestId, caller } = exchange;
  const log = caller?.log ?? exchange.log.child({ requestId });
  if (!(thrown instanceof ApiError)) log.error({ err: thrown }, 'a request failed unexpectedly');
  if (!outgoing.headersSent) return errorResponse(toApiError(thrown, requestId));
  // Part of the response was sent: closing the connection is the only way to report the error.
  outgoing.destroy();
  return RESPONSE_ALREADY_SENT;
}

function sendResponse(
  { status, headers }: Response,
  body: Buffer | undefined,
  { incoming, outgoing }: HttpBindings,
): void {
  for (const [name, value] of headers) outgoing.setHeader(name, value);
  if (status !== 204 && status !== 304 && incoming.method !== 'HEAD')
    outgoing.setHeader('Content-Length', body?.length ?? 0);
  outgoing.writeHead(status).end(body);
}

export function shuttingDown(): ApiError {
  return new ApiError(503, 'server_error', 'The server is shutting down. Retry in a moment.', {
    code: 'shutting_down',
    headers: { 'Retry-After': '1' },
  });
}

export function errorResponse(error: ApiError): Response {
  return new Response(JSON.stringify(errorBody(error)), {
    status: error.status,
    headers: { 'Content-Type': 'application/json', ...error.headers },
  });
}

/** How long the store may take to answer a health check. */
const READY_TIMEOUT_MS = 2_000;

/** `/healthz`: the process is alive. `/readyz`: it accepts requests. Neither needs a key. */
function healthRoutes({ ready, isClosing, log, clock }: AppOptions): Hono {
  let check: Promise<boolean> | undefined;
  // All probes that arrive while the store hangs share one check.
  const isStoreReady = (): Promise<boolean> => {
    check ??= within(clock, READY_TIMEOUT_MS, Promise.resolve().then(ready))
      .then(() => true)
      .catch((error: unknown) => {
        log.error({ err: error }, 'not ready: the store cannot be written');
        return false;
      })
      .finally(() => (check = undefined));
    return check;
  };
  return new Hono()
    .get('/healthz', (c) => c.json({ status: 'ok' }))
    .get('/readyz', async (c) => {
      if (isClosing()) return c.json({ status: 'unavailable', reason: 'The server is shutting down.' }, 503);
      if (await isStoreReady()) return c.json({ status: 'ok' });
      return c.json({ status: 'unavailable', reason: 'The store cannot be written.' }, 503);
    });
}

function within<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  const timeout = Promise.withResolvers<never>();
  const cancelTimer = clock.timer(ms, () => timeout.reject(new Error(`no answer within ${ms} ms`)));
  return Promise.race([work, timeout.promise]).finally(cancelTimer);
}
