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
export { listFiles } from './files/find-files.ts';
export { binaryKindOf, imageTypeOf, isPdf } from './files/file-kind.ts';
export { globTool } from './files/glob.ts';
export { grepTool } from './files/grep.ts';
export { pdfPages, type PdfPages } from './files/pdf-pages.ts';
export { readTool } from './files/read.ts';
export { writeTool } from './files/write.ts';
export { gitBranchTool, gitCommitTool } from './git/commit-branch.ts';
export { gitDiffTool, gitLogTool, gitStatusTool } from './git/inspect.ts';
export { toLegacyResult, type LegacyErrorType, type LegacyFacts, type LegacyResult } from './legacy-result.ts';
export { local, type LocalOptions } from './local/local.ts';
export type {
  ChangeOptions,
  ExecOps,
  ExecRequest,
  Execution,
  Exit,
  FileOps,
  NarrowedRun,
  FileStatus,
  FolderEntry,
  OpenFile,
  Ops,
  OutputChunk,
  ReadHandle,
  Room,
  SandboxFacts,
  WriteOptions,
} from './ops.ts';
export { guardedFiles, type GuardOptions, type PathCheck } from './paths/guarded-files.ts';
export { policyCheck } from './paths/policy-check.ts';
export { questionTool, type QuestionToolOptions } from './planning/question.ts';
export { agentsListTool } from './planning/agents-list.ts';
export {
  taskProgress,
  taskTool,
  type CallableAgents,
  type TaskProgress,
  type TaskToolOptions,
} from './planning/task.ts';
export { todoReadTool, todoWriteTool } from './planning/todos.ts';
export { backgroundTools, jobOf, withBackground, type JobPort } from './shell/background.ts';
export { bashTool } from './shell/bash.ts';
export { MAX_OFFERED_TOOLS, searchableTools, toolSearchTool, type ToolSearchOptions } from './tool-search.ts';
export { codingTools, readOnlyTools } from './tool-sets.ts';
export { pathFacts, type PathOptions } from './paths/path-facts.ts';
