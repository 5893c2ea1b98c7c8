export { agentTool, type AgentToolDefinition } from './agents/agent-tool.ts';
export type { AttemptEnd, ExecuteCallbacks, ExecutionState } from './agents/callbacks.ts';
export {
  defineAgent,
  type Agent,
  type AgentDefinition,
  type AgentPrompts,
  type AgentTools,
  type AgentValidation,
  type CustomValidator,
  type FinalState,
  type HelperContext,
  type HelperDefinition,
  type HelperTool,
  type InitialState,
  type Observability,
  type OutputTool,
  type ReflectionContext,
  type RejectedAttempt,
  type SubmitTool,
  type UserPrompt,
  type ValidationContext,
  type ValidationFailure,
} from './agents/define.ts';
export { executeAgent, streamAgent, type ExecuteAgentOptions, type LiveExecution } from './agents/execute.ts';
export type {
  AgentError,
  AgentErrorCode,
  CallbackError,
  ExecuteFailure,
  ExecuteMetadata,
  ExecuteResult,
  ExecuteSuccess,
  Tokens,
  ToolCount,
} from './agents/result.ts';
export { nextLoopTurn, systemClock, type Clock } from './platform.ts';
export { RunError, TreadleError, messageOf, type TreadleErrorCode } from './errors.ts';
export { callerOf, childRuns } from './journal/family.ts';
export { checkedBytes, checkRunNames, entryOutOfOrder, memoryJournal, summaryOf } from './journal/memory.ts';
export type {
  BlobBytes,
  BlobContent,
  BlobPart,
  Blobs,
  Journal,
  JournalEntry,
  Lease,
  Recovery,
  RunFilter,
  RunStatus,
  RunStore,
  RunSummary,
  Snapshot,
  Stored,
} from './journal/port.ts';
export type { Amounts, BudgetLevel, Ledger, Reserved, Spending } from './ledger/port.ts';
export type {
  Answer,
  Audit,
  CompactionOptions,
  CompletedRun,
  ContinueOptions,
  LiveRun,
  LoopOptions,
  LoopResult,
  GuardedContent,
  Guardrail,
  GuardrailAnswer,
  Guardrails,
  FilterAnswer,
  FilteredResult,
  FilterFindings,
  ResultFilter,
  KeptResource,
  KeptResources,
  KillProcess,
  PrepareTurn,
  RunOptions,
  RejectedAnswer,
  StartedRun,
  StartOrResumeOptions,
  TurnChanges,
  TurnInfo,
  VerifiedAnswer,
  VerifyAnswer,
} from './driver/options.ts';
export { answer, approve, deny, type AnswerFacts } from './driver/make-answer.ts';
export { handoff, type HandoffAgent } from './driver/handoff.ts';
export { runLoop, startLoop, streamLoop } from './driver/run.ts';
export { isDetached } from './driver/shell.ts';
export type { FollowedRun, RunSpans, Tracing } from './driver/tracing.ts';
export { requestTokens } from './driver/call-model.ts';
export { diffRuns, firstDifference, type Difference, type RunDiff } from './journal/diff.ts';
export { forkRun, planFork, type ForkChanges, type ForkOptions, type PlannedFork } from './journal/fork.ts';
export {
  itemsBetween,
  type CallAnswered,
  type CallStarted,
  type Fact,
  type Item,
  type Report,
  type ResourceProblem,
  type RunFailed,
  type RunWaiting,
  type TurnStarted,
} from './journal/items.ts';
export {
  replay,
  statusOf,
  walkInSlices,
  walkJournal,
  type Divergence,
  type JournalStep,
  type Replayed,
} from './journal/replay.ts';
export {
  carriedFrom,
  isPaused,
  outstanding,
  requestOf,
  waiting,
  type Effect,
  type RequestDraft,
} from './machine/effects.ts';
export type {
  CallCheck,
  Event,
  Examined,
  Filtered,
  GuardrailVerdict,
  RecordedVerdict,
  SettledResult,
} from './machine/events.ts';
export type { Cause, Exposes, Exposure } from './machine/exposure.ts';
export { messagesOf, stableJson, type History } from './machine/history.ts';
export { narrowingSource, type Autonomy, type Narrowing } from './machine/narrowing.ts';
export type { AskedQuestion, Question } from './machine/questions.ts';
export type { HeldProcess, OpenResource } from './machine/resources.ts';
export type {
  AgentRules,
  Handoff,
  Leniency,
  Limits,
  Memory,
  OutputCheck,
  Parent,
  Rules,
  RunFacts,
  ToolEffect,
  ToolFacts,
  TurnDecision,
} from './machine/rules.ts';
export type {
  AgentState,
  Ask,
  Call,
  CancelPhase,
  Carried,
  Grant,
  Limit,
  Outcome,
  Parking,
  Phase,
  Rejection,
  Settling,
  Slot,
  State,
  Streak,
  Waiting,
} from './machine/state.ts';
export { fits, NEW, step, type Next } from './machine/step.ts';
export {
  customInput,
  textOf,
  userText,
  type AssistantMessage,
  type AssistantPart,
  type ErrorBlock,
  type ErrorFacts,
  type ErrorType,
  type FileBlock,
  type ImageBlock,
  type InputMessage,
  type Message,
  type ProviderData,
  type ReasoningPart,
  type ResultBlock,
  type SaidText,
  type Source,
  type TextBlock,
  type TokenLogprob,
  type ToolCall,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
  type UserMessage,
} from './messages.ts';
export { addUsage, NO_USAGE } from './model.ts';
export type {
  Accepts,
  Attempt,
  Effort,
  Emit,
  Finish,
  CustomForm,
  JsonSchema,
  Model,
  ModelDelta,
  ModelError,
  ModelErrorCode,
  ModelReply,
  ModelRequest,
  Settings,
  ToolChoice,
  ToolSpec,
  Usage,
} from './model.ts';
export type {
  AskVerdict,
  JudgeContext,
  JudgedCall,
  Policy,
  Principal,
  Touch,
  TouchExposure,
  Verdict,
} from './policy/port.ts';
export { wakeAtOf } from './machine/parking.ts';
export { Broken, Finished, Parked, type ParkedUntil } from './tools/result.ts';
export type { PatternMatcher } from './tools/json-schema.ts';
export { isJsonSchema, type OutputOf, type Schema, type StandardSchema } from './tools/schema.ts';
export {
  registry,
  type ExecuteOptions,
  type FunctionDescription,
  type Registry,
  type RegistryEntry,
} from './tools/registry.ts';
export { checkOptions, type KnownOptions, type OptionNames } from './known-options.ts';
export {
  tool,
  type AskQuestion,
  type Held,
  type HoldOptions,
  type HoldResource,
  type NewRun,
  type QuestionOptions,
  type StartedByCall,
  type StartingCall,
  type StartRun,
  type Tool,
  type ToolContext,
  type ToolDefinition,
  type ToolOutput,
  type Verification,
  type CallingRun,
} from './tools/tool.ts';
