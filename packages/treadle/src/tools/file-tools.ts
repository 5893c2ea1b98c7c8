import type { Tool } from '@treadle/core';
import { globTool } from './glob.ts';
import { grepTool } from './grep.ts';
import { readTool } from './read.ts';
import { workspace, type ReadVerdict } from './workspace.ts';

/**
 * Tools that read, list and search the files of one folder, and others if the policy allows it. They do not change files.
 * `readVerdict`: what the policy says about a file or folder when it is opened; default: only the folder can be accessed.
 */
export function fileTools(
  folder: string,
  { readVerdict }: { readonly readVerdict?: ReadVerdict } = {},
): readonly Tool[] {
  const space = workspace(folder, readVerdict);
  return [readTool(space), globTool(space), grepTool(space)];
}
