import type { Tool } from '@treadle/core';
import { applyPatchTool } from './files/apply-patch.ts';
import { editTool } from './files/edit.ts';
import { globTool } from './files/glob.ts';
import { grepTool } from './files/grep.ts';
import { readTool } from './files/read.ts';
import { gitBranchTool, gitCommitTool, gitDiffTool, gitLogTool, gitStatusTool } from './git/git-tools.ts';
import { writeTool } from './files/write.ts';
import type { Ops } from './ops.ts';
import { backgroundTools, withBackground } from './shell/background.ts';
import { bashTool } from './shell/bash.ts';

/** Tools that look at files, and change nothing. */
export function readOnlyTools(ops: Ops): readonly Tool[] {
  return [readTool(ops), globTool(ops), grepTool(ops)];
}

/** Tools for work on a project: files, shell, git. */
export function codingTools(ops: Ops): readonly Tool[] {
  return [
    ...readOnlyTools(ops),
    writeTool(ops),
    editTool(ops),
    applyPatchTool(ops),
    gitStatusTool(ops),
    gitDiffTool(ops),
    gitLogTool(ops),
    gitCommitTool(ops),
    gitBranchTool(ops),
    withBackground(bashTool(ops)),
    ...backgroundTools(),
  ];
}
