import { scriptedModel } from '@treadle/core/testing';
import { hashKey, newKey } from '@treadle/server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { startInProcess, type InProcessServer } from './support/in-process.ts';

type JsonObject = Readonly<Record<string, unknown>>;

interface Operation {
  readonly summary?: string;
  readonly description?: string;
  readonly operationId?: string;
  readonly parameters?: readonly { name: string; in: string; required?: boolean; schema: JsonObject }[];
  readonly requestBody?: { required: boolean; content: Readonly<Record<string, { schema: JsonObject }>> };
  readonly responses: Readonly<Record<string, JsonObject>>;
  readonly security?: readonly JsonObject[];
}

interface Document {
  readonly openapi: string;
  readonly info: JsonObject;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: Readonly<Record<string, JsonObject>>;
}

let server: InProcessServer;
let document: Document;

beforeAll(async () => {
  server = await startInProcess(scriptedModel([]));
  document = (await server.send('GET', '/openapi.json')).body as Document;
});
afterAll(() => server[Symbol.asyncDispose]());

const operations = (): { path: string; method: string; operation: Operation }[] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );

/** The value of each parameter in a path that exists for no run, response or conversation. */
const concrete = (path: string): string => path.replace('/chat/{id}', '/chat/conv_0').replaceAll(/\{\w+\}/g, 'none');

function* values(value: unknown): Generator<JsonObject> {
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) yield value as JsonObject;
  for (const part of Object.values(value)) yield* values(part);
}

test('is an OpenAPI 3.1 document', () => {
  expect(Object.keys(document).toSorted()).toEqual(['components', 'info', 'openapi', 'paths', 'servers']);
  expect(document.openapi).toMatch(/^3\.1\.\d+$/);
  expect(document.info).toMatchObject({ title: expect.any(String), version: expect.any(String) });
  const ids = operations().map(({ operation }) => operation.operationId);
  expect(new Set(ids).size).toBe(ids.length);
  const shapes = Object.keys(document.paths).map((path) => path.replaceAll(/\{\w+\}/g, '{}'));
  expect(new Set(shapes).size).toBe(shapes.length);
  for (const { path, method, operation } of operations()) {
    const where = `${method} ${path}`;
    expect(path, where).toMatch(/^(\/|(\/([\w.-]+|\{\w+\}))+)$/);
    expect(['get', 'put', 'post', 'delete', 'patch'], where).toContain(method);
    expect(operation.operationId, where).toMatch(/^\w+$/);
    const { parameters = [] } = operation;
    const named = parameters.map((one) => `${one.in} ${one.name}`);
    expect(new Set(named).size, where).toBe(named.length);
    expect(
      parameters.flatMap((one) => (one.in === 'path' && one.required ? one.name : [])),
      where,
    ).toEqual([...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name));
    expect(Object.keys(operation.responses).length, where).toBeGreaterThan(0);
    for (const [status, response] of Object.entries(operation.responses)) {
      expect(status).toMatch(/^(default|[1-5]\d\d)$/);
      expect(response['$ref'] ?? response['description'], where).toEqual(expect.any(String));
    }
  }
  for (const { $ref } of values(document)) {
    if ($ref === undefined) continue;
    const [root, ...keys] = String($ref).split('/');
    expect(root).toBe('#');
    expect(
      keys.reduce<unknown>((at, key) => (at as JsonObject)?.[key], document),
      String($ref),
    ).toBeDefined();
  }
});

test('describes every route, and no other', async () => {
  const undescribed = operations().filter(({ operation }) => operation.summary === undefined);
  expect(undescribed.map(({ method, path }) => `${method} ${path}`)).toEqual([]);
  // The server itself says which methods a path supports.
  for (const [path, methods] of Object.entries(document.paths)) {
    const answer = await fetch(server.url + concrete(path), { method: 'SEARCH' });
    await answer.text();
    expect([path, answer.status]).toEqual([path, 405]);
    const allowed = answer.headers
      .get('allow')!
      .split(', ')
      .filter((method) => method !== 'HEAD');
    // These could be the id of a response, too.
    const others = /^\/v1\/responses\/\w+$/.test(path) ? document.paths['/v1/responses/{id}']! : {};
    expect([path, allowed.toSorted()]).toEqual([
      path,
      Object.keys({ ...methods, ...others })
        .map((one) => one.toUpperCase())
        .toSorted(),
    ]);
  }
});

test('names only query parameters that the server knows', async () => {
  for (const { path, method, operation } of operations()) {
    for (const { name, in: where, schema } of operation.parameters ?? []) {
      if (where !== 'query') continue;
      const value = String((schema['enum'] as unknown[] | undefined)?.[0] ?? schema['minimum'] ?? '2026-01-01');
      const answer = await fetch(`${server.url}${concrete(path)}?${name}=${value}`, { method });
      expect(await answer.text(), `${path} ${name}`).not.toContain('There is no parameter');
    }
  }
});

