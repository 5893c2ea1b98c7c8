import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { CommandError } from '../command-error.ts';

/** Where runs are kept. */
export type StorePlace = { readonly type: 'memory' } | { readonly type: 'sqlite'; readonly file: string };

export const DEFAULT_STORE = 'sqlite:.treadle/treadle.db';

/** `from`: what names it, for messages; `folder`: what a relative path starts from. Never shows a URL with a password. */
export function storePlace(url: string, { from, folder }: { from: string; folder: string }): StorePlace {
  if (url === 'memory:') return { type: 'memory' };
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme === 'postgres' || scheme === 'postgresql') {
    throw new CommandError(
      `${from} names PostgreSQL, which comes in a later version. Until then runs are kept in a file: sqlite:PATH.`,
    );
  }
  if (scheme === undefined) {
    throw new CommandError(`${from} must be sqlite:PATH or memory:. If ${url} is a file, write sqlite:${url}.`);
  }
  if (scheme !== 'sqlite') throw new CommandError(`${from} must be sqlite:PATH or memory:, not ${scheme}:.`);
  const path = url.slice('sqlite:'.length);
  if (path === ':memory:') return { type: 'memory' };
  if (path === '' || /^\/\/[^/]/.test(path)) {
    throw new CommandError(`${from} needs a path: sqlite:runs.db, or sqlite:/folder/runs.db.`);
  }
  return { type: 'sqlite', file: path.startsWith('~/') ? join(homedir(), path.slice(2)) : resolve(folder, path) };
}
