const OWN_FILES = 'AGENTS.md, skills, .agents and treadle.toml';

/** What a sandbox may have stopped, by what programs print about it. */
const SIGNS: readonly { readonly sign: RegExp; readonly what: (place: Place) => string }[] = [
  {
    sign: /could not resolve host|could not resolve proxy|temporary failure in name resolution|name or service not known|network is unreachable|EAI_AGAIN|ENETUNREACH|getaddrinfo|nodename nor servname|no route to host|failed to lookup address/i,
    what: ({ hasNetwork }) =>
      hasNetwork ? 'there is no network besides the proxy that HTTP_PROXY and HTTPS_PROXY name' : 'there is no network',
  },
  {
    sign: /The sandbox does not allow [^\n]*|CONNECT tunnel failed, response 403|403 Forbidden/,
    what: () => 'the host is not allowed',
  },
  {
    sign: /could not (write|lock) config file|config\.lock|\.git\/config/i,
    what: () => '.git/config and .git/hooks are read-only',
  },
  {
    sign: /\[sandbox: commands may not (create|replace)/,
    what: () => `${OWN_FILES} cannot be created`,
  },
  {
    sign: /read-only file system|EROFS|device or resource busy|EBUSY/i,
    what: ({ folder }) => `only ${folder} and /tmp can be written, without the hooks and settings of git, ${OWN_FILES}`,
  },
  {
    sign: /permission denied|EACCES|operation not permitted|EPERM/i,
    what: () => 'private files, other processes and devices cannot be used, and no file gets the setuid or setgid bit',
  },
];

interface Place {
  readonly folder: string;
  readonly hasNetwork: boolean;
}

/** Says what the sandbox may have stopped. Undefined if the output does not look like it. */
export function blockedText(output: string, place: Place): string | undefined {
  const found = SIGNS.filter(({ sign }) => sign.test(output)).map(({ what }) => what(place));
  if (found.length === 0) return undefined;
  return (
    `The sandbox may have stopped this: ${[...new Set(found)].join('; ')}. If the task needs it, repeat the call with ` +
    'outside: "why it is needed". A person is asked then.'
  );
}
