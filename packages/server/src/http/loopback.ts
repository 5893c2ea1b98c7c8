import { isIPv4 } from 'node:net';
import { TreadleError } from '@treadle/core';
import { ApiError } from '../api-error.ts';

/** Whether only programs on this machine reach this address. */
export function isLoopback(address: string): boolean {
  const plain = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '');
  return plain === '::1' || (isIPv4(plain) && plain.startsWith('127.'));
}

/** Throws if anybody on the network could use a server that asks for no key. */
export function checkReach(host: string, address: string, hasKeys: boolean): void {
  if (hasKeys || isLoopback(address)) return;
  throw new TreadleError(
    'invalid-options',
    `Without keys the server listens on loopback only, and ${where(host, address)} is reachable from the network. ` +
      'Give it at least one key ([[server.keys]] with name and hash), or use the host 127.0.0.1.',
  );
}

/**
 * For a server without keys, which trusts whoever reaches it: a web page must not. A page can have its own name resolved
 * to 127.0.0.1, but then the Host header bears that name; and it can post to us, but then the Origin header bears its
 * address. Throws a 403.
 */
export function checkLocal(
  host: string | undefined,
  origin: string | undefined,
  allowedOrigins: readonly string[],
): void {
  if (!isLocalName(host ?? ''))
    throw refusal('The server has no keys, so it answers only to localhost, 127.0.0.1 and [::1] in the Host header.');
  if (origin !== undefined && origin !== `http://${host}` && !allowedOrigins.includes(origin))
    throw refusal('The server has no keys, so it answers no other web pages. Allow their origin in its cors setting.');
}

/** The Host header without its port: a name that no one else can claim. */
function isLocalName(host: string): boolean {
  const name = host.replace(/:\d*$/, '').toLowerCase();
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  return name.startsWith('[') ? name.endsWith(']') && isLoopback(name.slice(1, -1)) : isLoopback(name) && isIPv4(name);
}

function where(host: string, address: string): string {
  return host === address ? host : `${host} (${address})`;
}

function refusal(message: string): ApiError {
  return new ApiError(403, 'permission_error', message, { code: 'not_local' });
}
