import { createHash, randomUUID } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import { open, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TreadleError } from '@treadle/core';
import { createFolder } from './folders.ts';

/** Keeps secrets such as tokens by name. The values are never part of a journal, a backup or a log. */
export interface Secrets {
  get(name: string): Promise<string | undefined>;
  set(name: string, value: string): Promise<void>;
  /** Does nothing if there is no such secret. */
  delete(name: string): Promise<void>;
}

/**
 * Secrets in a folder with mode 0700, each in a file with mode 0600. A change replaces the file, so that a reader in another
 * process sees the old or the new value. The folder is created for the first secret, and has a .gitignore.
 */
export function fileSecrets(folder: string): Secrets {
  // A name may contain anything, and different names must not share a file on systems that ignore case.
  const fileOf = (name: string): string => join(folder, `${createHash('sha256').update(name).digest('hex')}.secret`);
  return {
    get: (name) => readSecret(fileOf(name)),
    async set(name, value) {
      const file = fileOf(name);
      const next = `${file}.${randomUUID()}`;
      createFolder(folder, 0o700);
      const ignore = join(folder, '.gitignore');
      if (!existsSync(ignore)) await writeFile(ignore, '*\n');
      try {
        const handle = await open(next, 'wx', 0o600);
        try {
          await handle.writeFile(value);
          await handle.sync();
        } finally {
          await handle.close();
        }
        await rename(next, file);
      } catch (error) {
        await rm(next, { force: true });
        throw error;
      }
    },
    delete: (name) => rm(fileOf(name), { force: true }),
  };
}

async function readSecret(file: string): Promise<string | undefined> {
  let handle;
  try {
    handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const { mode } = await handle.stat();
    // Windows has no such modes.
    if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
      const why = `The file ${file} contains a secret, and other users may access it`;
      throw new TreadleError('invalid-options', `${why}. Run: chmod 600 ${file}`);
    }
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** Secrets that end with the process. */
export function memorySecrets(): Secrets {
  const values = new Map<string, string>();
  return {
    get: async (name) => values.get(name),
    set: async (name, value) => void values.set(name, value),
    delete: async (name) => void values.delete(name),
  };
}
