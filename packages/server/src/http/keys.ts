import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { systemClock, TreadleError, type Clock } from '@treadle/core';
import { churnSet } from '@treadle/core/churn';

/**
 * What a caller has without keys: `agents:invoke` for the APIs of OpenAI and for agents, `agents:write` to change their definitions, `tools:execute` for the tools that run on the server,
 * `runs:…` for the runs API, `chat:…` for conversations, `metrics:read` for `/metrics` and `/v1/status`,
 * `logs:read` for `/v1/logs`, `memory:…` for `/v1/memory`.
 */
export const SCOPES = [
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
] as const;

/** The permissions of a key. `tools:execute:<tool>` is for one tool, `agents:invoke:<agent>` for one agent. */
export type Scope = (typeof SCOPES)[number] | `tools:execute:${string}` | `agents:invoke:${string}`;

const SCOPE =
  /^(agents:(invoke(:[\w-]{1,64})?|write)|tools:execute(:[\w-]{1,64})?|(runs|chat|memory):(read|write)|(metrics|logs):read)$/;
const SCOPE_LIST = `${SCOPES.join(', ')}, tools:execute:<tool>, agents:invoke:<agent>`;

/** A key that clients send. The server stores only its hash. */
export interface ApiKey {
  /** Used in logs; not the key itself. */
  readonly name: string;
  /** `sha256:` and 64 hex digits: the result of `hashKey`. */
  readonly hash: string;
  /** Default: only `agents:invoke`. */
  readonly scopes?: readonly Scope[];
  /** Default `default`. Keys of one tenant see the same responses. */
  readonly tenant?: string;
  /** Instead of the server's own limit. */
  readonly requestsPerMinute?: number;
  /** How many requests of the key may be in progress at a time; default: no limit. */
  readonly maxConcurrentRequests?: number;
  /** From this time on the key is not valid, in milliseconds since 1970; default: never. */
  readonly expiresAt?: number;
}

/** A key with its defaults filled in. */
export interface KnownKey {
  readonly name: string;
  readonly tenant: string;
  readonly scopes: readonly Scope[];
  readonly requestsPerMinute?: number;
  readonly maxConcurrentRequests?: number;
  readonly expiresAt?: number;
}

/** The keys of a running server. They can be replaced. */
export interface Keys {
  /** Whether requests need a key. */
  readonly areRequired: boolean;
  /** The key that a client presents, also one that has expired. */
  find(presented: string): KnownKey | undefined;
  /** The key of this name, also one that has expired. */
  named(name: string): KnownKey | undefined;
  isExpired(key: KnownKey): boolean;
  /**
   * Why a run that was started with a key may not continue: the key does not exist any more, has expired, belongs to another
   * tenant, or lacks one of the scopes that it had. Undefined if it may.
   */
  whyRevoked(run: {
    readonly tenant: string;
    readonly key: string;
    readonly scopes: readonly string[];
  }): string | undefined;
  /** The number of tenants that have keys. */
  readonly tenants: number;
  /** Applies to the next request. Throws if the keys are not valid, or if there are none but were before. */
  replace(keys: readonly ApiKey[]): void;
  /** Calls `listener` whenever the keys were replaced. */
  onReplaced(listener: () => void): () => void;
}

export function serverKeys(initial: readonly ApiKey[], clock: Pick<Clock, 'now'> = systemClock): Keys {
  let known = checkedKeys(initial);
  let find = keyring(initial);
  const listeners = churnSet<() => void>();
  const isExpired = ({ expiresAt = Infinity }: KnownKey): boolean => clock.now() >= expiresAt;
  const keys: Keys & { areRequired: boolean; tenants: number } = {
    areRequired: known.length > 0,
    tenants: tenantsOf(known),
    find: (presented) => find(presented),
    named: (name) => known.find((one) => one.known.name === name)?.known,
    isExpired,
    whyRevoked({ tenant, key, scopes }) {
      if (known.length === 0) return undefined;
      const now = known.find((one) => one.known.name === key)?.known;
      if (key === '') return 'It was started without a key, and keys are required now.';
      if (!now || now.tenant !== tenant) return 'The key that started it was removed.';
      if (isExpired(now)) return 'The key that started it has expired.';
      const lost = scopes.find((scope) => !now.scopes.some((has) => scope === has || scope.startsWith(`${has}:`)));
      return lost === undefined ? undefined : `The key that started it has lost the scope "${lost}".`;
    },
    replace(given) {
      if (given.length === 0 && known.length > 0)
        throw wrong('All keys were removed, which would open the server to everybody. Restart it if that is intended.');
      const checked = checkedKeys(given);
      find = keyring(given);
      known = checked;
      keys.areRequired = known.length > 0;
      keys.tenants = tenantsOf(known);
      for (const listener of listeners) listener();
    },
    onReplaced: (listener) => listeners.add(listener),
  };
  return keys;
}

