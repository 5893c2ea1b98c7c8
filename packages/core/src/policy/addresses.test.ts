import { expect, test } from 'vitest';
import { isWithin, parseAddress, parseCidr, rangeOf } from './addresses.ts';

test.each([
  ['8.8.8.8', 'public'],
  ['127.0.0.1', 'loopback'],
  ['127.255.255.255', 'loopback'],
  ['10.0.0.1', 'private'],
  ['172.15.255.255', 'public'],
  ['172.16.0.0', 'private'],
  ['172.32.0.0', 'public'],
  ['192.168.1.1', 'private'],
  ['100.64.0.1', 'private'],
  ['169.254.1.1', 'link-local'],
  ['169.254.169.254', 'metadata'],
  ['224.0.0.1', 'multicast'],
  ['0.0.0.0', 'reserved'],
  ['255.255.255.255', 'reserved'],
  ['::1', 'loopback'],
  ['::', 'reserved'],
  ['fe80::1', 'link-local'],
  ['fd00:ec2::254', 'metadata'],
  ['fd12::1', 'private'],
  ['ff02::1', 'multicast'],
  ['2606:4700::1111', 'public'],
  ['::ffff:127.0.0.1', 'loopback'],
  ['::ffff:7f00:1', 'loopback'],
  ['::ffff:808:808', 'public'],
  ['::a00:1', 'private'],
  ['64:ff9b::a9fe:a9fe', 'metadata'],
  ['2002:7f00:1::', 'loopback'],
])('%s is %s', (text, range) => {
  expect(rangeOf(parseAddress(text)!)).toBe(range);
});

test.each([
  '',
  '1.2.3',
  '1.2.3.4.5',
  '256.1.1.1',
  '01.2.3.4',
  '1:2',
  '1::2::3',
  ':::',
  'g::1',
  '1:2:3:4:5:6:7:8:9',
  'a.b.c.d',
])('%j is not an address', (text) => {
  expect(parseAddress(text)).toBeUndefined();
});

test('a range contains the addresses with its prefix, and only those of its version', () => {
  const range = parseCidr('10.1.0.0/16')!;
  expect(isWithin(parseAddress('10.1.255.255')!, range)).toBe(true);
  expect(isWithin(parseAddress('10.2.0.0')!, range)).toBe(false);
  expect(isWithin(parseAddress('::a01:1')!, range)).toBe(false);
  expect(isWithin(parseAddress('1.2.3.4')!, parseCidr('0.0.0.0/0')!)).toBe(true);
  for (const text of ['10.0.0.0', '10.0.0.0/33', '::/129', 'x/8', '10.0.0.0/']) expect(parseCidr(text)).toBeUndefined();
});
