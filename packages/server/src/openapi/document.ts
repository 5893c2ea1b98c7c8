import { setImmediate } from 'node:timers/promises';
import { JSON_TYPE, routePattern, type Parameters, type Route } from '../http/routes.ts';
import { jsonSchemaOf, type JsonSchema, type KnownSchemas } from './json-schema.ts';

/** The OpenAPI 3.1 document of a server with these routes. The bodies of requests follow from the schemas that validate them. */
export async function openApiDocument(
  routes: readonly Route[],
  { hasKeys }: { readonly hasKeys: boolean },
): Promise<object> {
  const known: KnownSchemas = new Map();
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    // All bodies together take a tenth of a second.
    await setImmediate();
    const operations = (paths[routePattern(route.path)] ??= {});
    operations[route.method.toLowerCase()] = operation(route, { hasKeys, known });
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
    paths,
    components: {
      schemas: { Error: ERROR },
      responses: {
        Error: errorOf(ref('schemas/Error')),
      },
      ...(hasKeys && {
        securitySchemes: { key: { type: 'http', scheme: 'bearer', description: 'A key of the server.' } },
      }),
    },
  };
}

function operation(
  route: Route,
  { hasKeys, known }: { readonly hasKeys: boolean; readonly known: KnownSchemas },
): object {
  const { method, summary, scope, fieldScopes = {}, body, answers = [JSON_TYPE], others = {}, errorForm } = route;
  const pattern = routePattern(route.path);
  const anyContent = Object.fromEntries(answers.map((type) => [type, {}]));
  const parameters = parametersOf(pattern, route);
  const needed = Object.entries(fieldScopes).map(([field, one]) => `\`${field}\` also needs the scope \`${one}\`.`);
  return {
    summary,
    ...(hasKeys && needed.length > 0 && { description: needed.join(' ') }),
    operationId: `${method.toLowerCase()}${pattern.replaceAll(/\W+(\w)?/g, (_, letter: string = '') => letter.toUpperCase())}`,
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: { required: true, content: { [JSON_TYPE]: { schema: jsonSchemaOf(body, known) } } },
    }),
    ...(hasKeys &&
      scope !== 'open' &&
      scope !== 'signed' && { security: [{ key: scope === 'any-key' ? [] : [scope] }] }),
    responses: {
      200: { description: 'Success.', content: anyContent },
      ...Object.fromEntries(Object.entries(others).map(([status, description]) => [status, { description }])),
      default: errorForm ? errorOf(errorForm.schema) : ref('responses/Error'),
    },
  };
}

function parametersOf(pattern: string, { query = {}, headers = {} }: Route): readonly object[] {
  const inPath = [...pattern.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
  const named = (parameters: Parameters, where: string): readonly object[] =>
    Object.entries(parameters).map(([name, parameter]) => ({ name, in: where, ...parameter }));
  return [...inPath, ...named(query, 'query'), ...named(headers, 'header')];
}

function errorOf(schema: object): object {
  return { description: 'An error.', content: { [JSON_TYPE]: { schema } } };
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
