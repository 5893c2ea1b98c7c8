import { describe, expect, test } from 'vitest';
import { checkLocal, checkReach, isLoopback } from './admission.ts';

test.each(['127.0.0.1', '127.8.9.1', '::1', '::ffff:127.0.0.1', '::FFFF:127.1.2.3'])('%s is loopback', (address) => {
  expect(isLoopback(address)).toBe(true);
});

test.each([
  '0.0.0.0',
  '::',
  '192.168.1.2',
  '10.0.0.1',
  '128.0.0.1',
  '127.0.0.1.example.com',
  '127.1',
  'fe80::1',
  '',
  '::ffff:10.0.0.1',
])('%s is not loopback', (address) => {
  expect(isLoopback(address)).toBe(false);
});

describe('a server without keys', () => {
  test('must not be reachable from the network', () => {
    expect(() => checkReach('0.0.0.0', '0.0.0.0', false)).toThrow(
      'Without keys the server listens on loopback only, and 0.0.0.0 is reachable from the network. ' +
        'Add at least one key ([[server.keys]] with name and hash), or use the host 127.0.0.1.',
    );
    expect(() => checkReach('box', '10.0.0.1', false)).toThrow('box (10.0.0.1) is reachable');
    expect(() => checkReach('localhost', '::1', false)).not.toThrow();
    expect(() => checkReach('0.0.0.0', '0.0.0.0', true)).not.toThrow();
  });

  test.each([
    'localhost',
    'localhost:3210',
    'LOCALHOST:1',
    'app.localhost',
    '127.0.0.1:80',
    '127.1.2.3',
    '[::1]:3210',
    '[::1]',
  ])('accepts the host %s', (host) => {
    expect(() => checkLocal(host, undefined, [])).not.toThrow();
    expect(() => checkLocal(host, `http://${host}`, [])).not.toThrow();
  });

  test.each([
    undefined,
    '',
    'evil.example',
    'evil.example:3210',
    '127.0.0.1.evil.example',
    'localhost.evil.example',
    'evillocalhost',
    '192.168.1.2',
    '0.0.0.0:3210',
    '[::1',
    '::1',
    '[::2]:3210',
    'localhost:3210@evil.example',
    'evil.example:80:localhost',
  ])('rejects the host %s', (host) => {
    expect(() => checkLocal(host, undefined, [])).toThrow(expect.objectContaining({ status: 403 }) as Error);
  });

  test('accepts pages of other origins only if they are allowed', () => {
    for (const origin of ['https://evil.example', 'null', 'http://localhost:5173', 'https://localhost:3210'])
      expect(() => checkLocal('localhost:3210', origin, ['https://app.example'])).toThrow('Allow their origin');
    expect(() => checkLocal('localhost:3210', 'https://app.example', ['https://app.example'])).not.toThrow();
  });
});
