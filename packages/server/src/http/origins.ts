import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { isIPv4 } from 'node:net';
import { TreadleError } from '@treadle/core';
import { ApiError } from '../api-error.ts';

/** From where the server may be used: loopback only without keys, and only by web pages whose origin is allowed. */

/** Whether only programs on this machine can connect to this address. */
export function isLoopback(address: string): boolean {
  const plain = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '');
  return plain === '::1' || (isIPv4(plain) && plain.startsWith('127.'));
}

/** Throws if a server without keys could be reached from the network. */
export function checkReach(host: string, address: string, hasKeys: boolean): void {
  if (hasKeys || isLoopback(address)) return;
  const where = host === address ? host : `${host} (${address})`;
  throw new TreadleError(
    'invalid-options',
    `Without keys the server listens on loopback only, and ${where} is reachable from the network. ` +
      'Add at least one key ([[server.keys]] with name and hash), or use the host 127.0.0.1.',
  );
}

/**
 * Throws a 403 for requests of web pages to a server without keys. A page can make its own host name resolve to
 * 127.0.0.1, but then the Host header contains that name. It can also post to 127.0.0.1 directly, but then the Origin header
 * contains the page's origin.
 */
export function checkLocal(
  host: string | undefined,
  origin: string | undefined,
  allowedOrigins: readonly string[],
): void {
  if (!isLocalName(host ?? ''))
    throw notLocal('The server has no keys, so it accepts only localhost, 127.0.0.1 and [::1] in the Host header.');
  if (origin !== undefined && origin !== `http://${host}` && !allowedOrigins.includes(origin))
    throw notLocal(
      'The server has no keys, so it rejects requests of other web pages. Allow their origin in its cors setting.',
    );
}

/** Whether the Host header, without its port, is a name that only this machine can have. */
function isLocalName(host: string): boolean {
  const name = host.replace(/:\d*$/, '').toLowerCase();
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  return name.startsWith('[') ? name.endsWith(']') && isLoopback(name.slice(1, -1)) : isLoopback(name) && isIPv4(name);
}

function notLocal(message: string): ApiError {
  return new ApiError(403, 'permission_error', message, { code: 'not_local' });
}

/**
 * Throws a 403 if the page of another origin opens a WebSocket. Browsers do not apply CORS to WebSockets, so the server has to
 * refuse those that it does not allow.
 */
export function checkSocketOrigin({ host, origin }: IncomingHttpHeaders, allowedOrigins: readonly string[]): void {
  if (origin === undefined || allowedOrigins.includes('*') || allowedOrigins.includes(origin)) return;
  if (origin === `http://${host}` || origin === `https://${host}`) return;
  const message = 'The server rejects WebSockets of other web pages. Allow their origin in its cors setting.';
  throw new ApiError(403, 'permission_error', message, { code: 'origin_not_allowed' });
}

const EXPOSED = [
  'x-request-id',
  'retry-after',
  'ratelimit',
  'ratelimit-policy',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'mcp-session-id',
].join(', ');

/** A list of header names, as browsers send it. */
const HEADER_LIST = /^[\w!#$%&'*+.^`|~-]+(?: *, *[\w!#$%&'*+.^`|~-]+)*$/;

/** Throws if an origin can never match, or if it would open a server without keys to every web page. */
export function checkOrigins(origins: readonly string[], hasKeys: boolean): void {
  for (const origin of origins) {
    if (origin === '*') {
      if (hasKeys) continue;
      throw new TreadleError(
        'invalid-options',
        'cors = ["*"] lets every web page use a server without keys: add keys, or list the origins.',
      );
    }
    if (!URL.canParse(origin) || new URL(origin).origin !== origin)
      throw new TreadleError(
        'invalid-options',
        `"${origin}" in cors is not an origin: write scheme and host as in "https://app.example.com".`,
      );
  }
}

/**
 * Sets the CORS headers for an allowed origin, on Node's response so that streams have them too. Returns true if the
 * request was a preflight, which needs no other answer.
 */
export function allowOrigin(origins: readonly string[], incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  if (origins.length === 0) return false;
  outgoing.setHeader('Vary', 'Origin');
  const { origin } = incoming.headers;
  if (origin === undefined || !(origins.includes('*') || origins.includes(origin))) return false;
  outgoing.setHeader('Access-Control-Allow-Origin', origin);
  outgoing.setHeader('Access-Control-Expose-Headers', EXPOSED);
  if (incoming.method !== 'OPTIONS' || incoming.headers['access-control-request-method'] === undefined) return false;
  // Clients send headers of their own, such as `x-stainless-…`. Any header is safe, because there are no cookies.
  const requested = incoming.headers['access-control-request-headers'];
  if (requested !== undefined && HEADER_LIST.test(requested))
    outgoing.setHeader('Access-Control-Allow-Headers', requested);
  outgoing.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE');
  outgoing.setHeader('Access-Control-Max-Age', '600');
  return true;
}
