import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { memoryJournal, TreadleError, type RunStore } from '@treadle/core';
import type { Store } from '@treadle/store';
import type * as StorePackage from '@treadle/store';
import { CommandError } from '../command-line/command.ts';

/** Files of this machine that belong to the store, such as secrets, begin with `file`. */
export type StoreLocation =
  | { readonly type: 'memory' }
  | { readonly type: 'sqlite'; readonly file: string }
  | { readonly type: 'postgres'; readonly file: string; readonly url: string };

export const DEFAULT_STORE = 'sqlite:.treadle/treadle.db';

/** `from` names the URL in errors, `folder` is the base of a relative path. Errors never contain a password. */
export function parseStoreUrl(url: string, { from, folder }: { from: string; folder: string }): StoreLocation {
  if (url === 'memory:') return { type: 'memory' };
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme === 'postgres' || scheme === 'postgresql') {
    if (!URL.canParse(url)) {
      throw new CommandError(
        `${from} must be postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password escaped as in %40.`,
      );
    }
    return { type: 'postgres', url, file: resolve(folder, '.treadle/postgres') };
  }
  if (scheme === undefined) {
    throw new CommandError(
      `${from} must be sqlite:PATH, postgres://HOST/DATABASE or memory:. If ${url} is a file, write sqlite:${url}.`,
    );
  }
  if (scheme !== 'sqlite')
    throw new CommandError(`${from} must be sqlite:PATH, postgres://HOST/DATABASE or memory:, not ${scheme}:.`);
  const path = url.slice('sqlite:'.length);
  if (path === ':memory:') return { type: 'memory' };
  if (path === '' || /^\/\/[^/]/.test(path)) {
    throw new CommandError(`${from} needs a path: sqlite:runs.db, or sqlite:/folder/runs.db.`);
  }
  return { type: 'sqlite', file: path.startsWith('~/') ? join(homedir(), path.slice(2)) : resolve(folder, path) };
}

/** A store of runs. What keeps nothing has only these. */
export type SessionStore = RunStore &
  Partial<Pick<Store, 'rates' | 'keptProcesses' | 'budgets' | 'memory' | 'metrics'>>;

/** Opens the store of a command that creates runs, which `remembers` if [memory] is on. Creates the store if it does not exist. */
export async function openStore(
  location: StoreLocation,
  { remembers = false }: { readonly remembers?: boolean } = {},
): Promise<SessionStore> {
  if (location.type === 'memory') return remembers ? openUrl('memory:') : memoryJournal();
  if (location.type === 'sqlite') await createStoreFolder(dirname(location.file));
  return durablyRead(await openUrl(urlOf(location), 'Or run without storing anything: --store memory:'));
}

/** Opens the store of a server, which stores responses beside runs. */
export async function openServerStore(location: StoreLocation): Promise<Store> {
  if (location.type === 'memory') return openUrl('memory:');
  if (location.type === 'sqlite') await createStoreFolder(dirname(location.file));
  return openUrl(urlOf(location), 'Or serve without storing anything: --store memory:');
}

/** Opens the store of a command that needs existing runs. */
export async function openExistingStore(location: StoreLocation): Promise<Store> {
  rejectMemoryStore(location);
  if (location.type === 'sqlite' && !existsSync(location.file)) throw new CommandError(missingStoreText(location.file));
  return durablyRead(await openUrl(urlOf(location)));
}

/**
 * The store for a command, which may print whatever it reads, also in a notice or an error. So a read returns when what it has
 * found is durable: a server may just have written it.
 */
function durablyRead(store: Store): Store {
  const durably =
    <A extends readonly unknown[], T>(read: (...args: A) => Promise<T>) =>
    async (...args: A): Promise<T> => {
      const found = await read(...args);
      await store.durable();
      return found;
    };
  const { blobs, requests } = store;
  return {
    ...store,
    list: durably(store.list),
    read: durably(store.read),
    isDriven: durably(store.isDriven),
    blobs: { ...blobs, read: durably(blobs.read), list: durably(blobs.list) },
    requests: { ...requests, hasRun: durably(requests.hasRun) },
  };
}

type StoredLocation = Exclude<StoreLocation, { readonly type: 'memory' }>;

function urlOf(location: StoredLocation): string {
  return location.type === 'postgres' ? location.url : `sqlite:${location.file}`;
}

/** The store for people, without a password. */
export function storeText(location: StoreLocation): string {
  if (location.type === 'memory') return 'in memory, deleted when the server stops';
  if (location.type === 'sqlite') return location.file;
  const { protocol, username, host, pathname } = new URL(location.url);
  return `${protocol}//${username === '' ? '' : `${username}@`}${host}${pathname}`;
}

/** For commands that work on the file of a store. */
export function requireStoreInFile(location: StoreLocation): asserts location is StoreLocation & { type: 'sqlite' } {
  rejectMemoryStore(location);
  if (location.type === 'sqlite') return;
  throw new CommandError(
    `The store ${storeText(location)} is a database of PostgreSQL. Back it up and restore it with the tools of PostgreSQL, such as pg_dump and pg_restore, or copy it to a file with "treadle store migrate"; "treadle runs export" saves single runs.`,
  );
}

export function rejectMemoryStore(location: StoreLocation): asserts location is StoredLocation {
  if (location.type !== 'memory') return;
  throw new CommandError(
    'A memory: store ends with the command that uses it. Name another store: --store sqlite:PATH.',
  );
}

export function missingStoreText(file: string): string {
  return `There are no runs yet: ${file} does not exist. "treadle run" creates it; --store, --cwd and --config name another.`;
}

async function openUrl(url: string, alternative?: string): Promise<Store> {
  const { openStore: open } = await loadStorePackage();
  try {
    return await withoutWarnings(() => open(url));
  } catch (error) {
    if (!(error instanceof TreadleError)) throw error;
    throw new CommandError(alternative === undefined ? error.message : `${error.message}\n${alternative}`);
  }
}

export function loadStorePackage(): Promise<typeof StorePackage> {
  return withoutWarnings(() => import('@treadle/store'));
}

/** Creates `.treadle`, for this user alone, with a .gitignore. Ignores errors: opening the store reports them. */
export async function createStoreFolder(folder: string): Promise<void> {
  if (basename(folder) !== '.treadle') return;
  try {
    const { createFolder } = await loadStorePackage();
    if (createFolder(folder, 0o700)) await writeFile(join(folder, '.gitignore'), '*\n');
  } catch {}
}

/** Node 22 prints an experimental warning when SQLite is loaded. Users cannot act on it. */
async function withoutWarnings<T>(load: () => Promise<T>): Promise<T> {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return await load();
  } finally {
    process.emitWarning = emitWarning;
  }
}
