import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Clock } from '@treadle/core';
import { Hono } from 'hono';
import { methodNotAllowed } from 'hono/method-not-allowed';
import type { Logger } from 'pino';
import { ApiError } from '../api-error.ts';
import { admission, requireScope, type AdmissionOptions } from './admission.ts';
import { allowOrigin } from './cors.ts';
import type { Caller, Env } from './env.ts';
import { errorResponse, toApiError } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { healthRoutes } from './health.ts';

export interface AppOptions extends AdmissionOptions {
  readonly routes: (app: Hono<Env>) => void;
  readonly ready: () => Promise<void>;
  readonly isClosing: () => boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

type FrameEnv = { Bindings: HttpBindings & { exchange: Exchange }; Variables: { caller: Caller } };

/** Answers a request, always: what goes wrong is an error body for the client and a line in the log. */
export type Answer = (request: Request, env: FrameEnv['Bindings']) => Promise<Response>;

/** Everything around the routes: who may come in, and what is said if something is wrong. */
export function answering(options: AppOptions): Answer {
  const { isClosing, cors } = options;
  const admit = admission(options);
  const app = new Hono<FrameEnv>({ strict: false });

  app.route('/', healthRoutes(options));
  app.use(async (c, next) => {
    const { incoming, outgoing, exchange } = c.env;
    if (allowOrigin(cors, incoming, outgoing)) return c.body(null, 204);
    if (isClosing()) throw closing();
    exchange.caller = admit(incoming, outgoing, exchange);
    c.set('caller', exchange.caller);
    await next();
    return undefined;
  });
  app.use(
    methodNotAllowed({
      app,
      onMethodNotAllowed: (c, methods) => {
        const message = `${c.req.path} takes ${methods.join(', ')}, not ${c.req.method}.`;
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
    requireScope(c.get('caller'), 'agents:invoke');
    await next();
  });
  const api = new Hono<Env>();
  options.routes(api);
  app.route('/', api);
  app.notFound(({ req }) =>
    errorResponse(
      new ApiError(404, 'not_found_error', `There is no ${req.method} ${req.path} here.`, { code: 'unknown_url' }),
    ),
  );
  app.onError((error, { env }) => failed(error, env));

  return async (request, env) => {
    try {
      const response = await app.fetch(request, env);
      if (response.headers.has(ALREADY_SENT)) return response;
      // Written here and not by the adapter, which writes what goes wrong with it to the console and to the client.
      const body = response.body === null ? undefined : Buffer.from(await response.arrayBuffer());
      send(response, body, env);
    } catch (thrown) {
      const response = failed(thrown, env);
      if (!response.headers.has(ALREADY_SENT)) send(response, Buffer.from(await response.arrayBuffer()), env);
    }
    return RESPONSE_ALREADY_SENT;
  };
}

const [ALREADY_SENT = ''] = RESPONSE_ALREADY_SENT.headers.keys();

function failed(thrown: unknown, { outgoing, exchange }: FrameEnv['Bindings']): Response {
  const { requestId, caller } = exchange;
  const log = caller?.log ?? exchange.log.child({ requestId });
  if (!(thrown instanceof ApiError)) log.error({ err: thrown }, 'a request failed unexpectedly');
  if (!outgoing.headersSent) return errorResponse(toApiError(thrown, requestId));
  // The answer has begun: that it is cut off is all that can still be told.
  outgoing.destroy();
  return RESPONSE_ALREADY_SENT;
}

function send({ status, headers }: Response, body: Buffer | undefined, { incoming, outgoing }: HttpBindings): void {
  for (const [name, value] of headers) outgoing.setHeader(name, value);
  if (status !== 204 && status !== 304 && incoming.method !== 'HEAD')
    outgoing.setHeader('Content-Length', body?.length ?? 0);
  outgoing.writeHead(status).end(body);
}

function closing(): ApiError {
  return new ApiError(503, 'server_error', 'The server is shutting down. Try again in a moment.', {
    code: 'shutting_down',
    headers: { 'Retry-After': '1' },
  });
}
