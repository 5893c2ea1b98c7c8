import { mkdirSync, statSync } from 'node:fs';
import path from 'node:path';

/**
 * Creates a folder and those above it. True if the folder did not exist. `recursive` of Node never returns where the system
 * reports that the parent does not exist although it does, as in /proc, and reports a read-only disk as a missing folder.
 */
export function createFolder(folder: string, mode = 0o777): boolean {
  try {
    mkdirSync(folder, { mode });
    return true;
  } catch (error) {
    if (isFolder(folder)) return false;
    const parent = path.dirname(folder);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || isFolder(parent) || parent === folder) throw error;
    createFolder(parent, mode);
    return createFolder(folder, mode);
  }
}

function isFolder(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
