/*
 * OAuth for MCP servers over HTTP.
 *
 * 1. A token is sent only to the origin of the server that it was issued for. Credentials belong to a name and a URL: another
 *    URL under the same name has none.
 * 2. Registrations and tokens are kept for each authorization server (its issuer). Those of one are never sent to another.
 * 3. After a 401, the addresses of the authorization server are looked up again. A request is authorized at most once more: what
 *    the server answers then is the answer.
 * 4. `state` and `iss` of a callback are checked before its code is used or its error is shown.
 * 5. The server names the addresses that are asked for metadata and tokens. They may be private only if the server is.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import {
  auth,
  computeScopeUnion,
  extractWWWAuthenticateParams,
  isStrictScopeSuperset,
  StreamableHTTPClientTransport,
  type OAuthClientProvider,
  type OAuthDiscoveryState,
  type StoredOAuthClientInformation,
  type StoredOAuthTokens,
} from '@modelcontextprotocol/client';
import { messageOf } from '@treadle/core';
import type { Secrets } from '@treadle/store';
import { addressOf } from '../http/addresses.ts';
import { httpClient } from '../http/client.ts';
import { urlFacts } from '../http/url-facts.ts';
import { McpError } from './options.ts';

/** The server whose credentials are meant. */
export interface SignInServer {
  /** Of the configuration. */
  readonly name: string;
  readonly url: string;
  readonly secrets: Secrets;
}

export interface SignInOptions extends SignInServer {
  /** A client that was registered beforehand. Default: Treadle registers itself at the authorization server. */
  readonly client?: { readonly id: string; readonly secret?: string };
  /** An https address of a client metadata document. It is the client id where the authorization server supports that. */
  readonly clientMetadataUrl?: string;
  /** Requested in addition to what the server asks for. */
  readonly scope?: string;
  /** How a person signs in. Absent: a request that needs it fails with an `McpError`, `unauthorized`. */
  readonly browser?: SignInBrowser;
  /** For requests to the server. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
}

export interface SignInBrowser {
  /** Where the authorization server sends the browser afterwards. */
  readonly redirectUrl: string;
  /** Shows the page at this address to a person, and resolves with the query that `redirectUrl` was called with. */
  authorize(url: URL): Promise<URLSearchParams>;
}

/** What is stored for a server, as JSON. */
interface Credentials {
  /** The issuer whose tokens are in use. */
  readonly current?: string;
  readonly issuers: Readonly<Record<string, IssuerCredentials>>;
}

interface IssuerCredentials {
  readonly client?: StoredOAuthClientInformation;
  readonly tokens?: StoredOAuthTokens;
}

/** What a 401 or a 403 asks for. */
interface Challenge {
  readonly type: 'sign-in' | 'more-scope';
  readonly resourceMetadataUrl?: URL;
  readonly scope?: string;
}

/** A `fetch` that adds the token of the server, renews it when the server rejects it, and asks a person if it has to. */
export function signInFetch(options: SignInOptions): typeof fetch {
  const { fetch: send = fetch } = options;
  const { origin } = new URL(options.url);
  const session = signInSession(options);
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    if (url.origin !== origin || headers.has('authorization')) return send(input, init);
    const sendWith = (token: string | undefined): Promise<Response> => {
      if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
      return send(input, { ...init, headers });
    };
    const token = await session.accessToken();
    const response = await sendWith(token);
    const challenge = challengeOf(response);
    const isRepeatable = !(input instanceof Request) && !(init?.body instanceof ReadableStream);
    if (!challenge || !isRepeatable) return response;
    await response.body?.cancel();
    init?.signal?.throwIfAborted();
    await session.renew(challenge, token);
    return sendWith(await session.accessToken());
  };
}

