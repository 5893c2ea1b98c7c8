import type { Tool } from '@treadle/core';
import { applyPatchTool } from './files/apply-patch.ts';
import { editTool } from './files/edit.ts';
import { globTool } from './files/glob.ts';
import { grepTool } from './files/grep.ts';
import { readTool } from './files/read.ts';
import { writeTool } from './files/write.ts';
import { gitBranchTool, gitCommitTool } from './git/commit-branch.ts';
import { gitDiffTool, gitLogTool, gitStatusTool } from './git/inspect.ts';
import type { Ops } from './ops.ts';
import { todoReadTool, todoWriteTool } from './planning/todos.ts';
import { backgroundTools, withBackground } from './shell/background.ts';
import { bashTool } from './shell/bash.ts';

/** Tools that look at files, and change nothing. */
export function readOnlyTools(ops: Ops): readonly Tool[] {
  return [readTool(ops), globTool(ops), grepTool(ops)];
}

/**
 * Tools for work on a project: files, shell, git, todos. `question` and `task` depend on who runs it, so they are added. `programs`:
 * where commands and git run, if that is a sandbox.
 */
export function codingTools(ops: Ops, programs: { readonly bash?: Ops; readonly git?: Ops } = {}): readonly Tool[] {
  const { bash = ops, git = ops } = programs;
  return [
    ...readOnlyTools(ops),
    writeTool(ops),
    editTool(ops),
    applyPatchTool(ops),
    withBackground(bashTool(bash)),
    ...backgroundTools(),
    gitStatusTool(git),
    gitDiffTool(git),
    gitLogTool(git),
    gitCommitTool(git),
    gitBranchTool(git),
    todoWriteTool(),
    todoReadTool(),
  ];
}
