/**
 * The name under which signatures are kept: of the protocol and of the host, since no other host takes them, though it
 * may speak the same protocol.
 */
export function signerOf(protocol: string, baseURL: unknown): string {
  const host = typeof baseURL === 'string' ? URL.parse(baseURL)?.host : undefined;
  return `${protocol}@${host ?? ''}`;
}
