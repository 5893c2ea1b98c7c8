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
export { systemClock, type Clock } from './clock.ts';
export { TreadleError, messageOf, type TreadleErrorCode } from './errors.ts';
export { memoryJournal } from './journal/memory.ts';
export type {
  Blobs,
  Journal,
  JournalEntry,
  Lease,
  RunFilter,
  RunStatus,
  RunStore,
  RunSummary,
  Snapshot,
} from './journal/port.ts';
export { summaryOf } from './journal/summary.ts';
export type {
  Answer,
  CallAnswered,
  CallStarted,
  CompactionOptions,
  ContinueOptions,
  Fact,
  Item,
  LiveRun,
  LoopOptions,
  LoopResult,
  PrepareTurn,
  Report,
  StartedRun,
  TurnChanges,
  TurnInfo,
  TurnStarted,
} from './loop/options.ts';
export { diffRuns, type RunDiff } from './loop/diff.ts';
export { fits } from './loop/fits.ts';
export { forkRun, type ForkChanges, type ForkOptions } from './loop/fork.ts';
export { messagesOf, type History } from './loop/history.ts';
export { itemsBetween } from './loop/items.ts';
export { isPaused, outstanding, waiting } from './loop/outstanding.ts';
export { replay, type Divergence, type Replayed } from './loop/replay.ts';
export { runLoop, startLoop, streamLoop } from './loop/run.ts';
export { NEW, step } from './loop/step.ts';
export type { Next } from './loop/turn.ts';
export type { Effect } from './loop/effects.ts';
export type { CallCheck, Event, SettledResult } from './loop/events.ts';
export type {
  AgentRules,
  Leniency,
  Limits,
  Memory,
  Parent,
  Rules,
  ToolEffect,
  ToolFacts,
  TurnDecision,
} from './loop/pinned.ts';
export type {
  AgentState,
  Call,
  CancelPhase,
  Limit,
  Outcome,
  Phase,
  Rejection,
  Settling,
  Slot,
  State,
  Streak,
  Waiting,
} from './loop/state.ts';
export {
  textOf,
  userText,
  type AssistantMessage,
  type AssistantPart,
  type ErrorBlock,
  type FileBlock,
  type ImageBlock,
  type Message,
  type ReasoningPart,
  type ResultBlock,
  type SaidText,
  type Source,
  type TextBlock,
  type ToolCall,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
  type UserMessage,
} from './messages.ts';
export type {
  Attempt,
  Emit,
  Finish,
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
export type { JudgeContext, JudgedCall, Policy, Principal, Verdict } from './policy/port.ts';
export { Parked } from './tools/result.ts';
export type { OutputOf, Schema, StandardSchema } from './tools/schema.ts';
export {
  registry,
  type ExecuteOptions,
  type FunctionDescription,
  type Registry,
  type RegistryEntry,
} from './tools/registry.ts';
export {
  tool,
  type Tool,
  type ToolContext,
  type ToolDefinition,
  type ToolOutput,
  type Verification,
  type CallingRun,
} from './tools/tool.ts';
