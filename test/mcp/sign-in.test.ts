import { memorySecrets, type Secrets } from '@treadle/store';
import {
  isSignedIn,
  McpError,
  signIn,
  signInFetch,
  signOut,
  type SignInBrowser,
  type SignInOptions,
} from '@treadle/tools/mcp';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { protectedServer, type ProtectedServer } from './protected-server.ts';

let server: ProtectedServer;
let base: string;
beforeAll(async () => {
  server = await protectedServer();
  ({ base } = server);
});
afterAll(() => server.close());
beforeEach(() => {
  Object.assign(server, { issued: 0, registrations: 0, accepted: undefined, refresh: undefined, gate: undefined });
  Object.assign(server, { log: [], received: [], authorizationServer: () => base });
});

/** A person who agrees. `callback` changes the query that comes back. */
function person(callback: (params: URLSearchParams) => void = () => {}): SignInBrowser & { readonly shown: URL[] } {
  const shown: URL[] = [];
  return {
    shown,
    redirectUrl: 'http://127.0.0.1:1/callback',
    async authorize(url) {
      shown.push(url);
      const params = new URLSearchParams({ code: 'code', state: url.searchParams.get('state')! });
      callback(params);
      return params;
    },
  };
}

const options = (secrets: Secrets, more: Partial<SignInOptions> = {}): SignInOptions => ({
  name: 'docs',
  url: `${base}/mcp`,
  secrets,
  ...more,
});
const post = (send: typeof fetch): Promise<Response> => send(`${base}/mcp`, { method: 'POST', body: 'hello' });

test('registers, signs in with PKCE, and sends the request again', async () => {
  const browser = person();
  const secrets = memorySecrets();
  const response = await post(signInFetch(options(secrets, { browser })));
  expect(await response.json()).toEqual({ echoed: 'hello' });
  expect(server.received).toEqual([undefined, 'token-1']);
  expect(Object.fromEntries(browser.shown[0]!.searchParams)).toMatchObject({
    client_id: 'client-1',
    code_challenge_method: 'S256',
    redirect_uri: 'http://127.0.0.1:1/callback',
    resource: `${base}/mcp`,
    scope: 'tools',
  });
  expect(browser.shown[0]!.searchParams.get('state')!.length).toBeGreaterThan(30);
  expect(await isSignedIn(options(secrets))).toBe(true);
});

test('rejects a callback with another state, or with none, and uses no code of it', async () => {
  for (const change of [
    (params: URLSearchParams) => params.set('state', 'x'.repeat(43)),
    (params: URLSearchParams) => params.delete('state'),
  ]) {
    const send = signInFetch(options(memorySecrets(), { browser: person(change) }));
    await expect(post(send)).rejects.toThrow(/does not belong to this sign-in/);
  }
  expect(server.log.filter((line) => line.startsWith('POST /token'))).toEqual([]);
});

test('another process uses the tokens, and renews them without a person', async () => {
  const secrets = memorySecrets();
  await post(signInFetch(options(secrets, { browser: person() })));
  server.log = [];
  server.accepted = 'expired';
  const response = await post(signInFetch(options(secrets)));
  expect(response.status).toBe(200);
  expect(server.received.slice(-2)).toEqual(['token-1', 'token-2']);
  expect(server.log.at(-1)).toBe('POST /token refresh_token');
  expect(server.log.filter((line) => line.includes('well-known'))).toHaveLength(2);
});

test('requests that are rejected together renew the token once', async () => {
  const secrets = memorySecrets();
  await post(signInFetch(options(secrets, { browser: person() })));
  server.accepted = 'expired';
  const held = Promise.withResolvers<void>();
  server.gate = held.promise;
  const send = signInFetch(options(secrets));
  const all = Array.from({ length: 4 }, () => post(send));
  await expect.poll(() => server.received.length, { interval: 1 }).toBe(6);
  held.resolve();
  expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(server.issued).toBe(2);
});

test('a process whose token another one has renewed uses that', async () => {
  const secrets = memorySecrets();
  await post(signInFetch(options(secrets, { browser: person() })));
  const before = await secrets.get(`mcp docs ${base}/mcp`);
  server.accepted = 'expired';
  await post(signInFetch(options(secrets)));
  // Sees the old tokens until it has failed to renew them.
  let reads = 0;
  const late: Secrets = { ...secrets, get: async (name) => (reads++ < 5 ? before : secrets.get(name)) };
  expect((await post(signInFetch(options(late)))).status).toBe(200);
});