describe('the schema of a body agrees with the server', () => {
  const image = { type: 'input_image', image_url: 'https://example.com/a.png' };
  const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } };

  /** Bodies that the server accepts or rejects because of their fields. */
  const bodies: Readonly<Record<string, { accepted: readonly unknown[]; rejected: readonly unknown[] }>> = {
    '/v1/responses': {
      accepted: [
        { input: 'Hello' },
        { input: null, previous_response_id: 'resp_0', metadata: { a: 'b' }, stream: null },
        { input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }, image] }] },
        {
          input: [
            { type: 'message', role: 'assistant', content: 'Hi' },
            { type: 'item_reference', id: 'msg_1' },
          ],
        },
        {
          input: [
            { type: 'custom_tool_call', call_id: 'c', name: 'f', input: 'x' },
            { type: 'custom_tool_call_output', call_id: 'c', output: 'x' },
          ],
        },
        {
          input: [
            { type: 'mcp_approval_request', id: 'a', server_label: 's', name: 'f', arguments: '{}' },
            { type: 'mcp_approval_response', approval_request_id: 'a', approve: true },
            { type: 'web_search_call', id: 'ws_1', action: { type: 'search' } },
          ],
        },
        { input: 'x', tools: [{ type: 'custom', name: 'f' }], tool_choice: { type: 'custom', name: 'f' } },
        { input: [{ type: 'reasoning', summary: [] }], instructions: [{ role: 'system', content: 'Be brief' }] },
        { input: 'x', tools: [{ type: 'function', name: 'f', parameters: { type: 'object' } }], tool_choice: 'auto' },
        { input: 'x', tools: [{ type: 'mcp', server_label: 'treadle', allowed_tools: ['read'] }] },
        { input: 'x', tools: null, tool_choice: null, text: { format: null } },
        { input: 'x', text: { format: { type: 'json_schema', name: 'a', schema: {} } }, temperature: 2 },
        { input: 'x', reasoning: { effort: 'low' }, include: ['reasoning.encrypted_content'], unknown: 1 },
      ],
      rejected: [
        'text',
        { input: 5 },
        { input: [{ role: 'user', content: [{ type: 'input_text' }] }] },
        { input: [{ role: 'user', content: 7 }] },
        { input: [{ type: 'function_call', call_id: 'c' }] },
        { input: [{ type: 'custom_tool_call', call_id: 'c', name: 'f' }] },
        { input: [{ type: 'mcp_approval_response', approval_request_id: 'a' }] },
        { input: 'x', tools: [{ type: 'custom' }] },
        { input: 'x', tools: [{ type: 'custom', name: 'f', format: { type: 'grammar', syntax: 'lark' } }] },
        { input: 'x', temperature: 3 },
        { input: 'x', max_output_tokens: 1 },
        { input: 'x', tools: [{ name: 'f' }] },
        { input: 'x', tools: {} },
        { input: 'x', tools: [{ type: 'mcp', server_label: 'a', allowed_tools: 5 }] },
        { input: 'x', tool_choice: 'always' },
        { input: 'x', text: { format: { type: 'xml' } } },
        { input: 'x', metadata: { a: 1 } },
        { input: 'x', include: 'all' },
      ],
    },
    '/v1/chat/completions': {
      accepted: [
        { messages: [{ role: 'user', content: 'Hi' }] },
        { messages: [{ role: 'user', content: 'Hi' }], stop: ['a'], response_format: { type: 'json_object' } },
        {
          messages: [
            { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
            { role: 'assistant', content: null, tool_calls: [call] },
            { role: 'tool', tool_call_id: 'c', content: 'x' },
          ],
          tools: [{ type: 'function', function: { name: 'f' } }],
          tool_choice: { type: 'function', function: { name: 'f' } },
        },
        {
          messages: [
            {
              role: 'assistant',
              content: null,
              tool_calls: [{ ...call, type: 'custom', custom: { name: 'f', input: '' } }],
            },
            { role: 'tool', tool_call_id: 'c', content: 'x' },
          ],
          tools: [{ type: 'custom', custom: { name: 'f' } }],
          tool_choice: { type: 'custom', custom: { name: 'f' } },
        },
      ],
      rejected: [
        {},
        { messages: 'Hi' },
        { messages: [{ role: 'robot', content: 'Hi' }] },
        { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 0 },
        { messages: [{ role: 'user', content: 'Hi' }], stop: [5] },
        { messages: [{ role: 'user', content: 'Hi' }], tools: [{ type: 'function', function: {} }] },
      ],
    },
    '/v1/messages': {
      accepted: [
        { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] },
        {
          model: 'm',
          max_tokens: 9,
          system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
          messages: [
            { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
            { role: 'system', content: 'Now.' },
            { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: {} }] },
            { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'x' }] },
          ],
          tools: [{ name: 'f', input_schema: { type: 'object' } }],
          thinking: { type: 'adaptive' },
          context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
          output_config: { effort: 'high' },
        },
        {
          model: 'm',
          max_tokens: 9,
          messages: [{ role: 'user', content: 'Hi' }],
          tools: [{ type: 'mcp_toolset', mcp_server_name: 'treadle' }],
          tool_choice: { type: 'auto', disable_parallel_tool_use: true },
          thread: { type: 'create' },
        },
      ],
      rejected: [
        {},
        { model: 'm', max_tokens: 9 },
        { model: 'm', max_tokens: 0, messages: [{ role: 'user', content: 'Hi' }] },
        { model: 'm', max_tokens: 9, messages: [{ role: 'robot', content: 'Hi' }] },
        { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }], tools: [{ name: 'f' }] },
        { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }], tool_choice: { type: 'always' } },
      ],
    },
    '/v1/chat': {
      accepted: [
        { message: 'Hi', attachments: [{ data: 'aGk=', media_type: 'text/plain' }], tools: [] },
        { message: '', attachments: [{ data: 'aGk=', media_type: 'text/plain' }] },
      ],
      rejected: [{}, { message: 5 }, { message: 'Hi', other: 1 }, { message: 'Hi', tools: 'all' }],
    },
    '/v1/runs/{id}/answers': {
      accepted: [{ answers: [{ type: 'answer', effect: 'e', value: [1] }] }],
      rejected: [{ answers: [{ type: 'answer' }] }, { answers: {} }, { answers: [], other: 1 }],
    },
  };

  const isRejectedByServer = async (path: string, body: unknown): Promise<boolean> => {
    const answer = await fetch(server.url + concrete(path), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    // Other answers, such as that a tool or a response does not exist, are not about the form of the body.
    const isForm =
      /"(?:error_)?code":"(missing_required_parameter|unknown_parameter|invalid_(type|value)|\w+_(above|below)_\w+|invalid_json_body)"/;
    return isForm.test(text);
  };

  test.each(Object.entries(bodies))('%s', async (path, { accepted, rejected }) => {
    const { schema } = document.paths[path]!['post']!.requestBody!.content['application/json']!;
    const described = z.fromJSONSchema(schema as Parameters<typeof z.fromJSONSchema>[0]);
    for (const body of accepted) {
      expect([body, described.safeParse(body).error?.issues[0]]).toEqual([body, undefined]);
      expect([body, await isRejectedByServer(path, body)]).toEqual([body, false]);
    }
    for (const body of rejected) {
      expect([body, described.safeParse(body).success]).toEqual([body, false]);
      expect([body, await isRejectedByServer(path, body)]).toEqual([body, true]);
    }
  });
});

