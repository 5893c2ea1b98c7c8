import { readFileSync } from 'node:fs';

export function version(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(file) as { version: string }).version;
}

/** The packages support it and later versions. */
export const OLDEST_NODE = '22.18';

export function isOldNode(node: string): boolean {
  const [major = 0, minor = 0] = node.split('.').map(Number);
  return major < 22 || (major === 22 && minor < 18);
}
