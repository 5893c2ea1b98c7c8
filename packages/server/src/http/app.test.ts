import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { manualClock } from '@treadle/core/testing';
import { HTTPException } from 'hono/http-exception';
import { describe, expect, test } from 'vitest';
import { getRoute, postRoute, served, type Served } from '../../test/served.ts';
import { ApiError } from '../api-error.ts';
import type { ServerOptions } from './server.ts';
import { readJson } from './body.ts';
import { hashKey, newKey, type ApiKey } from './keys.ts';

type Routes = ServerOptions['routes'];

/** Routes that return the caller, as JSON and as a stream. */
const whoami: Routes = [
  getRoute(
    '/v1/me',
    (c) => {
      const { tenant, key, scopes, requestId } = c.get('caller');
      return c.json({ tenant, key, scopes, requestId });
    },
    { scope: 'agents:invoke' },
  ),
  getRoute('/v1/stream', (c) => {
    c.env.outgoing.writeHead(200, { 'Content-Type': 'text/event-stream' }).end('data: {}\n\n');
    return RESPONSE_ALREADY_SENT;
  }),
];

const get = (at: Served, path: string, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(at.url + path, { headers });

const bearer = (key: string): Record<string, string> => ({ authorization: `Bearer ${key}` });

/** `fetch` does not let a test set the Host header. */
async function withHost(at: Served, path: string, host: string, more = ''): Promise<{ status: number; body: string }> {
  await using connection = await at.connect();
  connection.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`);
  return await connection.answer();
}

describe('a request', () => {
  test('has the id from its header in the response, in the log and for the routes', async () => {
    await using at = await served({ routes: whoami });
    for (const path of ['/v1/me', '/v1/stream', '/nowhere', '/healthz'])
      expect((await get(at, path, { 'x-request-id': 'mine:1.2_3-4' })).headers.get('x-request-id')).toBe(
        'mine:1.2_3-4',
      );
    expect(await (await get(at, '/v1/me', { 'x-request-id': 'five' })).json()).toMatchObject({ requestId: 'five' });
    const lines = await at.requests(5);
    expect(lines.map(({ requestId }) => requestId)).toEqual([
      ...Array.from({ length: 4 }, () => 'mine:1.2_3-4'),
      'five',
    ]);
  });

  test.each(['', 'a b', 'x'.repeat(129), 'é', '<script>', '{"level":"fatal"}'])(
    'with the invalid id %j gets a new id',
    async (id) => {
      await using at = await served({ routes: whoami });
      const answer = await get(at, '/v1/me', { 'x-request-id': id });
      const made = answer.headers.get('x-request-id');
      expect(made).toMatch(/^req_[0-9a-f]{32}$/);
      expect(await answer.json()).toMatchObject({ requestId: made });
    },
  );

  test('is one line in the log, without the query', async () => {
    await using at = await served({ routes: whoami, clock: manualClock() });
    await get(at, '/v1/me?api_key=hidden#x', { 'x-request-id': 'r1' });
    await get(at, '/v1/stream', { 'x-request-id': 'r2' });
    await get(at, '/healthz', { 'x-request-id': 'r3' });
    const caller = { tenant: 'default', key: '' };
    const line = (more: object): unknown => ({
      level: 'info',
      time: expect.any(String),
      msg: 'request',
      method: 'GET',
      status: 200,
      ms: 0,
      ...more,
    });
    expect(await at.requests(3)).toEqual([
      line({ path: '/v1/me', requestId: 'r1', ...caller }),
      line({ path: '/v1/stream', requestId: 'r2', ...caller }),
      line({ path: '/healthz', requestId: 'r3', level: 'debug' }),
    ]);
    expect(at.lines.join('')).not.toContain('hidden');
  });
});

describe('keys', () => {
  const [one, two, toolsOnly] = [newKey(), newKey(), newKey()];
  const keys: readonly ApiKey[] = [
    { name: 'one', hash: hashKey(one), tenant: 'acme', scopes: ['agents:invoke', 'tools:execute'] },
    { name: 'two', hash: hashKey(two), tenant: 'other' },
    { name: 'tools', hash: hashKey(toolsOnly), scopes: ['tools:execute'] },
  ];
  const denied = (message: string): unknown => ({
    error: {
      message: expect.stringContaining(message),
      type: 'authentication_error',
      param: null,
      code: 'invalid_api_key',
    },
  });

  test('determine the tenant and the scopes', async () => {
    await using at = await served({ routes: whoami, keys });
    expect(await (await get(at, '/v1/me', bearer(one))).json()).toMatchObject({
      tenant: 'acme',
      key: 'one',
      scopes: ['agents:invoke', 'tools:execute'],
    });
    const expected = { tenant: 'other', key: 'two', scopes: ['agents:invoke'] };
    expect(await (await get(at, '/v1/me', bearer(two))).json()).toMatchObject(expected);
    expect(await (await get(at, '/v1/me', { 'x-api-key': two })).json()).toMatchObject(expected);
    expect(await (await get(at, '/v1/me', { 'api-key': two })).json()).toMatchObject(expected);
    const lines = await at.requests(4);
    expect(lines.map(({ tenant, key }) => `${String(tenant)} ${String(key)}`)).toEqual([
      'acme one',
      'other two',
      'other two',
      'other two',
    ]);
  });

  test('that are wrong get a 401 on every path, also if they differ in one character', async () => {
    await using at = await served({ routes: whoami, keys });
    const wrong = [
      one.slice(0, -1),
      `${one}x`,
      one.toUpperCase(),
      hashKey(one),
      hashKey(one).slice(7),
      'tk_',
      newKey(),
    ];
    for (const key of wrong) {
      const answer = await get(at, '/v1/me', bearer(key));
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toBe('Bearer realm="treadle"');
      expect(await answer.json()).toEqual(denied('is not valid for this server'));
    }
    for (const path of ['/v1/me', '/v1/unknown', '/page', '/v1/stream', '/healthz/../v1/me', '/readyz/x']) {
      const answer = await get(at, path);
      expect(answer.status).toBe(401);
      expect(await answer.json()).toEqual(denied('"Authorization: Bearer <key>"'));
    }
  });

  test('without the scope get a 403 that names it', async () => {
    await using at = await served({ routes: whoami, keys });
    const answer = await get(at, '/v1/me', bearer(toolsOnly));
    expect(answer.status).toBe(403);
    expect(await answer.json()).toEqual({
      error: {
        message: 'The key "tools" lacks the scope "agents:invoke".',
        type: 'permission_error',
        param: null,
        code: 'insufficient_scope',
      },
    });
  });

  test('are not needed for /healthz and /readyz', async () => {
    await using at = await served({ keys });
    expect((await get(at, '/healthz')).status).toBe(200);
    expect((await get(at, '/readyz')).status).toBe(200);
  });

  test('allow any Host header', async () => {
    await using at = await served({ routes: whoami, keys });
    expect((await withHost(at, '/v1/me', 'api.example', `Authorization: Bearer ${one}\r\n`)).status).toBe(200);
  });

  test('and bodies never appear in the log or in an error', async () => {
    const secret = 'my-own-secret-phrase';
    await using at = await served({
      keys: [...keys, { name: 'own', hash: hashKey(secret) }],
      limits: { requestsPerMinutePerAddress: 100 },
      routes: [
        ...whoami,
        postRoute('/v1/body', async (c) => c.json((await readJson(c, 10_000)) as object)),
        postRoute('/v1/fail', async (c) => {
          await readJson(c, 10_000);
          throw new Error(`the provider said: Incorrect API key sk-${one}, sent as Bearer ${one}`, {
            cause: Object.assign(new Error('x'), { headers: c.req.header() }),
          });
        }),
      ],
    });
    let answers = '';
    for (const key of [one, two, toolsOnly, secret, `${one}x`, newKey(), 'nonsense-key']) {
      for (const header of [
        `Authorization: Bearer ${key}`,
        `x-api-key: ${key}`,
        `api-key: ${key}`,
        `Authorization: ${key}`,
      ]) {
        await using connection = await at.connect();
        const request = (method: string, path: string, body = ''): string =>
          `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${header}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
        connection.write(request('GET', `/v1/me?key=${key}`));
        connection.write(request('PUT', '/v1/me'));
        connection.write(request('GET', '/v1/nowhere'));
        connection.write(request('POST', '/v1/fail', JSON.stringify({ said: secret })));
        connection.write(request('POST', '/v1/body', `{"said": ${secret}`));
        for (let count = 0; count < 5; count += 1) answers += JSON.stringify(await connection.answer());
        connection.write(`GET / HTTP/1.1\r\nHost: localhost\r\n${header}\r\nbad header ${key}\r\n\r\n`);
        answers += await connection.closed();
      }
    }
    const log = at.lines.join('');
    expect(log).toContain('a request failed unexpectedly');
    expect(log).toContain('unreadable request');
    for (const text of [log, answers])
      for (const key of [one, two, toolsOnly, secret, 'nonsense-key']) {
        expect(text).not.toContain(key);
        expect(text).not.toContain(key.slice(3, 15));
        expect(text).not.toContain(hashKey(key).slice(7));
      }
    expect(answers).not.toContain('provider');
  });
});