test('names the scope of each route if the server has keys, and needs a key itself', async () => {
  const key = newKey();
  await using withKeys = await startInProcess(scriptedModel([]), { keys: [{ name: 'k', hash: hashKey(key) }] });
  expect(await withKeys.send('GET', '/openapi.json')).toMatchObject({ status: 401 });
  const headers = { authorization: `Bearer ${key}` };
  const { body } = await withKeys.send('GET', '/openapi.json', undefined, headers);
  const { paths, components } = body as Document;
  expect(components['securitySchemes']).toMatchObject({ key: { type: 'http', scheme: 'bearer' } });
  expect(paths['/healthz']!['get']!.security).toBeUndefined();
  // The key has only agents:invoke.
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, { security }] of Object.entries(methods)) {
      if (!security) continue;
      const answer = await fetch(withKeys.url + concrete(path), { method: method.toUpperCase(), headers });
      const text = await answer.text();
      const [scope] = (security[0] as { key: readonly string[] }).key;
      const isAllowed = scope === undefined || scope === 'agents:invoke';
      expect([path, method, text.includes(`lacks the scope \\"${scope}\\"`)]).toEqual([path, method, !isAllowed]);
    }
  }
  // So do fields that need a further scope.
  const scoped = Object.entries(paths).filter(([, { post }]) => post?.description !== undefined);
  expect(scoped.map(([path]) => path)).toEqual([
    '/v1/responses',
    '/v1/responses/compact',
    '/v1/responses/input_tokens',
    '/v1/chat',
  ]);
  for (const [path, { post }] of scoped) {
    const [, field = '', scope] = /`(\w+)` also needs the scope `([\w:]+)`/.exec(post!.description!)!;
    // The key may not chat at all. run-options.test.ts has one that may.
    if (path === '/v1/chat') continue;
    const request = { model: 'm', input: 'Hi', [field]: 'conv_0' };
    expect([path, await withKeys.send('POST', path, request, headers)]).toMatchObject([
      path,
      { status: 403, body: { error: { message: `The key "k" lacks the scope "${scope}".` } } },
    ]);
  }
});
