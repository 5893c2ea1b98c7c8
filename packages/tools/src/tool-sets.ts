import type { Tool } from '@treadle/core';
import { globTool } from './files/glob.ts';
import { grepTool } from './files/grep.ts';
import { readTool } from './files/read.ts';
import { writeTool } from './files/write.ts';
import type { Ops } from './ops.ts';
import { todoReadTool, todoWriteTool } from './planning/todos.ts';

/** Tools that look at files, and change nothing. */
export function readOnlyTools(ops: Ops): readonly Tool[] {
  return [readTool(ops), globTool(ops), grepTool(ops)];
}

/** Tools for work on a project: files, shell, git, todos. `question` and `task` depend on who runs it, so they are added. */
export function codingTools(ops: Ops): readonly Tool[] {
  return [...readOnlyTools(ops), writeTool(ops), todoWriteTool(), todoReadTool()];
}
