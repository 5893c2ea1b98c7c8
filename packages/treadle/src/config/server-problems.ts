import type { Config } from './config.ts';
import type { KeyEntry } from './server.ts';

/** What is wrong with [server] beyond the form of its values. */
export function serverProblems({ server }: Config): string[] {
  const open = server?.cors_origins?.includes('*') && !server.keys?.length;
  return [
    ...(open
      ? [
          'server.cors_origins = ["*"] lets every web page use a server without keys. Add [[server.keys]], or list origins',
        ]
      : []),
    ...keyProblems(server?.keys ?? []),
  ];
}

function keyProblems(keys: readonly KeyEntry[]): string[] {
  const names = new Map<string, number>();
  const hashes = new Map<string, number>();
  return keys.flatMap(({ name, hash, scopes }, index) => {
    const at = `server.keys[${index}]`;
    const problems: string[] = [];
    if (name === undefined) problems.push(`${at}.name is missing: what logs call the key`);
    else if (names.has(name))
      problems.push(`${at}.name is also that of server.keys[${names.get(name)}]. Name it otherwise`);
    else names.set(name, index);

    const digest = hash?.toLowerCase();
    if (digest === undefined) {
      problems.push(`${at}.hash is missing. "treadle key new" makes a key and prints its hash`);
    } else if (hashes.has(digest)) {
      problems.push(
        `${at}.hash is also that of server.keys[${hashes.get(digest)}]. Make a key for each with "treadle key new"`,
      );
    } else hashes.set(digest, index);

    if (scopes?.length === 0) problems.push(`${at}.scopes is empty. Leave it out for agents:invoke, or name some`);
    return problems;
  });
}
