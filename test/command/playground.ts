import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** A temporary folder with a file that contains a random word. */
export interface Playground {
  readonly folder: string;
  readonly nonce: string;
  write(path: string, text: string): Promise<void>;
  remove(): Promise<void>;
}

export async function playground(): Promise<Playground> {
  const folder = await mkdtemp(join(tmpdir(), 'treadle-play-'));
  const nonce = `nonce-${randomBytes(6).toString('hex')}`;
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  };
  await write('notes.txt', `the word is ${nonce}\n`);
  return { folder, nonce, write, remove: () => rm(folder, { recursive: true }) };
}
