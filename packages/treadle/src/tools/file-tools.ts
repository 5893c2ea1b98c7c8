import type { Tool } from '@treadle/core';
import { globTool } from './glob.ts';
import { grepTool } from './grep.ts';
import { readTool } from './read.ts';
import { workspace } from './workspace.ts';

/** Tools that read, list and search the files of one folder. They cannot access other folders, and do not change files. */
export function fileTools(folder: string): readonly Tool[] {
  const space = workspace(folder);
  return [readTool(space), globTool(space), grepTool(space)];
}
