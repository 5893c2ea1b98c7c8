import type { IncomingMessage, ServerResponse } from 'node:http';
import { TreadleError } from '@treadle/core';

const EXPOSED = [
  'x-request-id',
  'retry-after',
  'ratelimit',
  'ratelimit-policy',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
].join(', ');

/** Names of headers, as browsers list them. */
const HEADER_LIST = /^[\w!#$%&'*+.^`|~-]+(?: *, *[\w!#$%&'*+.^`|~-]+)*$/;

/** Throws if an origin could never match, or would open a server without keys to every web page. */
export function checkOrigins(origins: readonly string[], hasKeys: boolean): void {
  for (const origin of origins) {
    if (origin === '*') {
      if (hasKeys) continue;
      throw wrong('cors = ["*"] lets every web page use a server without keys: add keys, or list the origins.');
    }
    if (!URL.canParse(origin) || new URL(origin).origin !== origin)
      throw wrong(`"${origin}" in cors is not an origin: write scheme and host as in "https://app.example.com".`);
  }
}

/**
 * Tells browsers that the page of an allowed origin may read the answer. The headers are set on the raw response, so
 * that streams have them, too. True: the request was a preflight and is answered.
 */
export function allowOrigin(origins: readonly string[], incoming: IncomingMessage, outgoing: ServerResponse): boolean {
  if (origins.length === 0) return false;
  outgoing.setHeader('Vary', 'Origin');
  const { origin } = incoming.headers;
  if (origin === undefined || !(origins.includes('*') || origins.includes(origin))) return false;
  outgoing.setHeader('Access-Control-Allow-Origin', origin);
  outgoing.setHeader('Access-Control-Expose-Headers', EXPOSED);
  if (incoming.method !== 'OPTIONS' || incoming.headers['access-control-request-method'] === undefined) return false;
  // Clients send headers of their own, such as `x-stainless-…`: none of them is dangerous, as there are no cookies.
  const wanted = incoming.headers['access-control-request-headers'];
  if (wanted !== undefined && HEADER_LIST.test(wanted)) outgoing.setHeader('Access-Control-Allow-Headers', wanted);
  outgoing.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE');
  outgoing.setHeader('Access-Control-Max-Age', '600');
  return true;
}

function wrong(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}