describe('without keys', () => {
  test('every client on this machine has all scopes, whatever key it sends', async () => {
    await using at = await served({ routes: whoami });
    expect(await (await get(at, '/v1/me', bearer('anything'))).json()).toMatchObject({
      tenant: 'default',
      key: '',
      scopes: [
        'agents:invoke',
        'agents:write',
        'tools:execute',
        'runs:read',
        'runs:write',
        'chat:read',
        'chat:write',
        'metrics:read',
        'logs:read',
        'memory:read',
        'memory:write',
      ],
    });
  });

  test('a page whose host name resolves to this machine gets a 403', async () => {
    await using at = await served({ routes: whoami });
    expect((await withHost(at, '/v1/me', `localhost:${at.port}`)).status).toBe(200);
    const { status, body } = await withHost(at, '/v1/me', `evil.example:${at.port}`);
    expect(status).toBe(403);
    expect(JSON.parse(body)).toMatchObject({ error: { type: 'permission_error', code: 'not_local' } });
    expect((await withHost(at, `http://localhost/v1/me`, 'evil.example')).status).toBe(403);
  });

  test('a page of another origin gets a 403, a page of the same origin does not', async () => {
    await using at = await served({ routes: whoami });
    expect((await get(at, '/v1/me', { origin: 'https://evil.example' })).status).toBe(403);
    expect((await get(at, '/v1/me', { origin: at.url })).status).toBe(200);
  });
});

