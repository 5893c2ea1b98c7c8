import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { TreadleError } from '@treadle/core';

/** What a key can allow: `agents:invoke` is the API, `tools:execute` the tools that run on the server. */
export const SCOPES = ['agents:invoke', 'tools:execute'] as const;

export type Scope = (typeof SCOPES)[number];

/** A key that clients present. The server knows only its hash. */
export interface ApiKey {
  /** For logs; never the key itself. */
  readonly name: string;
  /** `sha256:` and 64 hex digits: what `hashKey` makes of the key. */
  readonly hash: string;
  /** Only `agents:invoke` if not given. */
  readonly scopes?: readonly Scope[];
  /** `default` if not given. Keys of one tenant see the same responses. */
  readonly tenant?: string;
  /** Instead of the server's own limit. */
  readonly requestsPerMinute?: number;
}

/** A key with what was left out filled in. */
export interface KnownKey {
  readonly name: string;
  readonly tenant: string;
  readonly scopes: readonly Scope[];
  readonly requestsPerMinute?: number;
}

export const DEFAULT_TENANT = 'default';

/** 256 random bits, so its plain hash needs no salt and cannot be guessed. */
export function newKey(): string {
  return `tk_${randomBytes(32).toString('base64url')}`;
}

export function hashKey(key: string): string {
  return `sha256:${digest(key).toString('hex')}`;
}

/** The keys of a configuration, for looking up what a client presents. Throws if the configuration is wrong. */
export function keyring(keys: readonly ApiKey[]): (presented: string) => KnownKey | undefined {
  const entries = checked(keys);
  return (presented) => {
    const given = digest(presented);
    let found: KnownKey | undefined;
    // Every key is compared, so that the time tells neither whether one fits nor which.
    for (const { hash, known } of entries) if (timingSafeEqual(hash, given)) found = known;
    return found;
  };
}

/** `Authorization: Bearer …`, else `x-api-key`, else `api-key`. */
export function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const bearer = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  const other = headers['x-api-key'] ?? headers['api-key'];
  return bearer || (typeof other === 'string' && other) || undefined;
}

const NAME = /^[A-Za-z0-9][\w.@-]{0,63}$/;
const HASH = /^sha256:[0-9a-f]{64}$/i;

function checked(keys: readonly ApiKey[]): { readonly hash: Buffer; readonly known: KnownKey }[] {
  const names = new Set<string>();
  const hashes = new Map<string, string>();
  return keys.map(({ name, hash, scopes = ['agents:invoke'], tenant = DEFAULT_TENANT, requestsPerMinute }, index) => {
    if (typeof name !== 'string' || !NAME.test(name))
      throw wrong(
        `Key ${index + 1} needs a name of at most 64 letters, digits and ". _ @ -", which logs show; not the key itself.`,
      );
    const where = `Key "${name}"`;
    if (names.has(name)) throw wrong(`${where} is there twice: every key needs a name of its own.`);
    names.add(name);
    // What was written instead is not repeated: it may be the key.
    if (typeof hash !== 'string' || !HASH.test(hash))
      throw wrong(`${where} needs a hash, "sha256:" and 64 hex digits: the SHA-256 of the key, not the key itself.`);
    const hex = hash.slice('sha256:'.length).toLowerCase();
    const twin = hashes.get(hex);
    if (twin !== undefined) throw wrong(`Keys "${twin}" and "${name}" are the same key: make a new one for each.`);
    hashes.set(hex, name);
    if (!Array.isArray(scopes) || scopes.length === 0)
      throw wrong(`${where} has no scopes: list some of ${SCOPES.join(', ')}, or leave them out for agents:invoke.`);
    const unknown = scopes.find((scope) => !SCOPES.some((one) => one === scope));
    if (unknown !== undefined)
      throw wrong(`${where} has the unknown scope ${JSON.stringify(unknown)}: there are ${SCOPES.join(', ')}.`);
    if (typeof tenant !== 'string' || !NAME.test(tenant))
      throw wrong(`${where} needs a tenant of at most 64 letters, digits and ". _ @ -", or none.`);
    if (requestsPerMinute !== undefined && !(Number.isSafeInteger(requestsPerMinute) && requestsPerMinute > 0))
      throw wrong(`${where}: requestsPerMinute must be a whole number above 0.`);
    const known = { name, tenant, scopes: [...scopes], ...(requestsPerMinute !== undefined && { requestsPerMinute }) };
    return { hash: Buffer.from(hex, 'hex'), known };
  });
}

function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

function wrong(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}