test('without a person, says what to do', async () => {
  const secrets = memorySecrets();
  const send = signInFetch(options(secrets));
  await expect(post(send)).rejects.toThrow(
    new McpError('unauthorized', 'The MCP server "docs" needs you to sign in. Run: treadle mcp login docs'),
  );
  await post(signInFetch(options(secrets, { browser: person() })));
  Object.assign(server, { accepted: 'revoked', refresh: 'revoked' });
  await expect(post(send)).rejects.toThrow(/needs you to sign in. Run: treadle mcp login docs/);
  expect(server.registrations).toBe(1);
});

test('a request is authorized once: a server that never accepts gets no third one', async () => {
  const browser = person();
  const send = signInFetch(
    options(memorySecrets(), {
      browser,
      fetch: async (input, init) => {
        server.accepted = undefined;
        return fetch(input, init);
      },
    }),
  );
  expect((await post(send)).status).toBe(401);
  expect(server.received).toHaveLength(2);
  expect(browser.shown).toHaveLength(1);
});

test('credentials of one authorization server are not sent to another', async () => {
  const secrets = memorySecrets();
  await post(signInFetch(options(secrets, { browser: person() })));
  Object.assign(server, { accepted: 'moved', log: [] });
  server.authorizationServer = () => `${base}/second`;
  const browser = person();
  expect((await post(signInFetch(options(secrets, { browser })))).status).toBe(200);
  expect(server.log.slice(-2)).toEqual(['POST /second/register', 'POST /second/token authorization_code']);
  expect(browser.shown[0]!.searchParams.get('client_id')).toBe('client-2');
  const stored = JSON.parse((await secrets.get(`mcp docs ${base}/mcp`))!) as { issuers: object; current: string };
  expect([Object.keys(stored.issuers), stored.current]).toEqual([[base, `${base}/second`], `${base}/second`]);
});

test('sends no token to another origin or URL, and leaves a given one alone', async () => {
  const secrets = memorySecrets();
  await post(signInFetch(options(secrets, { browser: person() })));
  const headers: Headers[] = [];
  const send = signInFetch(
    options(secrets, {
      fetch: async (_, init) => {
        headers.push(new Headers(init?.headers));
        return new Response();
      },
    }),
  );
  await send('http://127.0.0.2/mcp');
  await send(`${base}/mcp`, { headers: { authorization: 'Bearer mine' } });
  await send(`${base}/mcp`);
  expect(headers.map((one) => one.get('authorization'))).toEqual([null, 'Bearer mine', 'Bearer token-1']);
  expect(await isSignedIn({ ...options(secrets), url: `${base}/other` })).toBe(false);
});

test('a public server cannot make it ask a private address', async () => {
  const metadata = `http://127.0.0.1:${new URL(base).port}/.well-known/oauth-protected-resource/mcp`;
  const send = signInFetch({
    name: 'docs',
    url: 'https://8.8.8.8/mcp',
    secrets: memorySecrets(),
    browser: person(),
    fetch: async () =>
      new Response('', { status: 401, headers: { 'www-authenticate': `Bearer resource_metadata="${metadata}"` } }),
  });
  await expect(send('https://8.8.8.8/mcp', { method: 'POST', body: '{}' })).rejects.toThrow(/not a public address/);
  expect(server.log).toEqual([]);
});

test('signIn asks also if there is a token, with a new registration for a new address; signOut deletes everything', async () => {
  const secrets = memorySecrets();
  await signIn({ ...options(secrets), browser: person() });
  await signIn({ ...options(secrets), browser: { ...person(), redirectUrl: 'http://127.0.0.1:2/callback' } });
  expect([server.issued, server.registrations]).toEqual([2, 2]);
  expect((await post(signInFetch(options(secrets)))).status).toBe(200);
  expect(await signOut(options(secrets))).toBe(true);
  expect(await signOut(options(secrets))).toBe(false);
  await expect(post(signInFetch(options(secrets)))).rejects.toThrow(McpError);
});

test('a client that was registered beforehand is used at one authorization server, and its secret is not stored', async () => {
  const secrets = memorySecrets();
  const browser = person();
  await post(signInFetch(options(secrets, { browser, client: { id: 'mine', secret: 's3cret' } })));
  expect(browser.shown[0]!.searchParams.get('client_id')).toBe('mine');
  expect(server.registrations).toBe(0);
  expect(await secrets.get(`mcp docs ${base}/mcp`)).not.toContain('s3cret');
  Object.assign(server, { accepted: 'moved', log: [] });
  server.authorizationServer = () => `${base}/second`;
  const again = signInFetch(options(secrets, { browser, client: { id: 'mine', secret: 's3cret' } }));
  await expect(post(again)).rejects.toThrow(/names the authorization server .*second, but the client mine was used at/);
  expect(server.log.filter((line) => line.includes('token'))).toEqual([]);
});