describe('rate limits', () => {
  const [one, two] = [newKey(), newKey()];
  const keys: readonly ApiKey[] = [
    { name: 'one', hash: hashKey(one) },
    { name: 'two', hash: hashKey(two), requestsPerMinute: 120 },
  ];

  test('apply to each key, and every response has the remaining quota', async () => {
    const clock = manualClock();
    await using at = await served({ routes: whoami, keys, clock, limits: { requestsPerMinute: 2 } });
    const first = await get(at, '/v1/stream', bearer(one));
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'ratelimit-policy': '"requests";q=2;w=60',
      ratelimit: '"requests";r=1;t=30',
      'x-ratelimit-limit-requests': '2',
      'x-ratelimit-remaining-requests': '1',
      'x-ratelimit-reset-requests': '30s',
    });
    expect(first.headers.has('retry-after')).toBe(false);
    expect((await get(at, '/v1/nowhere', bearer(one))).headers.get('ratelimit')).toBe('"requests";r=0;t=60');
    const refused = await get(at, '/v1/me', bearer(one));
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('30');
    expect(refused.headers.get('ratelimit')).toBe('"requests";r=0;t=60');
    expect(await refused.json()).toEqual({
      error: {
        message: expect.stringContaining('more than 2 requests in a minute') as string,
        type: 'rate_limit_error',
        param: null,
        code: 'rate_limit_exceeded',
      },
    });
    expect((await get(at, '/v1/me', bearer(two))).headers.get('ratelimit')).toBe('"requests";r=119;t=1');
    await clock.advance(30_000);
    expect((await get(at, '/v1/me', bearer(one))).status).toBe(200);
  });

  test('apply to each address if there is no valid key', async () => {
    await using at = await served({
      routes: whoami,
      keys,
      limits: { requestsPerMinutePerAddress: 1 },
      clock: manualClock(),
    });
    expect((await get(at, '/v1/me', bearer('wrong'))).status).toBe(401);
    expect((await get(at, '/v1/me', bearer('wrong'))).status).toBe(429);
    const good = await get(at, '/v1/me', bearer(one));
    expect(good.status).toBe(200);
    expect(good.headers.has('ratelimit')).toBe(false);
    await using open = await served({
      routes: whoami,
      limits: { requestsPerMinutePerAddress: 1 },
      clock: manualClock(),
    });
    expect((await get(open, '/v1/me')).status).toBe(200);
    expect((await get(open, '/v1/me')).status).toBe(429);
    expect((await get(open, '/healthz')).status).toBe(200);
  });
});

