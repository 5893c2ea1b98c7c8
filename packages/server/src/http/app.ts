import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Clock } from '@treadle/core';
import { Hono, type Context } from 'hono';
import type { Logger } from 'pino';
import { ApiError, errorBody, shuttingDown, toApiError } from '../api-error.ts';
import { allowOrigin, type Admission, type AdmissionOptions, type Env, type ErrorForm } from './admission.ts';
import { pageRoutes } from './page.ts';
import { sendBytes } from './respond.ts';
import { JSON_TYPE, route, routePattern, type Route } from './routes.ts';

export interface AppOptions extends Pick<AdmissionOptions, 'cors'> {
  readonly admit: Admission;
  readonly routes: readonly Route[];
  /** Writes the OpenAPI document of the routes. Absent: the server has no `/openapi.json`. */
  readonly describe?: (routes: readonly Route[]) => Promise<Buffer>;
  /** Resolves if the store can be written. */
  readonly ready: () => Promise<void>;
  readonly isClosing: () => boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Answers every request. An error becomes an error body for the client, and a line in the log if it is unexpected. */
export type AnswerRequest = (request: Request, env: Env['Bindings']) => Promise<Response>;

/** Serves the routes and what surrounds them: page, health checks, CORS, admission and errors. */
export function requestHandler(options: AppOptions): AnswerRequest {
  const { isClosing, cors, admit, describe } = options;
  const app = new Hono<Env>({ strict: false });
  app.router = withKnownMatches(app.router);

  const checkOpen = (): void => {
    if (isClosing()) throw shuttingDown();
  };
  /** Returns a response only to a preflight request, which matches no route. Throws if the request is not admitted. */
  function admitCaller(c: Context<Env>): Response | undefined | Promise<void> {
    const { incoming, outgoing, exchange } = c.env;
    if (allowOrigin(cors, incoming, outgoing)) return c.body(null, 204);
    checkOpen();
    const caller = admit(incoming, outgoing, exchange);
    if (caller instanceof Promise) return caller.then((admitted) => void c.set('caller', admitted));
    c.set('caller', caller);
    return undefined;
  }
  /** Calls `handle` when the caller is admitted. */
  function answer(c: Context<Env>, handle: () => Response | Promise<Response>): Response | Promise<Response> {
    const refused = admitCaller(c);
    return refused instanceof Promise ? refused.then(handle) : (refused ?? handle());
  }

  const page = pageRoutes((incoming) => {
    checkOpen();
    admit.checkAddress(incoming);
  });
  const routes: Route[] = [...page, ...healthRoutes(options), ...options.routes];
  if (describe) routes.push(openApiRoute(() => describe(routes)));
  for (const { method, path, scope, errorForm, failureFor, handle } of routes) {
    const matched = {
      pattern: routePattern(path),
      scope,
      ...(errorForm && { errorForm }),
      ...(failureFor && { failureFor }),
    };
    app.on(method, path, (c) => {
      c.env.exchange.route = matched;
      if (errorForm) c.env.outgoing.setHeader(errorForm.idHeader, c.env.exchange.requestId);
      if (scope === 'signed') checkOpen();
      return scope === 'open' || scope === 'signed' ? handle(c) : answer(c, () => handle(c));
    });
  }
  app.notFound((c) => {
    const { route: matched } = c.env.exchange;
    // Hono also calls this for a handler without a response.
    if (matched) throw new Error(`The route ${matched.pattern} returned no response.`);
    // Clients of an API try what it has elsewhere.
    const form = routes.find(({ path, errorForm }) => errorForm && `${c.req.path}/`.startsWith(`${path}/`))?.errorForm;
    const { requestId } = c.env.exchange;
    if (form) c.env.outgoing.setHeader(form.idHeader, requestId);
    return answer(c, () => formedResponse(wrongMethod(c, app.router) ?? unknownRoute(c), requestId, form));
  });
  app.onError((error, { env }) => failedResponse(error, env));

  return async (request, env) => {
    try {
      const response = await app.fetch(request, env);
      if (response.headers.has(ALREADY_SENT)) return response;
      // Not left to the adapter, which writes its errors to the console and to the client.
      const body = response.body === null ? undefined : Buffer.from(await response.arrayBuffer());
      if (body) env.exchange.hold(body.length);
      await env.exchange.durable();
      sendResponse(response, body, env);
    } catch (thrown) {
      // It tells nothing that was read: it is sent although the store cannot be synced.
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

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];

/** The 405 for a path that has routes for other methods. */
function wrongMethod({ req: { method, path } }: Context<Env>, router: Router): ApiError | undefined {
  const allowed = METHODS.filter((one) => router.match(one === 'HEAD' ? 'GET' : one, path)[0].length > 0).join(', ');
  if (allowed === '') return undefined;
  return new ApiError(405, 'invalid_request_error', `${path} supports ${allowed}, not ${method}.`, {
    code: 'method_not_allowed',
    headers: { Allow: allowed },
  });
}

/** The 404 for a path that no route has. */
export function unknownRoute({ req: { method, path } }: Pick<Context<Env>, 'req'>): ApiError {
  return new ApiError(404, 'not_found_error', `This server has no route ${method} ${path}.`, { code: 'unknown_url' });
}

const [ALREADY_SENT = ''] = RESPONSE_ALREADY_SENT.headers.keys();

function failedResponse(thrown: unknown, { incoming, outgoing, exchange }: Env['Bindings']): Response {
  const { requestId, caller, route: matched } = exchange;
  const log = caller?.log ?? exchange.log.child({ requestId });
  if (!(thrown instanceof ApiError)) log.error({ err: thrown }, 'a request failed unexpectedly');
  if (!outgoing.headersSent) {
    const error = toApiError(thrown, requestId);
    const own = matched?.failureFor?.(error, incoming.headers);
    return own ?? formedResponse(error, requestId, matched?.errorForm);
  }
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

export function errorResponse(error: ApiError): Response {
  return formedResponse(error, '', undefined);
}

function formedResponse(error: ApiError, requestId: string, form: ErrorForm | undefined): Response {
  return new Response(JSON.stringify(form ? form.bodyOf(error, requestId) : errorBody(error)), {
    status: form ? form.statusOf(error) : error.status,
    headers: { 'Content-Type': 'application/json', ...error.headers },
  });
}

/** How long the store may take to answer a health check. */
const READY_TIMEOUT_MS = 2_000;

/** Neither needs a key. */
function healthRoutes({ ready, isClosing, log, clock }: AppOptions): readonly Route[] {
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
  return [
    route({
      method: 'GET',
      path: '/healthz',
      scope: 'open',
      summary: 'The process is alive',
      handle: (c) => c.json({ status: 'ok' }),
    }),
    route({
      method: 'GET',
      path: '/readyz',
      scope: 'open',
      summary: 'The server accepts requests and its store can be written',
      others: { '503': 'The server is shutting down, or the store cannot be written.' },
      async handle(c) {
        if (isClosing()) return c.json({ status: 'unavailable', reason: 'The server is shutting down.' }, 503);
        if (await isStoreReady()) return c.json({ status: 'ok' });
        return c.json({ status: 'unavailable', reason: 'The store cannot be written.' }, 503);
      },
    }),
  ];
}

function openApiRoute(describe: () => Promise<Buffer>): Route {
  return route({
    method: 'GET',
    path: '/openapi.json',
    scope: 'any-key',
    summary: 'Describe all endpoints as OpenAPI 3.1',
    handle: async (c) => sendBytes(c, await describe(), { 'content-type': JSON_TYPE }),
  });
}

function within<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  const timeout = Promise.withResolvers<never>();
  const cancelTimer = clock.timer(ms, () => timeout.reject(new Error(`no answer within ${ms} ms`)));
  return Promise.race([work, timeout.promise]).finally(cancelTimer);
}
