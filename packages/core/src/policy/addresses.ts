import type { AddressRange } from './facts.ts';

/* Internet addresses in their usual form, as `UrlFacts` has them: dotted IPv4, and IPv6 without brackets. */

export interface Address {
  readonly bits: 32 | 128;
  readonly value: bigint;
}

/** Addresses with the same first `prefix` bits. */
export interface Cidr extends Address {
  readonly prefix: number;
}

/** Undefined if the text is not an address in its usual form. */
export function parseAddress(text: string): Address | undefined {
  return text.includes(':') ? parseIpv6(text) : parseIpv4(text);
}

function parseIpv4(text: string): Address | undefined {
  const parts = text.split('.');
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256))
    return undefined;
  return { bits: 32, value: parts.reduce((value, part) => (value << 8n) | BigInt(part), 0n) };
}

function parseIpv6(text: string): Address | undefined {
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
  const tail = dotted && parseIpv4(dotted[2]!);
  if (dotted && !tail) return undefined;
  const full = tail ? `${dotted[1]}${(tail.value >> 16n).toString(16)}:${(tail.value & 0xffffn).toString(16)}` : text;
  const halves = full.split('::').map((half) => (half === '' ? [] : half.split(':')));
  const [head = [], rest = []] = halves;
  const missing = 8 - head.length - rest.length;
  if (halves.length > 2 || (halves.length === 2 ? missing < 1 : missing !== 0)) return undefined;
  const groups = [...head, ...Array<string>(missing).fill('0'), ...rest];
  if (!groups.every((group) => /^[\da-f]{1,4}$/i.test(group))) return undefined;
  return { bits: 128, value: groups.reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n) };
}

/** Undefined if the text is not an address with the length of a prefix, such as `10.0.0.0/8`. */
export function parseCidr(text: string): Cidr | undefined {
  const [, address = '', length = ''] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const parsed = parseAddress(address);
  const prefix = Number(length);
  return parsed && prefix <= parsed.bits ? { ...parsed, prefix } : undefined;
}

export function isWithin({ bits, value }: Address, cidr: Cidr): boolean {
  const shift = BigInt(bits - cidr.prefix);
  return bits === cidr.bits && value >> shift === cidr.value >> shift;
}

/** The first that contains an address decides. */
const RANGES: readonly (readonly [AddressRange, readonly string[]])[] = [
  ['metadata', ['169.254.169.254/32', '169.254.170.2/32', '100.100.100.200/32', 'fd00:ec2::254/128']],
  ['loopback', ['127.0.0.0/8', '::1/128']],
  ['private', ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', 'fc00::/7']],
  ['link-local', ['169.254.0.0/16', 'fe80::/10']],
  ['multicast', ['224.0.0.0/4', 'ff00::/8']],
  ['reserved', ['0.0.0.0/8', '192.0.0.0/24', '198.18.0.0/15', '240.0.0.0/4', '192.0.2.0/24', '198.51.100.0/24']],
  ['reserved', ['203.0.113.0/24', '::/128', '100::/64', '2001:db8::/32', '64:ff9b:1::/48', 'fec0::/10']],
];

const COMPILED = RANGES.map(([range, texts]) => [range, texts.map((text) => parseCidr(text)!)] as const);

/** IPv6 addresses that contain an IPv4 address, and how far from the right it is. The range of that address applies. */
const EMBEDDING: readonly (readonly [Cidr, bigint])[] = (
  [
    ['::ffff:0:0/96', 0n],
    ['64:ff9b::/96', 0n],
    ['2002::/16', 80n],
  ] as const
).map(([text, shift]) => [parseCidr(text)!, shift]);

/** The kind of an address. */
export function rangeOf(address: Address): AddressRange {
  const embedding = EMBEDDING.find(([cidr]) => isWithin(address, cidr));
  if (embedding) return rangeOf({ bits: 32, value: (address.value >> embedding[1]) & 0xffff_ffffn });
  const found = COMPILED.find(([, cidrs]) => cidrs.some((cidr) => isWithin(address, cidr)));
  if (found) return found[0];
  // The deprecated form of an IPv4 address in an IPv6 address, `::1.2.3.4`.
  return address.bits === 128 && address.value >> 32n === 0n ? rangeOf({ bits: 32, value: address.value }) : 'public';
}
