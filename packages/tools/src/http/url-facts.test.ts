import { expect, test } from 'vitest';
import { addressOf } from './addresses.ts';
import { urlFacts } from './url-facts.ts';

test.each([
  ['https://example.com/a?b#c', 'https', 'example.com', 443],
  ['HTTP://EXAMPLE.com.:8080', 'http', 'example.com', 8080],
  ['http://example.com:', 'http', 'example.com', 80],
  ['https://bücher.example/', 'https', 'xn--bcher-kva.example', 443],
  ['https://xn--bcher-kva.example/', 'https', 'xn--bcher-kva.example', 443],
  ['https://ｅｘａｍｐｌｅ。com/', 'https', 'example.com', 443],
  ['https://ex%61mple.com/@x', 'https', 'example.com', 443],
  ['https://раypal.com/', 'https', 'xn--ypal-43d9g.com', 443],
  ['ws://example.com', 'ws', 'example.com', 80],
  ['ssh://git@example.com/x.git', 'ssh', 'example.com', 22],
  ['ssh://git@example.com:2222/x.git', 'ssh', 'example.com', 2222],
  ['git://example.com/x.git', 'git', 'example.com', 9418],
])('%s goes to a name', (url, scheme, host, port) => {
  expect(urlFacts(url)).toEqual({ scheme, host, port });
});

test.each([
  ['93.184.216.34', '93.184.216.34', 'public'],
  ['127.0.0.1', '127.0.0.1', 'loopback'],
  ['127.1', '127.0.0.1', 'loopback'],
  ['2130706433', '127.0.0.1', 'loopback'],
  ['0x7f.0.0.1', '127.0.0.1', 'loopback'],
  ['0177.0.0.01', '127.0.0.1', 'loopback'],
  ['１２７.０.０.１', '127.0.0.1', 'loopback'],
  ['%31%32%37.0.0.1', '127.0.0.1', 'loopback'],
  ['127.0.0.1.', '127.0.0.1', 'loopback'],
  ['0', '0.0.0.0', 'loopback'],
  ['[::]', '::', 'loopback'],
  ['[0:0:0:0:0:0:0:1]', '::1', 'loopback'],
  ['[::ffff:127.0.0.1]', '127.0.0.1', 'loopback'],
  ['[::ffff:5db8:d822]', '93.184.216.34', 'public'],
  ['[::127.0.0.1]', '::7f00:1', 'loopback'],
  ['[::93.184.216.34]', '::5db8:d822', 'reserved'],
  ['[::ffff:0:10.0.0.1]', '::ffff:0:a00:1', 'private'],
  ['[64:ff9b::10.0.0.1]', '64:ff9b::a00:1', 'private'],
  ['[64:ff9b::93.184.216.34]', '64:ff9b::5db8:d822', 'public'],
  ['[64:ff9b:1::10.0.0.1]', '64:ff9b:1::a00:1', 'private'],
  ['[64:ff9b:1::93.184.216.34]', '64:ff9b:1::5db8:d822', 'reserved'],
  ['[2002:a00:1::1]', '2002:a00:1::1', 'private'],
  ['[2002:5db8:d822::1]', '2002:5db8:d822::1', 'reserved'],
  ['[2001:0:5db8:d822:0:0:f5ff:fffe]', '2001:0:5db8:d822::f5ff:fffe', 'private'],
  ['[2001:0:7f00:1::]', '2001:0:7f00:1::', 'loopback'],
  ['[2606:4700::5efe:10.0.0.1]', '2606:4700::5efe:a00:1', 'private'],
  ['[2606:4700:4700::1111]', '2606:4700:4700::1111', 'public'],
  ['[2001:db8::1]', '2001:db8::1', 'reserved'],
  ['[fc00::1]', 'fc00::1', 'private'],
  ['[fe80::1]', 'fe80::1', 'link-local'],
  ['[fec0::1]', 'fec0::1', 'reserved'],
  ['[ff02::1]', 'ff02::1', 'multicast'],
  ['[fd00:ec2::254]', 'fd00:ec2::254', 'metadata'],
  ['[::ffff:169.254.169.254]', '169.254.169.254', 'metadata'],
  ['[2002:a9fe:a9fe::]', '2002:a9fe:a9fe::', 'metadata'],
  ['10.0.0.1', '10.0.0.1', 'private'],
  ['172.16.0.1', '172.16.0.1', 'private'],
  ['172.32.0.1', '172.32.0.1', 'public'],
  ['192.168.1.1', '192.168.1.1', 'private'],
  ['100.64.0.1', '100.64.0.1', 'private'],
  ['100.100.100.200', '100.100.100.200', 'metadata'],
  ['168.63.129.16', '168.63.129.16', 'metadata'],
  ['169.254.1.1', '169.254.1.1', 'link-local'],
  ['224.0.0.1', '224.0.0.1', 'multicast'],
  ['255.255.255.255', '255.255.255.255', 'reserved'],
  ['198.18.0.1', '198.18.0.1', 'reserved'],
  ['localhost', 'localhost', 'loopback'],
  ['a.LOCALHOST.', 'a.localhost', 'loopback'],
  ['metadata.google.internal.', 'metadata.google.internal', 'metadata'],
])('%s is %s, which is %s', (written, host, range) => {
  expect(urlFacts(`http://${written}:81/`)).toEqual({ scheme: 'http', host, port: 81, range });
});

test.each([
  ['', /no scheme/],
  ['example.com', /no scheme/],
  ['//example.com', /no scheme/],
  ['file:///etc/passwd', /scheme file/],
  ['data:text/plain,x', /scheme data/],
  ['javascript:alert(1)', /scheme javascript/],
  ['gopher://example.com/', /scheme gopher/],
  ['constructor://example.com/', /scheme constructor/],
  ['http:example.com', /no host/],
  ['http:/example.com', /no host/],
  ['http:///example.com', /no host/],
  ['http://', /no host/],
  ['http://?x', /no host/],
  ['http://user@example.com', /user name or password/],
  ['http://@example.com', /user name or password/],
  ['http://a@b@example.com', /user name or password/],
  ['ssh://git:secret@example.com', /user name or password/],
  ['http://example.com\\@evil.example', /backslash/],
  ['http://exa\tmple.com', /control character/],
  ['\u0000http://example.com', /no scheme/],
  [' http://example.com', /no scheme/],
  ['http://example.com/a b', /blank/],
  ['http://example.com/\r\nHost: x', /control character/],
  ['http://[fe80::1%25eth0]/', /malformed/],
  ['http://[::1', /malformed/],
  ['http://1.2.3.4.5/', /malformed/],
  ['http://256.1.1.1/', /malformed/],
  ['http://a..b/', /malformed/],
  ['http://./', /malformed/],
  ['http://a%00b/', /malformed/],
  ['http://a:99999/', /malformed/],
  ['http://a:80:80/', /malformed/],
  [`http://${'a.'.repeat(200)}/`, /malformed/],
  [`http://a/${'x'.repeat(9000)}`, /more than 8192/],
])('%j is unclear', (url, unclear) => {
  expect(urlFacts(url).unclear).toMatch(unclear);
});

test('addressOf takes addresses only in their usual form', () => {
  expect(['127.1', '0x7f.0.0.1', '01.2.3.4', '1', '', 'a', '[::1]', '1.2.3.4:5'].map(addressOf)).toEqual(
    Array(8).fill(undefined),
  );
  expect(addressOf('fe80::1%eth0')).toEqual({ address: 'fe80::1', range: 'link-local' });
});
