import type { Tool } from '@treadle/core';
import { globTool } from './glob.ts';
import { grepTool } from './grep.ts';
import { readTool } from './read.ts';
import { workspace, type MayRead } from './workspace.ts';

/**
 * Tools that read, list and search the files of one folder. They cannot access other folders, and do not change files.
 * `mayRead`: whether a file or folder may be read, by its absolute path, asked when it is opened; default: all.
 */
export function fileTools(folder: string, { mayRead }: { readonly mayRead?: MayRead } = {}): readonly Tool[] {
  const space = workspace(folder, mayRead);
  return [readTool(space), globTool(space), grepTool(space)];
}