/** Signs in although no request has asked for it. Throws if the server does not support that. */
export async function signIn(options: SignInOptions & { readonly browser: SignInBrowser }): Promise<void> {
  const { fetch: send = fetch } = options;
  // The challenge tells where the metadata is, and which scope is needed. A server without one has it at the usual place.
  const asked = send(options.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }),
  });
  const response = await asked.catch((error: unknown) => {
    const { cause = error } = error as Error;
    const what = `The MCP server "${options.name}" cannot be reached: ${messageOf(cause)}`;
    throw new McpError('unreachable', what, { cause: error });
  });
  await response.body?.cancel();
  await signInSession(options).renew(challengeOf(response) ?? { type: 'sign-in' }, undefined, 'always');
}

/** Deletes all credentials of the server. False: there were none. */
export async function signOut(server: SignInServer): Promise<boolean> {
  const had = await isSignedIn(server);
  await server.secrets.delete(secretName(server));
  return had;
}

/** Whether there is a token. It may have expired. */
export async function isSignedIn(server: SignInServer): Promise<boolean> {
  const { current, issuers } = await readCredentials(server);
  return current !== undefined && issuers[current]?.tokens !== undefined;
}

function secretName({ name, url }: SignInServer): string {
  return `mcp ${name} ${new URL(url).href}`;
}

async function readCredentials(server: SignInServer): Promise<Credentials> {
  const text = await server.secrets.get(secretName(server));
  return text === undefined ? { issuers: {} } : (JSON.parse(text) as Credentials);
}

function challengeOf(response: Response): Challenge | undefined {
  if (response.status !== 401 && response.status !== 403) return undefined;
  const { resourceMetadataUrl, scope, error } = extractWWWAuthenticateParams(response);
  if (response.status === 403 && error !== 'insufficient_scope') return undefined;
  return {
    type: response.status === 401 ? 'sign-in' : 'more-scope',
    ...(resourceMetadataUrl && { resourceMetadataUrl }),
    ...(scope !== undefined && { scope }),
  };
}

interface SignInSession {
  accessToken(): Promise<string | undefined>;
  /**
   * Gets another token than `rejected`. Does nothing if there is one already, which another request or process got; `always`:
   * asks the person also then.
   */
  renew(challenge: Challenge, rejected: string | undefined, when?: 'always'): Promise<void>;
}

function signInSession(options: SignInOptions): SignInSession {
  const { url, browser, name } = options;
  /** All scopes that were asked for: more scope must not lose earlier ones. */
  let scopes: string | undefined;
  let renewing: Promise<void> | undefined;

  const tokensInUse = async (): Promise<StoredOAuthTokens | undefined> => {
    const { current, issuers } = await readCredentials(options);
    return current === undefined ? undefined : issuers[current]?.tokens;
  };

  async function authorize({ type, scope, resourceMetadataUrl }: Challenge, when?: 'always'): Promise<void> {
    const tokens = await tokensInUse();
    const needsPerson = when === 'always' || type === 'more-scope' || tokens?.refresh_token === undefined;
    if (needsPerson && !browser) throw new McpError('unauthorized', signInText(name, type));
    scopes = computeScopeUnion(scopes, type === 'more-scope' ? tokens?.scope : undefined, scope, options.scope);
    const fetchFn = await guardedFetch(url);
    const flow = oauthFlow(options);
    const isWider = type === 'more-scope' && isStrictScopeSuperset(scopes, tokens?.scope);
    try {
      const result = await auth(flow.provider, {
        serverUrl: url,
        fetchFn,
        forceReauthorization: isWider || when === 'always',
        ...(resourceMetadataUrl && { resourceMetadataUrl }),
        ...(scopes !== undefined && { scope: scopes }),
      });
      if (result === 'AUTHORIZED') return;
      const callback = await browser!.authorize(flow.authorizationUrl());
      flow.checkState(callback);
      // The transport checks `iss` before it reads anything else of the callback.
      const transport = new StreamableHTTPClientTransport(new URL(url), {
        authProvider: flow.provider,
        fetch: fetchFn,
      });
      await transport.finishAuth(callback);
    } catch (error) {
      if (error instanceof McpError) throw error;
      const what = browser ? `Signing in to the MCP server "${name}" failed` : signInText(name, type);
      throw new McpError('unauthorized', `${what.replace(/\.$/, '')}: ${messageOf(error)}`, { cause: error });
    }
  }

  return {
    accessToken: async () => (await tokensInUse())?.access_token,
    async renew(challenge, rejected, when) {
      if (when === undefined && challenge.type === 'sign-in' && (await tokensInUse())?.access_token !== rejected)
        return;
      renewing ??= authorize(challenge, when).finally(() => (renewing = undefined));
      return renewing;
    },
  };
}

