import { isWithin, parseAddress, parseCidr, rangeOf, type Cidr } from './addresses.ts';
import type { AddressRange, UrlFacts } from './facts.ts';
import { amountText, onText } from './places.ts';
import { ALLOWED, listed, jointOpinion, type Judge, type Rule, type TouchedUrl } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Domains. An entry is a host (`example.com`), all hosts below one (`*.example.com`), an address, a range of addresses
 * (`10.0.0.0/8`), or `*`; hosts and addresses may have a port. The most specific entry decides: one with a port, a host or
 * address, the longest range or name, `*`; of equals the strictest. An address that is not public is denied unless an entry
 * other than `*` lists it, and a name that is not public is asked about. Another host that no entry matches is left to the
 * autonomy rule, and so are protocols other than those of the web unless the entry has a port.
 */

export function domainsRule(judgeUrl: Judge<TouchedUrl>): Rule {
  return {
    name: 'domains',
    judge: ({ urls }) => jointOpinion(urls.map(judgeUrl)),
    saw: ({ urls }) => (urls.length === 0 ? 'it makes no requests' : urls.map(destination).join(', ')),
  };
}

function destination({ given, facts: { scheme, host, port, range, unclear }, on, bytes }: TouchedUrl): string {
  if (unclear !== undefined) return `${JSON.stringify(given)} (unclear: ${unclear})${onText(on)}`;
  const kind = range === undefined ? '' : ` (${range})`;
  return `${scheme} to ${host} port ${port}${kind}${amountText(bytes, 'byte')}${onText(on)}`;
}

/** What an entry matches. The higher the rank, the more specific. */
export interface DomainEntry {
  readonly text: string;
  readonly rank: number;
  matches(facts: UrlFacts): boolean;
}

/** The lowest rank of an entry with a port. */
const WITH_PORT = 10_000;

/** Undefined if the text is not an entry. */
export function domainEntry(text: string): DomainEntry | undefined {
  if (text === '*') return { text, rank: 0, matches: ({ range = 'public' }) => range === 'public' };
  const cidr = text.includes('/') ? parseCidr(text) : undefined;
  if (text.includes('/')) return cidr && { text, rank: 1000 + cidr.prefix, matches: ({ host }) => inRange(host, cidr) };
  const [, below = '', name = '', digits] =
    /^(\*\.)?(\[[^\]]+\]|[^:@?#[\]\s*]+|[\da-f:]+:[\da-f:.]*)(?::(\d{1,5}))?$/i.exec(text) ?? [];
  const host = name === '' ? undefined : asciiHost(name);
  if (host === undefined || (below !== '' && parseAddress(host))) return undefined;
  const port = digits === undefined ? undefined : Number(digits);
  if (port !== undefined && port > 65_535) return undefined;
  const suffix = `.${host}`;
  return {
    text,
    rank: (port === undefined ? 0 : WITH_PORT) + (below === '' ? 5000 : 1000 + host.length),
    matches: (facts) =>
      (below === '' ? facts.host === host : facts.host.endsWith(suffix)) && (port === undefined || facts.port === port),
  };
}

function inRange(host: string, cidr: Cidr): boolean {
  const address = parseAddress(host);
  return address !== undefined && isWithin(address, cidr);
}

/** As `UrlFacts` has it; undefined if it is not the name of a host. */
function asciiHost(name: string): string | undefined {
  const bracketed = name.includes(':') && !name.startsWith('[') ? `[${name}]` : name;
  const url = URL.parse(`http://${bracketed}/`);
  return url?.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '') || undefined;
}

/** For an analyser that does not tell the range of an address. */
function textRange(host: string): AddressRange {
  const address = parseAddress(host);
  return address ? rangeOf(address) : 'public';
}

/**
 * Top-level domains that are not public: reserved ones (RFC 6761, 6762, 7686, 8375, 9476, and `internal`), those that are never
 * delegated because networks use them, and those of clusters and containers.
 */
const INTERNAL: ReadonlySet<string> = new Set(
  (
    'alt arpa invalid local localhost onion test internal corp home mail intranet lan private localdomain domain workgroup ' +
    'svc pod default cluster k8s kube consul docker containers'
  ).split(' '),
);

/**
 * A name is public only if it has the shape of one: several labels, of which the last is a word that is not in `INTERNAL`.
 * Resolvers complete other names, such as `db` or `db.kube-system`, within their own network.
 */
function isPublicName(host: string): boolean {
  const labels = host.toLowerCase().split('.');
  const last = labels.at(-1)!;
  const isWord = /^([a-z]{2,}|xn--[a-z\d-]+)$/.test(last);
  return labels.length > 1 && !labels.includes('') && isWord && !INTERNAL.has(last);
}

const WEB = ['http', 'https', 'ws', 'wss'];

export function urlJudge({ domains = {} }: PolicyRules): Judge<TouchedUrl> {
  const entries = (['deny', 'ask', 'allow'] as const)
    .flatMap((verdict) => (domains[verdict] ?? []).map((text) => ({ verdict, entry: domainEntry(text)! })))
    // Stable, so that of equals the strictest comes first.
    .toSorted((a, b) => b.entry.rank - a.entry.rank);
  const allowed = domains.allow ?? [];
  const instead =
    allowed.length === 0 ? 'No hosts are listed as allowed.' : `These hosts are allowed: ${listed(allowed, 10)}.`;
  return ({ given, facts }) => {
    const { scheme, host, unclear } = facts;
    const range = facts.range ?? textRange(host);
    const problem = unclear ?? (host === '' ? 'it has no host' : undefined);
    if (problem !== undefined) {
      return { type: 'deny', reason: `the URL ${JSON.stringify(given)} cannot be judged: ${problem}. ${instead}` };
    }
    const found = entries.find(({ entry }) => entry.matches(facts));
    const isListed = found !== undefined && found.entry.text !== '*';
    if (range !== 'public' && !isListed) {
      return {
        type: 'deny',
        reason: `the address of "${host}" is not public (${range}), and is not listed. ${instead}`,
      };
    }
    if (found?.verdict === 'deny') {
      return { type: 'deny', reason: `the entry "${found.entry.text}" denies "${host}". ${instead}` };
    }
    if (found?.verdict === 'ask')
      return { type: 'ask', reason: `the entry "${found.entry.text}" asks about "${host}"` };
    if (!isListed && !parseAddress(host) && !isPublicName(host)) {
      return { type: 'ask', reason: `"${host}" is not a public name, and no entry other than "*" lists it` };
    }
    if (!found) return undefined;
    const { entry } = found;
    // Over other protocols a host gets the keys of the user, or runs commands: an entry has to name their port.
    return WEB.includes(scheme) || entry.rank >= WITH_PORT ? ALLOWED : undefined;
  };
}
