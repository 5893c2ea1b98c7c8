import { createHash } from 'node:crypto';
import { readlink } from 'node:fs/promises';
import { join, posix } from 'node:path';
import type { FileOps } from '../ops.ts';
import { guardedFiles } from '../paths/guarded-files.ts';

/* The files of a folder that may have to be trusted, and a digest of them, which changes with every file and link. */

const MAX_FILES = 500;
const MAX_DEPTH = 8;
/** Of one file that has to be trusted, and of all in a folder. */
const MAX_TRUSTED_BYTES = 20_000_000;
const MAX_FOLDER_BYTES = 100_000_000;
const MAX_READ = 1_000_000;

export interface ListedFiles {
  /** The plain files, relative to the folder, in order. */
  readonly paths: readonly string[];
  /** Links and devices, which are not read. */
  readonly others: readonly string[];
  /** There are more, or deeper ones, than are listed. */
  readonly isCut: boolean;
}

export async function listFiles(files: FileOps, folder: string): Promise<ListedFiles> {
  const paths: string[] = [];
  const others: string[] = [];
  let isCut = false;
  const walk = async (below: string, depth: number): Promise<void> => {
    const entries = await files.list(posix.join(folder, below));
    for (const { name, type } of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = posix.join(below, name);
      if (paths.length + others.length === MAX_FILES || (type === 'folder' && depth === MAX_DEPTH)) isCut = true;
      else if (type === 'file') paths.push(path);
      else if (type === 'folder') await walk(path, depth + 1);
      else others.push(path);
    }
  };
  await walk('', 0);
  return { paths, others, isCut };
}

/**
 * Throws if there is too much to read: what is not known cannot be trusted. `known`: what was read before, so that the digest is
 * of that. `onRead` gets how many bytes were read.
 */
export async function digestOf(
  files: FileOps,
  folder: string,
  { paths, others, isCut }: ListedFiles,
  { known, onRead }: { readonly known?: ReadonlyMap<string, Uint8Array>; onRead?(bytes: number): void } = {},
): Promise<string> {
  if (isCut) throw new Error(`it has more than ${MAX_FILES} files, or folders more than ${MAX_DEPTH} deep`);
  const lines: string[] = [];
  let bytes = 0;
  for (const path of paths) {
    const content = known?.get(path) ?? (await readWhole(files, posix.join(folder, path), MAX_TRUSTED_BYTES));
    bytes += content.length;
    onRead?.(content.length);
    if (bytes > MAX_FOLDER_BYTES) throw new Error(`its files have more than ${MAX_FOLDER_BYTES} bytes`);
    lines.push(`${JSON.stringify(path)} ${hashOf(content)}`);
  }
  for (const path of others) {
    // What it leads to is not read.
    const target = await readlink(join(folder, path)).catch(() => '');
    lines.push(`${JSON.stringify(path)} -> ${JSON.stringify(target)}`);
  }
  return `${posix.basename(folder)} ${hashOf(lines.join('\n'))}`;
}

export function hashOf(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

export async function readWhole(files: FileOps, path: string, max: number): Promise<Uint8Array> {
  const { handle, size } = await files.open(path);
  try {
    if (size > max) throw new Error(`${posix.basename(path)} has ${size} bytes, and ${max} are allowed`);
    const content = Buffer.alloc(size);
    let filled = 0;
    while (filled < size) {
      const { bytesRead } = await handle.read(content, filled, Math.min(MAX_READ, size - filled), filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return content.subarray(0, filled);
  } finally {
    await handle.close();
  }
}

/** Of a folder without links: what they lead to could change without being noticed. */
export async function folderDigest(folder: string): Promise<string> {
  const files = guardedFiles({ folder });
  const listed = await listFiles(files, folder);
  if (listed.others.length > 0) throw new Error(`${JSON.stringify(listed.others[0])} is not a plain file`);
  return digestOf(files, folder, listed);
}
