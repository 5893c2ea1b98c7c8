import type { Tool } from '@treadle/core';
import { globTool } from './glob.ts';
import { grepTool, type MayRead } from './grep.ts';
import { readTool } from './read.ts';
import { workspace } from './workspace.ts';

/**
 * Tools that read, list and search the files of one folder. They cannot access other folders, and do not change files.
 * `mayRead`: whether a search may read a file that it finds, by its path relative to the folder; default: all files.
 */
export function fileTools(
  folder: string,
  { mayRead = () => true }: { readonly mayRead?: MayRead } = {},
): readonly Tool[] {
  const space = workspace(folder);
  return [readTool(space), globTool(space), grepTool(space, mayRead)];
}
