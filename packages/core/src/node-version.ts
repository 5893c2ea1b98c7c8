/** The packages support this Node and later ones. */
export const OLDEST_NODE = '22.18';

/** The version of Node that runs this; undefined on other runtimes, of which some look like an old Node. */
export function nodeVersion(): string | undefined {
  const { process, navigator } = globalThis as {
    readonly process?: { readonly versions?: { readonly node?: string } };
    readonly navigator?: { readonly userAgent?: string };
  };
  return /^(Bun|Deno|Cloudflare)/.test(navigator?.userAgent ?? '') ? undefined : process?.versions?.node;
}

/** What to do about a Node that is too old; undefined for another one. */
export function oldNodeProblem(node: string | undefined): string | undefined {
  const [major = 99, minor = 0] = node?.split('.').map(Number) ?? [];
  if (major > 22 || (major === 22 && minor >= 18)) return;
  return `This is Node ${node}. Treadle needs Node ${OLDEST_NODE} or later. Install it: https://nodejs.org`;
}
