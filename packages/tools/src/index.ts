export { commandFacts, type CommandOptions } from './commands/command-facts.ts';
export { DeniedError } from './denied.ts';
export {
  httpClient,
  type HttpClient,
  type HttpOptions,
  type HttpReply,
  type HttpRequest,
  type UrlCheck,
} from './http/client.ts';
export { urlFacts } from './http/url-facts.ts';
export { applyPatchTool } from './files/apply-patch.ts';
export { editTool } from './files/edit.ts';
export { globTool } from './files/glob.ts';
export { grepTool } from './files/grep.ts';
export { readTool } from './files/read.ts';
export { gitBranchTool, gitCommitTool, gitDiffTool, gitLogTool, gitStatusTool } from './git/git-tools.ts';
export { writeTool } from './files/write.ts';
export { local, type LocalOptions } from './local/local.ts';
export type {
  ExecOps,
  ExecRequest,
  Execution,
  Exit,
  FileOps,
  FileStatus,
  FolderEntry,
  OpenFile,
  Ops,
  OutputChunk,
  ReadHandle,
  WriteOptions,
} from './ops.ts';
export { guardedFiles, type GuardOptions, type PathCheck } from './paths/guarded-files.ts';
export { policyCheck } from './paths/policy-check.ts';
export { backgroundTools, jobOf, withBackground, type JobPort } from './shell/background.ts';
export { bashTool } from './shell/bash.ts';
export { codingTools, readOnlyTools } from './tool-sets.ts';
export { pathFacts, type PathOptions } from './paths/path-facts.ts';
