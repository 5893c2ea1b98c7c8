import { closeSync, fsyncSync, mkdirSync, openSync, statSync } from 'node:fs';
import path from 'node:path';

/**
 * Creates a folder and those above it, so that they survive a power failure. True if the folder did not exist. `recursive` of Node never returns where the system
 * reports that the parent does not exist although it does, as in /proc, and reports a read-only disk as a missing folder.
 */
export function createFolder(folder: string, mode = 0o777): boolean {
  try {
    mkdirSync(folder, { mode });
    syncNameOf(folder);
    return true;
  } catch (error) {
    if (isFolder(folder)) return false;
    const parent = path.dirname(folder);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || isFolder(parent) || parent === folder) throw error;
    createFolder(parent, mode);
    return createFolder(folder, mode);
  }
}

/** A file that is synced is lost all the same if the name of its folder is not. Not every system can sync a folder. */
function syncNameOf(folder: string): void {
  try {
    const descriptor = openSync(path.dirname(folder), 'r');
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch {}
}

function isFolder(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
