import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { homedir } from 'node:os';
import { memoryJournal, TreadleError, type RunStore } from '@treadle/core';
import type { SqliteStore } from '@treadle/store';
import { CommandError } from '../command-line/command.ts';

/** For a command that makes runs: the store is made if it is not there. */
export async function openStore(place: StorePlace): Promise<RunStore> {
  if (place.type === 'memory') return memoryJournal();
  await makeFolder(dirname(place.file));
  return open(place.file, 'Or go on without keeping the run: --store memory:');
}

/** For a server, which keeps responses beside runs. */
export async function openServerStore(place: StorePlace): Promise<SqliteStore> {
  if (place.type === 'memory') return open(':memory:');
  await makeFolder(dirname(place.file));
  return open(place.file, 'Or serve without keeping anything: --store memory:');
}

/** For a command that looks at runs. */
export async function openExistingStore(place: StorePlace): Promise<SqliteStore> {
  if (place.type === 'memory') {
    throw new CommandError('memory: keeps no run beyond the command that made it. Name a store: --store sqlite:PATH.');
  }
  if (!existsSync(place.file)) throw new CommandError(noStore(place.file));
  return open(place.file);
}

export function noStore(file: string): string {
  return `There are no runs yet: ${file} is not there. "treadle run" makes it; --store, --cwd and --config look elsewhere.`;
}

async function open(file: string, otherwise?: string): Promise<SqliteStore> {
  const { sqliteStore } = await withoutWarning(() => import('@treadle/store'));
  try {
    return sqliteStore(file);
  } catch (error) {
    if (!(error instanceof TreadleError)) throw error;
    throw new CommandError(otherwise === undefined ? error.message : `${error.message}\n${otherwise}`);
  }
}

/** A folder of our own is nothing to commit. If it cannot be made, the store says why. */
async function makeFolder(folder: string): Promise<void> {
  if (basename(folder) !== '.treadle') return;
  try {
    if ((await mkdir(folder, { recursive: true })) !== undefined) await writeFile(join(folder, '.gitignore'), '*\n');
  } catch {}
}

/** Node 22 warns on standard error when SQLite is first used, which is nothing that a user could act on. */
async function withoutWarning<T>(load: () => Promise<T>): Promise<T> {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return await load();
  } finally {
    process.emitWarning = emitWarning;
  }
}

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
