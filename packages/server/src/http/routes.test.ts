import { describe, expect, test } from 'vitest';
import { getRoute, postRoute, served } from '../../test/served.ts';
import { readJson } from './body.ts';
import { hashKey, type ApiKey } from './keys.ts';
import { route, routePattern } from './routes.ts';

test('a route without a scope, or with one that does not exist, does not compile', () => {
  const rest = { method: 'GET', path: '/v1/things/:id', summary: 'Get a thing' } as const;
  // @ts-expect-error: the scope is missing
  route({ ...rest, handle: (c) => c.json({}) });
  // @ts-expect-error: there is no such scope
  route({ ...rest, scope: 'things:read', handle: (c) => c.json({}) });
  // @ts-expect-error: a scope that may be undefined is none
  route({ ...rest, scope: undefined, handle: (c) => c.json({}) });
  const nameOf = (text: string): object => ({ text });
  // @ts-expect-error: the path has no such parameter
  route({ ...rest, scope: 'any-key', handle: (c) => c.json(nameOf(c.req.param('name'))) });
  const { scope } = route({ ...rest, scope: 'runs:read', handle: (c) => c.json(nameOf(c.req.param('id'))) });
  expect(scope).toBe('runs:read');
});

test('the pattern of a path names its parameters as OpenAPI does', () => {
  expect(
    ['/v1/runs', '/v1/runs/:id/events', '/v1/models/:id{.+}', '/chat/:id{conv_[\\w-]+}/x'].map(routePattern),
  ).toEqual(['/v1/runs', '/v1/runs/{id}/events', '/v1/models/{id}', '/chat/{id}/x']);
});

describe('the scope of a route', () => {
  const key = (name: string, ...scopes: NonNullable<ApiKey['scopes']>): ApiKey => ({
    name,
    hash: hashKey(name),
    scopes,
  });
  const keys = [key('invoke', 'agents:invoke'), key('runs', 'runs:read'), key('metrics', 'metrics:read')];
  const as = (name: string): Record<string, string> => (name === '' ? {} : { authorization: `Bearer ${name}` });

  test('decides which keys may use it, and is checked before the handler', async () => {
    const handled: string[] = [];
    const scoped = (['open', 'any-key', 'agents:invoke', 'metrics:read'] as const).map((scope) =>
      getRoute(`/${scope}`, (c) => (handled.push(scope), c.json({})), { scope }),
    );
    await using at = await served({ keys, routes: scoped });
    const statuses: Record<string, number[]> = {};
    for (const name of ['', 'invoke', 'runs', 'metrics']) {
      statuses[name] = [];
      for (const { path } of scoped) {
        const answer = await fetch(at.url + path, { headers: as(name) });
        statuses[name].push(answer.status);
        await answer.text();
      }
    }
    expect(statuses).toEqual({
      '': [200, 401, 401, 401],
      invoke: [200, 200, 200, 403],
      runs: [200, 200, 403, 403],
      metrics: [200, 403, 403, 200],
    });
    expect(handled).toHaveLength(8);
    const refused = (await at.requests(16)).filter(({ status }) => status === 403);
    expect(refused.map((line) => line['key'])).toEqual(['invoke', 'runs', 'runs', 'metrics', 'metrics']);
  });

  test('is checked after the key, and before the body', async () => {
    const echo = postRoute('/v1/echo', async (c) => c.json({ read: await readJson(c, 10) }), { scope: 'chat:write' });
    await using at = await served({ keys, routes: [echo] });
    const send = async (name: string): Promise<unknown> => {
      const answer = await fetch(`${at.url}/v1/echo`, { method: 'POST', body: 'x'.repeat(20), headers: as(name) });
      return ((await answer.json()) as { readonly error: { readonly message: string } }).error.message;
    };
    expect(await send('')).toContain('The request has no API key.');
    expect(await send('wrong')).toBe('The API key is not valid for this server.');
    expect(await send('metrics')).toBe('The key "metrics" has no scope for anything but /metrics.');
    expect(await send('runs')).toBe('The key "runs" lacks the scope "chat:write".');
  });

  test('is not needed to learn that there is no route', async () => {
    await using at = await served({ keys, routes: [getRoute('/v1/me', (c) => c.json({}), { scope: 'chat:read' })] });
    const status = async (path: string, method: string, name: string): Promise<number> =>
      (await fetch(at.url + path, { method, headers: as(name) })).status;
    expect(await status('/v1/other', 'GET', 'invoke')).toBe(404);
    expect(await status('/v1/me', 'DELETE', 'invoke')).toBe(405);
    expect(await status('/v1/me', 'HEAD', 'invoke')).toBe(403);
    expect(await status('/v1/other', 'GET', 'metrics')).toBe(403);
    expect(await status('/v1/other', 'GET', '')).toBe(401);
  });
});
