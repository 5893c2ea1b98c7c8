import type { UrlFacts } from '@treadle/core/policy';
import { addressOf, rangeOfName } from './addresses.ts';

/** Schemes of requests that go to a host, and their ports. Others, such as `file`, are not judged as requests. */
const PORTS: Readonly<Record<string, number>> = {
  http: 80,
  https: 443,
  ws: 80,
  wss: 443,
  ftp: 21,
  ssh: 22,
  sftp: 22,
  git: 9418,
};
/** Schemes in which a user name is part of every address, as in `ssh://git@example.com`. */
const WITH_USER = ['ssh', 'sftp'];

const MAX_CHARS = 8192;

/**
 * Finds out where a request goes, without asking name servers. A URL that programs read in different ways is unclear: one
 * with user names or passwords, backslashes, blanks, control characters, or without `//`.
 */
export function urlFacts(url: string): UrlFacts {
  const scheme = /^[a-z][a-z0-9+.-]*(?=:)/i.exec(url)?.[0].toLowerCase() ?? '';
  const unclear = (reason: string): UrlFacts => ({ scheme, host: '', port: 0, unclear: reason });
  if (url.length > MAX_CHARS) return unclear(`the URL has more than ${MAX_CHARS} characters`);
  if (scheme === '') return unclear('the URL has no scheme; give one such as https://example.com/page');
  if (!Object.hasOwn(PORTS, scheme)) return unclear(`requests with the scheme ${scheme} are not supported; use https`);
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0020\u007f-\u00a0\\]/.test(url)) {
    return unclear('the URL contains a blank, a backslash or a control character; encode it');
  }
  const authority = /^:\/\/([^/?#]*)/.exec(url.slice(scheme.length))?.[1];
  if (!authority) return unclear(`the URL has no host; write ${scheme}://example.com/page`);
  const at = authority.lastIndexOf('@');
  if (at >= 0 && !(WITH_USER.includes(scheme) && /^[\w.-]+$/.test(authority.slice(0, at)))) {
    return unclear('the URL contains a user name or password; remove it');
  }
  let parsed: URL;
  try {
    // Only for http does the parser read all forms of hosts and addresses.
    parsed = new URL(`http://${authority.slice(at + 1)}/`);
  } catch {
    return unclear('the host or port of the URL is malformed');
  }
  const explicit = /:(\d+)$/.exec(authority)?.[1];
  const port = explicit === undefined ? PORTS[scheme]! : Number(explicit);
  const literal = addressOf(parsed.hostname.replace(/^\[(.*)\]$/, '$1'));
  if (literal) return { scheme, host: literal.address, port, range: literal.range };
  const host = parsed.hostname.replace(/\.$/, '');
  if (host === '' || host.split('.').includes('') || host.length > 253)
    return unclear('the host of the URL is malformed');
  const range = rangeOfName(host);
  return range ? { scheme, host, port, range } : { scheme, host, port };
}
