import type { Tool } from '@treadle/core';
import { globTool } from './files/glob.ts';
import { grepTool } from './files/grep.ts';
import { readTool } from './files/read.ts';
import { writeTool } from './files/write.ts';
import type { Ops } from './ops.ts';

/** Tools that look at files, and change nothing. */
export function readOnlyTools(ops: Ops): readonly Tool[] {
  return [readTool(ops), globTool(ops), grepTool(ops)];
}

/** Tools for work on a project: files, shell, git. */
export function codingTools(ops: Ops): readonly Tool[] {
  return [...readOnlyTools(ops), writeTool(ops)];
}