describe('errors', () => {
  const routes: Routes = [
    getRoute('/v1/api-error', () => {
      throw new ApiError(418, 'invalid_request_error', 'No.', {
        param: 'input',
        code: 'teapot',
        headers: { 'x-a': 'b' },
      });
    }),
    getRoute('/v1/error', () => {
      throw new Error('internal detail');
    }),
    getRoute('/v1/string', () => {
      throw 'internal detail';
    }),
    getRoute('/v1/null', async () => {
      throw null;
    }),
    getRoute('/v1/exception', () => {
      throw new HTTPException(400, { message: 'internal detail' });
    }),
    getRoute('/v1/cycle', (c) => {
      const cycle: Record<string, unknown> = { internal: 'detail' };
      cycle['self'] = cycle;
      return c.json(cycle as object);
    }),
    getRoute('/v1/nothing', (() => undefined) as unknown as () => Response),
    getRoute('/v1/body-breaks', () => {
      const broken = new ReadableStream({ pull: (controller) => controller.error(new Error('internal detail')) });
      return new Response(broken);
    }),
    getRoute('/v1/mid-stream', ({ env: { outgoing } }) => {
      outgoing.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: 1\n\n');
      throw new Error('internal detail');
    }),
    getRoute('/v1/things/:id', (c) => c.json({})),
    { ...getRoute('/v1/things/:id', (c) => c.json({})), method: 'DELETE' },
    postRoute('/v1/things', (c) => c.json({})),
  ];

  test('of the routes are sent as they are thrown', async () => {
    await using at = await served({ routes });
    const answer = await get(at, '/v1/api-error');
    expect(answer.status).toBe(418);
    expect(answer.headers.get('x-a')).toBe('b');
    expect(answer.headers.get('content-type')).toBe('application/json');
    expect(await answer.json()).toEqual({
      error: { message: 'No.', type: 'invalid_request_error', param: 'input', code: 'teapot' },
    });
    expect(at.logged('a request failed unexpectedly')).toEqual([]);
  });

  test.each(['error', 'string', 'null', 'exception', 'cycle', 'nothing', 'body-breaks'])(
    'that are unexpected (%s) are a 500 with the request id; the cause is only in the log',
    async (path) => {
      await using at = await served({ routes });
      const answer = await get(at, `/v1/${path}`, { 'x-request-id': 'the-id' });
      expect(answer.status).toBe(500);
      expect(await answer.json()).toEqual({
        error: {
          message: 'The server failed to process this request. Its log has the reason, with the request id the-id.',
          type: 'server_error',
          param: null,
          code: 'internal_error',
        },
      });
      const [line] = at.logged('a request failed unexpectedly');
      expect(line).toMatchObject({ level: 'error', requestId: 'the-id' });
      if (!['null', 'cycle', 'nothing'].includes(path)) expect(JSON.stringify(line)).toContain('internal detail');
      expect(await at.requests(1)).toMatchObject([{ level: 'error', status: 500 }]);
    },
  );

  test('in the middle of a stream close the connection and write nothing into the stream', async () => {
    await using at = await served({ routes });
    await using connection = await at.connect();
    connection.write('GET /v1/mid-stream HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const all = await connection.closed();
    expect(all).not.toContain('internal');
    expect(all).not.toContain('error');
    expect(all.endsWith('0\r\n\r\n')).toBe(false);
    expect(await at.requests(1)).toMatchObject([{ aborted: true }]);
    expect(JSON.stringify(at.logged('a request failed unexpectedly'))).toContain('internal detail');
  });

  test('are a 404 for an unknown path, with or without a trailing slash', async () => {
    await using at = await served({ routes });
    const answer = await fetch(`${at.url}/v1/thinks?x=1`, { method: 'POST' });
    expect(answer.status).toBe(404);
    expect(await answer.json()).toEqual({
      error: {
        message: 'This server has no route POST /v1/thinks.',
        type: 'not_found_error',
        param: null,
        code: 'unknown_url',
      },
    });
    expect((await fetch(`${at.url}/v1/things/`, { method: 'POST' })).status).toBe(200);
  });

  test('are a 405 with the allowed methods for a wrong method', async () => {
    await using at = await served({ routes });
    for (const [path, method, allow] of [
      ['/v1/things', 'GET', 'POST'],
      ['/v1/things/7', 'POST', 'GET, HEAD, DELETE'],
      ['/healthz', 'DELETE', 'GET, HEAD'],
    ] as const) {
      const answer = await fetch(at.url + path, { method });
      expect(answer.status).toBe(405);
      expect(answer.headers.get('allow')).toBe(allow);
      expect(await answer.json()).toEqual({
        error: {
          message: `${path} supports ${allow}, not ${method}.`,
          type: 'invalid_request_error',
          param: null,
          code: 'method_not_allowed',
        },
      });
    }
  });

  test('are a 400 for an invalid URL or host', async () => {
    await using at = await served({ routes });
    for (const [target, host] of [
      ['/v1/things', 'local host'],
      ['/v1\\things', 'localhost'],
      ['*', 'localhost'],
      ['http://[/', 'localhost'],
    ] as const) {
      const { status, body } = await withHost(at, target, host);
      expect(status).toBe(400);
      expect(JSON.parse(body)).toMatchObject({ error: { type: 'invalid_request_error' } });
    }
  });

  test('answers HEAD like GET, without the body', async () => {
    await using at = await served({ routes });
    await using connection = await at.connect();
    connection.write(
      'HEAD /v1/error HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n',
    );
    expect(await connection.answer()).toMatchObject({ status: 500, body: '' });
    expect(await connection.answer()).toMatchObject({ status: 200, body: '{"status":"ok"}' });
  });
});

describe('web pages', () => {
  const routes = whoami;
  const preflight = (at: Served, origin: string): Promise<Response> =>
    fetch(`${at.url}/v1/me`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization, content-type, x-stainless-lang',
      },
    });
  const key = newKey();
  const keys = [{ name: 'page', hash: hashKey(key) }];

  test('get no CORS headers by default', async () => {
    await using at = await served({ routes, keys });
    for (const answer of [
      await preflight(at, 'https://app.example'),
      await get(at, '/v1/me', { origin: 'https://app.example', ...bearer(key) }),
    ])
      expect([...answer.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
  });

  test('of a listed origin may call with a key, and read streams and errors', async () => {
    await using at = await served({ routes, keys, cors: ['https://app.example'] });
    const asked = await preflight(at, 'https://app.example');
    expect(asked.status).toBe(204);
    expect(Object.fromEntries(asked.headers)).toMatchObject({
      'access-control-allow-origin': 'https://app.example',
      'access-control-allow-methods': 'GET, POST, DELETE',
      'access-control-allow-headers': 'authorization, content-type, x-stainless-lang',
      'access-control-max-age': '600',
      vary: 'Origin',
    });
    expect(asked.headers.has('access-control-allow-credentials')).toBe(false);
    for (const [path, headers, status] of [
      ['/v1/me', bearer(key), 200],
      ['/v1/stream', bearer(key), 200],
      ['/v1/me', {}, 401],
      ['/v1/nowhere', bearer(key), 404],
    ] as const) {
      const answer = await get(at, path, { ...headers, origin: 'https://app.example' });
      expect(answer.status).toBe(status);
      expect(answer.headers.get('access-control-allow-origin')).toBe('https://app.example');
      expect(answer.headers.get('access-control-expose-headers')).toContain('x-request-id');
    }
  });

  test('of other origins get no CORS headers', async () => {
    await using at = await served({ routes, keys, cors: ['https://app.example'] });
    for (const origin of ['https://app.example.evil', 'http://app.example', 'https://app.example:444', 'null']) {
      const asked = await preflight(at, origin);
      expect(asked.status).toBe(401);
      expect(asked.headers.has('access-control-allow-origin')).toBe(false);
      expect(asked.headers.get('vary')).toBe('Origin');
    }
  });

  test('of a listed origin may use a server without keys', async () => {
    await using at = await served({ routes, cors: ['https://app.example'] });
    expect((await get(at, '/v1/me', { origin: 'https://app.example' })).status).toBe(200);
    expect((await get(at, '/v1/me', { origin: 'https://evil.example' })).status).toBe(403);
  });

  test.each([
    [['*'], 'lets every web page use a server without keys'],
    [['https://app.example/'], 'is not an origin'],
    [['app.example'], 'is not an origin'],
    [['https://app.example/path'], 'is not an origin'],
  ])('cannot be allowed as %j', async (cors, message) => {
    await expect(served({ cors })).rejects.toThrow(message);
  });
});

describe('a key', () => {
  test('that has expired is rejected', async () => {
    const clock = manualClock();
    const keys = [{ name: 'a', hash: hashKey('k'), expiresAt: clock.now() + 1_000 }];
    await using at = await served({ routes: whoami, keys, clock });
    expect((await get(at, '/v1/me', bearer('k'))).status).toBe(200);
    await clock.advance(1_000);
    const answer = await get(at, '/v1/me', bearer('k'));
    expect(answer.status).toBe(401);
    expect(await answer.json()).toMatchObject({
      error: { code: 'invalid_api_key', message: 'The API key has expired.' },
    });
  });

  test('is limited to its number of requests in progress', async () => {
    const release = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    const keys = [
      { name: 'a', hash: hashKey('k'), maxConcurrentRequests: 1 },
      { name: 'b', hash: hashKey('l') },
    ];
    const routes: Routes = [
      ...whoami,
      getRoute('/v1/wait', async (c) => {
        arrived.resolve();
        await release.promise;
        return c.json({});
      }),
    ];
    await using at = await served({ routes, keys });
    const first = get(at, '/v1/wait', bearer('k'));
    await arrived.promise;
    const second = await get(at, '/v1/me', bearer('k'));
    expect(second.status).toBe(429);
    expect(second.headers.get('retry-after')).toBe('2');
    expect(await second.json()).toMatchObject({ error: { code: 'too_many_requests' } });
    expect((await get(at, '/v1/me', bearer('l'))).status).toBe(200);
    release.resolve();
    expect((await first).status).toBe(200);
    await at.requests(3);
    expect((await get(at, '/v1/me', bearer('k'))).status).toBe(200);
  });
});

test('a request with two Host headers gets a 400', async () => {
  await using at = await served({ routes: whoami });
  const { status, body } = await withHost(at, '/v1/me', 'localhost', 'host: localhost\r\n');
  expect(status).toBe(400);
  expect(JSON.parse(body)).toMatchObject({ error: { code: 'invalid_request' } });
});

describe('health', () => {
  test('reports alive and ready', async () => {
    await using at = await served();
    for (const path of ['/healthz', '/readyz']) {
      const answer = await get(at, path);
      expect(answer.status).toBe(200);
      expect(await answer.json()).toEqual({ status: 'ok' });
    }
  });

  test('reports alive but not ready while the store fails, and ready again afterwards', async () => {
    let broken = true;
    await using at = await served({
      ready: async () => {
        if (broken) throw new Error('SQLITE_CORRUPT in a file');
      },
    });
    const answer = await get(at, '/readyz');
    expect(answer.status).toBe(503);
    expect(await answer.json()).toEqual({ status: 'unavailable', reason: 'The store cannot be written.' });
    expect((await get(at, '/healthz')).status).toBe(200);
    expect(JSON.stringify(at.logged('not ready: the store cannot be written'))).toContain('SQLITE_CORRUPT');
    broken = false;
    expect((await get(at, '/readyz')).status).toBe(200);
  });

  test('reports not ready if the store throws synchronously', async () => {
    await using at = await served({
      ready: () => {
        throw new Error('closed');
      },
    });
    expect((await get(at, '/readyz')).status).toBe(503);
  });

  test('checks a store that hangs once, and does not wait for it', async () => {
    const clock = manualClock();
    const asked = Promise.withResolvers<void>();
    let count = 0;
    await using at = await served({
      clock,
      ready: () => {
        count += 1;
        asked.resolve();
        return new Promise<void>(() => undefined);
      },
    });
    await using one = await at.connect();
    await using other = await at.connect();
    for (const connection of [one, other]) connection.write('GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await asked.promise;
    // Answered after both requests have arrived.
    expect((await get(at, '/healthz')).status).toBe(200);
    await clock.advance(2_000);
    expect((await one.answer()).status).toBe(503);
    expect((await other.answer()).status).toBe(503);
    expect(count).toBe(1);
  });
});

test('does not replace the global Request and Response', async () => {
  const before = [globalThis.Request, globalThis.Response];
  await using at = await served({ routes: whoami });
  expect((await get(at, '/v1/me')).status).toBe(200);
  expect([globalThis.Request, globalThis.Response]).toEqual(before);
});