function tenantsOf(keys: readonly { readonly known: KnownKey }[]): number {
  return new Set(keys.map(({ known }) => known.tenant)).size;
}

export const DEFAULT_TENANT = 'default';

/** A key has 256 random bits, so its hash needs no salt. */
export function newKey(): string {
  return `tk_${randomBytes(32).toString('base64url')}`;
}

export function hashKey(key: string): string {
  return `sha256:${digest(key).toString('hex')}`;
}

/** Looks up the key that a client presents. Throws if the configuration of the keys is wrong. */
export function keyring(keys: readonly ApiKey[]): (presented: string) => KnownKey | undefined {
  const entries = checkedKeys(keys);
  return (presented) => {
    const presentedHash = digest(presented);
    let found: KnownKey | undefined;
    // All keys are compared, so that the time does not reveal whether or which one matches.
    for (const { hash, known } of entries) if (timingSafeEqual(hash, presentedHash)) found = known;
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

function checkedKeys(keys: readonly ApiKey[]): { readonly hash: Buffer; readonly known: KnownKey }[] {
  const names = new Set<string>();
  const hashes = new Map<string, string>();
  return keys.map((key, index) => {
    const { name, hash, scopes = ['agents:invoke'], tenant = DEFAULT_TENANT } = key;
    const { requestsPerMinute, maxConcurrentRequests, expiresAt } = key;
    if (typeof name !== 'string' || !NAME.test(name))
      throw wrong(
        `Key ${index + 1} needs a name of at most 64 letters, digits and ". _ @ -", which logs show; not the key itself.`,
      );
    const where = `Key "${name}"`;
    if (names.has(name)) throw wrong(`${where} is defined twice: every key needs a name of its own.`);
    names.add(name);
    // The wrong value is not quoted: it may be the key.
    if (typeof hash !== 'string' || !HASH.test(hash))
      throw wrong(`${where} needs a hash, "sha256:" and 64 hex digits: the SHA-256 of the key, not the key itself.`);
    const hex = hash.slice('sha256:'.length).toLowerCase();
    const twin = hashes.get(hex);
    if (twin !== undefined) throw wrong(`Keys "${twin}" and "${name}" are the same key: create a new one for each.`);
    hashes.set(hex, name);
    if (!Array.isArray(scopes) || scopes.length === 0)
      throw wrong(`${where} has no scopes: list some of ${SCOPE_LIST}, or leave them out for agents:invoke.`);
    const unknown = scopes.find((scope) => typeof scope !== 'string' || !SCOPE.test(scope));
    if (unknown !== undefined)
      throw wrong(`${where} has the unknown scope ${JSON.stringify(unknown)}: use ${SCOPE_LIST}.`);
    if (typeof tenant !== 'string' || !NAME.test(tenant))
      throw wrong(`${where} needs a tenant of at most 64 letters, digits and ". _ @ -", or none.`);
    if (requestsPerMinute !== undefined && !(Number.isSafeInteger(requestsPerMinute) && requestsPerMinute > 0))
      throw wrong(`${where}: requestsPerMinute must be a whole number above 0.`);
    if (
      maxConcurrentRequests !== undefined &&
      !(Number.isSafeInteger(maxConcurrentRequests) && maxConcurrentRequests > 0)
    )
      throw wrong(`${where}: maxConcurrentRequests must be a whole number above 0.`);
    if (expiresAt !== undefined && !Number.isSafeInteger(expiresAt))
      throw wrong(`${where}: expiresAt must be a time in milliseconds since 1970.`);
    const known = {
      name,
      tenant,
      scopes: [...scopes],
      ...(requestsPerMinute !== undefined && { requestsPerMinute }),
      ...(maxConcurrentRequests !== undefined && { maxConcurrentRequests }),
      ...(expiresAt !== undefined && { expiresAt }),
    };
    return { hash: Buffer.from(hex, 'hex'), known };
  });
}

function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

function wrong(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}
