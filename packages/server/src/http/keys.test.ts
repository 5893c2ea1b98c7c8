import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { hashKey, keyring, newKey, presentedKey, serverKeys, type ApiKey } from './keys.ts';
import { badRequest } from '../api-error.ts';
import { countLimit } from './limits.ts';

const hash = hashKey('one');

describe('a new key', () => {
  test('has 256 random bits, and its hash is the SHA-256 of its text', () => {
    const key = newKey();
    expect(key).toMatch(/^tk_[\w-]{43}$/);
    expect(newKey()).not.toBe(key);
    expect(hashKey(key)).toBe(`sha256:${createHash('sha256').update(key, 'utf8').digest('hex')}`);
  });
});

describe('a presented key', () => {
  const find = keyring([
    { name: 'a', hash: hashKey('key-a'), tenant: 'acme', scopes: ['tools:execute'], requestsPerMinute: 5 },
    { name: 'b', hash: hashKey('key-b').replace(/[a-f]/g, (digit) => digit.toUpperCase()) },
  ]);

  test('is found, with its defaults filled in', () => {
    expect(find('key-a')).toEqual({ name: 'a', tenant: 'acme', scopes: ['tools:execute'], requestsPerMinute: 5 });
    expect(find('key-b')).toEqual({ name: 'b', tenant: 'default', scopes: ['agents:invoke'] });
  });

  test.each(['', 'key-', 'key-a ', 'key-aa', 'KEY-A', hashKey('key-a'), hashKey('key-a').slice(7), 'key-é'])(
    'is not found if it is %j',
    (presented) => {
      expect(find(presented)).toBeUndefined();
    },
  );

  test('is read from the headers that clients use', () => {
    expect(presentedKey({ authorization: 'Bearer k' })).toBe('k');
    expect(presentedKey({ authorization: 'bearer   k  ' })).toBe('k');
    expect(presentedKey({ 'x-api-key': 'k' })).toBe('k');
    expect(presentedKey({ 'api-key': 'k' })).toBe('k');
    expect(presentedKey({ authorization: 'Bearer k', 'x-api-key': 'other' })).toBe('k');
    expect(presentedKey({ authorization: 'Basic dTpw', 'x-api-key': 'k' })).toBe('k');
    for (const authorization of ['', 'Bearer', 'Bearer ', 'Bearer a b', 'Basic dTpw', 'k'])
      expect(presentedKey({ authorization })).toBeUndefined();
    expect(presentedKey({ 'x-api-key': '' })).toBeUndefined();
  });
});

describe('rejects a configuration of keys', () => {
  const secret = 'tk_this-is-a-secret-key';
  const cases: readonly (readonly [string, readonly unknown[], string])[] = [
    ['without a name', [{ hash }], 'Key 1 needs a name'],
    ['with a name that cannot be logged', [{ name: 'a b\n', hash }], 'Key 1 needs a name'],
    [
      'with a duplicate name',
      [
        { name: 'a', hash },
        { name: 'a', hash: hashKey('two') },
      ],
      'Key "a" is defined twice',
    ],
    [
      'with one key under two names',
      [
        { name: 'a', hash },
        { name: 'b', hash },
      ],
      'Keys "a" and "b" are the same key',
    ],
    ['with the key instead of its hash', [{ name: 'a', hash: secret }], 'Key "a" needs a hash, "sha256:" and 64 hex'],
    ['with a hash that is too short', [{ name: 'a', hash: hash.slice(0, -1) }], 'Key "a" needs a hash'],
    ['without a hash', [{ name: 'a' }], 'Key "a" needs a hash'],
    ['with an unknown scope', [{ name: 'a', hash, scopes: ['agent:invoke'] }], 'unknown scope "agent:invoke": use'],
    [
      'with a scope of no tool',
      [{ name: 'a', hash, scopes: ['tools:execute:'] }],
      'unknown scope "tools:execute:": use',
    ],
    ['with no scope', [{ name: 'a', hash, scopes: [] }], 'Key "a" has no scopes'],
    ['with scopes in one string', [{ name: 'a', hash, scopes: 'agents:invoke' }], 'Key "a" has no scopes'],
    ['with an invalid tenant', [{ name: 'a', hash, tenant: '../b' }], 'Key "a" needs a tenant'],
    ['with a limit of 0', [{ name: 'a', hash, requestsPerMinute: 0 }], 'requestsPerMinute must be a whole number'],
  ];
  test.each(cases)('%s', (_what, keys, message) => {
    const refused = (): unknown => keyring(keys as readonly ApiKey[]);
    expect(refused).toThrow(expect.objectContaining({ name: 'TreadleError', code: 'invalid-options' }) as Error);
    expect(refused).toThrow(message);
    expect(refused).not.toThrow(secret);
  });
});

describe('the keys of a running server', () => {
  const key: ApiKey = { name: 'a', hash, tenant: 'acme', scopes: ['agents:invoke', 'tools:execute'], expiresAt: 1_000 };
  const run = { tenant: 'acme', key: 'a', scopes: ['agents:invoke', 'tools:execute:read'] };

  test('can be replaced, but not removed altogether', () => {
    const keys = serverKeys([key]);
    keys.replace([{ name: 'b', hash: hashKey('two') }]);
    expect(keys.find('one')).toBeUndefined();
    expect(keys.find('two')?.name).toBe('b');
    expect(() => keys.replace([])).toThrow('would open the server to everybody');
    expect(() => keys.replace([{ name: 'c', hash: 'plain' }])).toThrow('Key "c" needs a hash');
    expect(keys.find('two')?.name).toBe('b');
    const none = serverKeys([]);
    expect(none.areRequired).toBe(false);
    none.replace([key]);
    expect(none.areRequired).toBe(true);
  });

  test('let a run continue while its key is valid', () => {
    let now = 999;
    const keys = serverKeys([key], { now: () => now });
    expect(keys.whyRevoked(run)).toBeUndefined();
    now = 1_000;
    expect(keys.whyRevoked(run)).toContain('has expired');
    keys.replace([{ ...key, expiresAt: 2_000, scopes: ['agents:invoke'] }]);
    expect(keys.whyRevoked(run)).toContain('lost the scope "tools:execute:read"');
    keys.replace([{ name: 'a', hash, tenant: 'other', scopes: ['agents:invoke', 'tools:execute'] }]);
    expect(keys.whyRevoked(run)).toContain('was removed');
    expect(keys.whyRevoked({ ...run, key: '' })).toContain('without a key');
    expect(serverKeys([]).whyRevoked(run)).toBeUndefined();
  });
});

test('the number of tenants is that of the current keys', () => {
  const keys = serverKeys([{ name: 'a', hash: hashKey('a') }]);
  const limit = countLimit({ max: 4, keys, tooMany: () => badRequest('too many') });
  for (let count = 0; count < 3; count += 1) limit.take('default');
  keys.replace([
    { name: 'a', hash: hashKey('a') },
    { name: 'b', hash: hashKey('b'), tenant: 'bolt' },
  ]);
  expect(keys.tenants).toBe(2);
  expect(() => limit.take('default')).toThrow('too many');
  limit.take('bolt');
});
