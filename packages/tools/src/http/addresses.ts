import type { AddressRange } from '@treadle/core/policy';
import ipaddr from 'ipaddr.js';

/** An address in its usual form: IPv4 also if it is mapped into IPv6, IPv6 in its short form and without a zone. */
export interface Address {
  readonly address: string;
  readonly range: AddressRange;
}

/** Addresses at which clouds hand out the credentials of a machine. */
const METADATA: ReadonlySet<string> = new Set([
  '169.254.169.254',
  '169.254.169.253',
  '169.254.169.123',
  '169.254.170.2',
  '169.254.170.23',
  '100.100.100.200',
  '192.0.0.192',
  '168.63.129.16',
  'fd00:ec2::254',
  'fd00:ec2::253',
  'fd00:ec2::123',
  'fd00:ec2::23',
  'fd20:ce::254',
  'fd00:42::42',
]);

const METADATA_NAMES: ReadonlySet<string> = new Set([
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'metadata.azure.internal',
  'metadata.tencentyun.com',
  'instance-data',
  'instance-data.ec2.internal',
]);
const LOOPBACK_NAMES = /^(([^.]+\.)*localhost|localhost\.localdomain|localhost[46]|ip6-localhost|ip6-loopback)$/;

/** The kind of an address, or undefined if the text is none. Takes only the four-part form of IPv4 and no brackets. */
export function addressOf(text: string): Address | undefined {
  // The library throws for names, which costs more than everything else here.
  if (/^[\d.]+$/.test(text)) {
    return ipaddr.IPv4.isValidFourPartDecimal(text) ? ipv4Address(ipaddr.IPv4.parse(text)) : undefined;
  }
  if (!text.includes(':') || !ipaddr.IPv6.isValid(text)) return undefined;
  const ip = ipaddr.IPv6.parse(text);
  if (ip.isIPv4MappedAddress()) return ipv4Address(ip.toIPv4Address());
  delete ip.zoneId;
  const address = ip.toRFC5952String();
  return { address, range: METADATA.has(address) ? 'metadata' : ipv6Range(ip) };
}

/** The kind of the address that a name always stands for, whatever a name server says. */
export function rangeOfName(host: string): AddressRange | undefined {
  if (METADATA_NAMES.has(host)) return 'metadata';
  return LOOPBACK_NAMES.test(host) ? 'loopback' : undefined;
}

function ipv4Address(ip: ipaddr.IPv4): Address {
  const address = ip.toString();
  return { address, range: METADATA.has(address) ? 'metadata' : ipv4Range(ip) };
}

function ipv4Range(ip: ipaddr.IPv4): AddressRange {
  const range = ip.range();
  switch (range) {
    case 'unicast':
      return 'public';
    case 'carrierGradeNat':
      return 'private';
    // Linux connects 0.0.0.0 to itself.
    case 'unspecified':
    case 'loopback':
      return 'loopback';
    case 'linkLocal':
      return 'link-local';
    case 'private':
    case 'multicast':
      return range;
    default:
      return 'reserved';
  }
}

/** Only global unicast addresses are public: `::127.0.0.1` would count as unicast otherwise. */
function ipv6Range(ip: ipaddr.IPv6): AddressRange {
  const range = ip.range();
  switch (range) {
    case 'unspecified':
    case 'loopback':
      return 'loopback';
    case 'linkLocal':
      return 'link-local';
    case 'uniqueLocal':
      return 'private';
    case 'multicast':
      return 'multicast';
    default:
  }
  const embedded = embeddedIPv4(ip);
  const inner = embedded.map((one) => ipv4Address(one).range).find((one) => one !== 'public');
  if (inner) return inner;
  // Networks without IPv4 reach the public IPv4 addresses through this prefix.
  if (ip.match(NAT64)) return 'public';
  const isGlobal = (ip.parts[0]! & 0xe000) === 0x2000;
  return isGlobal && range === 'unicast' && embedded.length === 0 ? 'public' : 'reserved';
}

const NAT64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96');
const TEREDO = ipaddr.IPv6.parseCIDR('2001::/32');
/** Prefixes with an IPv4 address in them, and the first of the two parts that it takes. */
const EMBEDDING: readonly (readonly [range: [ipaddr.IPv6, number], part: number])[] = [
  [ipaddr.IPv6.parseCIDR('::/96'), 6],
  [ipaddr.IPv6.parseCIDR('::ffff:0:0:0/96'), 6],
  [NAT64, 6],
  [ipaddr.IPv6.parseCIDR('64:ff9b:1::/48'), 6],
  [ipaddr.IPv6.parseCIDR('2002::/16'), 1],
  [TEREDO, 2],
];

function embeddedIPv4(ip: ipaddr.IPv6): ipaddr.IPv4[] {
  const { parts } = ip;
  const found: ipaddr.IPv4[] = [];
  const take = (at: number, mask = 0): void => {
    const [high, low] = [parts[at]! ^ mask, parts[at + 1]! ^ mask];
    found.push(new ipaddr.IPv4([high >> 8, high & 255, low >> 8, low & 255]));
  };
  for (const [range, at] of EMBEDDING) if (ip.match(range)) take(at);
  // Teredo has the inverted address of the client besides that of the server.
  if (ip.match(TEREDO)) take(6, 0xffff);
  // ISATAP, with any prefix.
  if ((parts[4] === 0 || parts[4] === 0x200) && parts[5] === 0x5efe) take(6);
  return found;
}
