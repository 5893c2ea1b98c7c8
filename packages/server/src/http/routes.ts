import type { Context } from 'hono';
import type { z } from 'zod';
import type { Env, ErrorForm, FailureFor, RouteScope } from './admission.ts';
import type { Scope } from './keys.ts';

/**
 * An endpoint: who may use it, what answers it, and what `/openapi.json` and docs/endpoints.md say about it. The server checks
 * the key and the scope before it calls `handle`, which gets the caller by `c.get('caller')`.
 */
export interface Route<Path extends string = string> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** In the notation of Hono: `/v1/runs/:id`. */
  readonly path: Path;
  readonly scope: RouteScope;
  /** Fields of the body that need a further scope. It is checked where the field is used. */
  readonly fieldScopes?: Readonly<Record<string, Scope>>;
  readonly summary: string;
  readonly query?: Parameters;
  readonly headers?: Parameters;
  /** What `handle` validates the body with. */
  readonly body?: z.ZodType;
  /** The content types of the answer; default: JSON. */
  readonly answers?: readonly string[];
  /** Further statuses without content, and their meaning. */
  readonly others?: Readonly<Record<string, string>>;
  /** The form of its errors; default: that of OpenAI. */
  readonly errorForm?: ErrorForm;
  /** The answer to a client that reads errors in a way of its own. Undefined: the client is another one. */
  readonly failureFor?: FailureFor;
  /** Reads the body with `readJson`. An error that it throws becomes the answer. */
  handle(c: Context<Env, Path>): Response | Promise<Response>;
}

/** Parameters in the URL or in the headers of a request, by name. */
export type Parameters = Readonly<Record<string, Parameter>>;

export interface Parameter {
  readonly description: string;
  /** JSON Schema. */
  readonly schema: Readonly<Record<string, unknown>>;
}

/** A route whose `handle` knows the parameters in its path. */
export function route<Path extends string>(given: Route<Path>): Route {
  return given;
}

/** The path of a route in the form of OpenAPI: `/runs/{id}` for `/runs/:id{.+}`. */
export function routePattern(path: string): string {
  return path.replaceAll(/:(\w+)(?:\{[^/]*\})?/g, '{$1}');
}

export const JSON_TYPE = 'application/json';
export const EVENTS = 'text/event-stream';
