import { setImmediate } from 'node:timers/promises';
import { routePattern } from '../http/app.ts';
import { jsonSchemaOf, type JsonSchema, type KnownSchemas } from './json-schema.ts';
import { DESCRIPTIONS, type RouteDescription } from './routes.ts';

/** A route of the server: its method, and its path in the notation of Hono. */
export interface ServedRoute {
  readonly method: string;
  readonly path: string;
}

/** The routes that surround the API. */
const SURROUNDING: readonly ServedRoute[] = [
  { method: 'GET', path: '/' },
  { method: 'GET', path: '/assets/:file' },
  { method: 'GET', path: '/healthz' },
  { method: 'GET', path: '/readyz' },
];

/**
 * The OpenAPI 3.1 document of a server with these routes. The bodies of requests follow from the schemas that validate them.
 * Two patterns that differ only in the names of parameters, such as `/chat/{id}/stream` and `/chat/{chat}/stream`, are one path
 * for OpenAPI: the last one is described.
 */
export async function openApiDocument(
  routes: readonly ServedRoute[],
  { hasKeys }: { readonly hasKeys: boolean },
): Promise<object> {
  const known: KnownSchemas = new Map();
  const paths = new Map<string, { readonly pattern: string; readonly operations: Record<string, object> }>();
  for (const { method, path } of [...SURROUNDING, ...routes]) {
    if (method === 'ALL') continue;
    const pattern = routePattern(path);
    // All bodies together take a tenth of a second.
    await setImmediate();
    const described = operation(method, pattern, { hasKeys, known });
    const shape = pattern.replaceAll(/\{\w+\}/g, '{}');
    const operations = { ...paths.get(shape)?.operations, [method.toLowerCase()]: described };
    paths.set(shape, { pattern, operations });
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Treadle',
      version: 'v1',
      description:
        'The agentic tool loop over HTTP. Unknown fields of a body are ignored, unless its schema refuses them.',
    },
    servers: [{ url: '/' }],
    paths: Object.fromEntries([...paths.values()].map(({ pattern, operations }) => [pattern, operations])),
    components: {
      schemas: { Error: ERROR },
      responses: {
        Error: { description: 'An error.', content: { 'application/json': { schema: ref('schemas/Error') } } },
      },
      ...(hasKeys && {
        securitySchemes: { key: { type: 'http', scheme: 'bearer', description: 'A key of the server.' } },
      }),
    },
  };
}

function operation(
  method: string,
  pattern: string,
  { hasKeys, known }: { readonly hasKeys: boolean; readonly known: KnownSchemas },
): object {
  const route = DESCRIPTIONS[`${method} ${pattern}`];
  if (!route) return { responses: { default: ref('responses/Error') } };
  const { summary, scope, isOpen = false, body, answers = ['application/json'], others = {} } = route;
  const anyContent = Object.fromEntries(answers.map((type) => [type, {}]));
  const parameters = parametersOf(pattern, route);
  return {
    summary,
    operationId: `${method.toLowerCase()}${pattern.replaceAll(/\W+(\w)?/g, (_, letter: string = '') => letter.toUpperCase())}`,
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: { required: true, content: { 'application/json': { schema: jsonSchemaOf(body, known) } } },
    }),
    ...(hasKeys && !isOpen && { security: [{ key: scope === undefined ? [] : [scope] }] }),
    responses: {
      200: { description: 'Success.', content: anyContent },
      ...Object.fromEntries(Object.entries(others).map(([status, description]) => [status, { description }])),
      default: ref('responses/Error'),
    },
  };
}

function parametersOf(pattern: string, { query = {}, headers = {} }: RouteDescription): readonly object[] {
  const inPath = [...pattern.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
  const named = (parameters: typeof query, where: string): readonly object[] =>
    Object.entries(parameters).map(([name, parameter]) => ({ name, in: where, ...parameter }));
  return [...inPath, ...named(query, 'query'), ...named(headers, 'header')];
}

function ref(to: string): { readonly $ref: string } {
  return { $ref: `#/components/${to}` };
}

const nullableText = { type: ['string', 'null'] };

const ERROR: JsonSchema = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'param', 'code'],
      properties: { message: { type: 'string' }, type: { type: 'string' }, param: nullableText, code: nullableText },
    },
  },
};