function signInText(name: string, type: Challenge['type']): string {
  const why = type === 'more-scope' ? 'asks for more permissions than it was given' : 'needs you to sign in';
  return `The MCP server "${name}" ${why}. Run: treadle mcp login ${name}`;
}

interface OAuthFlow {
  readonly provider: OAuthClientProvider;
  authorizationUrl(): URL;
  checkState(callback: URLSearchParams): void;
}

/** One authorization. What it found out about the server ends with it. */
function oauthFlow(options: SignInOptions): OAuthFlow {
  const { browser, client, clientMetadataUrl, secrets } = options;
  const state = randomBytes(32).toString('base64url');
  let verifier = '';
  let discovery: OAuthDiscoveryState | undefined;
  let authorizationUrl: URL | undefined;
  /** The tokens that this flow used last. */
  let used: string | undefined;

  const update = async (change: (before: Credentials) => Credentials): Promise<void> => {
    const after = change(await readCredentials(options));
    await secrets.set(secretName(options), JSON.stringify(after));
  };
  const updateIssuer = (issuer: string, change: (before: IssuerCredentials) => IssuerCredentials): Promise<void> =>
    update((before) => ({ ...before, issuers: { ...before.issuers, [issuer]: change(before.issuers[issuer] ?? {}) } }));
  const issuerOf = (given: { readonly issuer?: string } | undefined): string => {
    const issuer = given?.issuer ?? discovery?.authorizationServerMetadata?.issuer ?? discovery?.authorizationServerUrl;
    if (issuer === undefined) throw new Error('The authorization server is not known yet.');
    return issuer;
  };

  // Without a browser nobody can sign in, but `auth` would do without a person if there were no address.
  const redirectUrl = browser?.redirectUrl ?? 'http://127.0.0.1/callback';
  const provider: OAuthClientProvider = {
    redirectUrl,
    ...(clientMetadataUrl !== undefined && { clientMetadataUrl }),
    clientMetadata: {
      client_name: 'Treadle',
      redirect_uris: [redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
    },
    state: () => state,
    async clientInformation(context) {
      const issuer = issuerOf(context);
      const { issuers } = await readCredentials(options);
      if (client) {
        const { id, secret } = client;
        rejectMove(issuers, { id, issuer });
        return { client_id: id, ...(secret !== undefined && { client_secret: secret }), issuer };
      }
      const stored = issuers[issuer]?.client;
      // A registration is for one address. It can still renew tokens.
      const registered = (stored as { readonly redirect_uris?: readonly string[] } | undefined)?.redirect_uris;
      return browser && registered && !registered.includes(redirectUrl) ? undefined : stored;
    },
    ...(browser && {
      saveClientInformation: (information: StoredOAuthClientInformation, context?: { readonly issuer: string }) =>
        updateIssuer(issuerOf(context), (before) => ({ ...before, client: information })),
    }),
    async tokens(context) {
      const { current, issuers } = await readCredentials(options);
      const issuer = context?.issuer ?? current;
      const tokens = issuer === undefined ? undefined : issuers[issuer]?.tokens;
      used = tokens?.refresh_token;
      return tokens;
    },
    async saveTokens(tokens, context) {
      const issuer = issuerOf(context);
      // A renewal may leave out what has not changed.
      await updateIssuer(issuer, (before) => ({
        ...before,
        ...(client && { client: { client_id: client.id } }),
        tokens: { ...(before.tokens?.refresh_token && { refresh_token: before.tokens.refresh_token }), ...tokens },
      }));
      await update((before) => ({ ...before, current: issuer }));
    },
    redirectToAuthorization(url) {
      if (!browser) throw new McpError('unauthorized', signInText(options.name, 'sign-in'));
      authorizationUrl = url;
    },
    saveCodeVerifier: (value) => void (verifier = value),
    codeVerifier: () => verifier,
    saveDiscoveryState: (found) => void (discovery = found),
    discoveryState: () => discovery,
    async invalidateCredentials(scope) {
      if (scope === 'discovery') discovery = undefined;
      if (scope === 'verifier') verifier = '';
      if (scope === 'discovery' || scope === 'verifier') return;
      await updateIssuer(issuerOf(undefined), ({ client: registered, tokens }) => ({
        ...(scope === 'tokens' && registered && { client: registered }),
        // Another process may have renewed them meanwhile.
        ...((scope === 'client' || tokens?.refresh_token !== used) && tokens && { tokens }),
      }));
    },
  };
  return {
    provider,
    authorizationUrl: () => authorizationUrl!,
    checkState(callback) {
      const given = Buffer.from(callback.get('state') ?? '');
      const expected = Buffer.from(state);
      if (given.length === expected.length && timingSafeEqual(given, expected)) return;
      throw new Error('The answer does not belong to this sign-in, so it is ignored. Try again');
    },
  };
}

/** A server could name another authorization server to get the secret of a client. */
function rejectMove(
  issuers: Credentials['issuers'],
  { id, issuer }: { readonly id: string; readonly issuer: string },
): void {
  if (issuers[issuer]) return;
  const before = Object.keys(issuers).find((one) => issuers[one]?.client?.client_id === id);
  if (before === undefined) return;
  throw new Error(
    `The server now names the authorization server ${issuer}, but the client ${id} was used at ${before}. If that is right, sign out and in again`,
  );
}

const MAX_METADATA_BYTES = 1_000_000;

/** For metadata, registration and tokens. */
async function guardedFetch(serverUrl: string): Promise<typeof fetch> {
  const mayBePrivate = !(await isPublic(serverUrl));
  const client = httpClient({
    maxBytes: MAX_METADATA_BYTES,
    check(url, resolvedFrom) {
      const { range, unclear } = urlFacts(url);
      if (unclear !== undefined) return unclear;
      if (range === 'public' || (range === undefined && resolvedFrom === undefined)) return undefined;
      if (mayBePrivate && range !== 'metadata') return undefined;
      return `${resolvedFrom ?? url} is not a public address (${range}), and the MCP server has a public one`;
    },
  });
  return async (input, init) => {
    const { method = 'GET', body, signal } = init ?? {};
    const request = {
      method,
      headers: Object.fromEntries(new Headers(init?.headers)),
      ...(body != null && { body: String(body) }),
      ...(signal && { signal }),
    };
    const {
      status,
      headers,
      body: bytes,
    } = await client.request(String(input instanceof Request ? input.url : input), request).catch((error: unknown) => {
      // As `fetch` does: after other errors the SDK looks at other addresses.
      throw new TypeError(messageOf(error), { cause: error });
    });
    const content = [204, 205, 304].includes(status) ? null : new Uint8Array(bytes);
    return new Response(content, { status, headers: { ...headers } });
  };
}

async function isPublic(url: string): Promise<boolean> {
  const { range, host } = urlFacts(url);
  if (range !== undefined) return range === 'public';
  const found = await lookup(host, { all: true });
  return found.every(({ address }) => addressOf(address)?.range === 'public');
}
