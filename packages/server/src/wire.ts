/*
 * What the server sends and takes, as types for clients in TypeScript. A page can import them, because nothing here needs Node:
 * `npm run boundaries` checks that.
 */
export type {
  AnswerPart,
  ApprovalRequest,
  AskRequest,
  CallDecision,
  CallResult,
  ChatAnswer,
  ChatAnswerMessage,
  ChatBody,
  ChatConversation,
  ChatMessage,
  ChatProblem,
  ChatStatus,
  ChatSummary,
  ChatUsage,
  ChatUserMessage,
  MemorySwitch,
  NumberedEvent as ChatEvent,
  QuestionRequest,
  SentAttachment,
  StoredAttachment,
} from './apis/chat/wire.ts';
export type {
  AgentEvent,
  WireAgent,
  WireAgentResult,
  WireAgentSummary,
  WireIterativeResult,
  WireUnfinished,
} from './apis/agents/wire.ts';
export type {
  ForkBody,
  ForkLimits,
  WireAnswer,
  WireEntryPage,
  WireForkPreview,
  WireRun,
  WireRunDetails,
  WireTrace,
  WireTraceAction,
  WireTraceFailure,
  WireTraceStep,
  WireTraceSummary,
  WireTraceWork,
  WireWaiting,
} from './apis/runs/wire.ts';
export type { WireSchedule, WireScheduleDeleted, WireScheduleRun, WireTriggerRun } from './apis/schedules/wire.ts';
export type { WireWorkflow, WireWorkflowCancel, WireWorkflowRun, WireWorkflowSummary } from './apis/workflows/wire.ts';
export type { NoteBody, WireForgotten, WireMemory, WireNoteScope } from './apis/memory/wire.ts';
export type { WireStatus, WireToolMetrics } from './apis/metrics/wire.ts';
export type {
  WireDevice,
  WireDeviceCall,
  WireDeviceCallResult,
  WireDeviceList,
  WireDeviceLoad,
  WireDeviceTool,
} from './apis/devices/wire.ts';
export type { ServedAgent, ServedModel, ServedSkill, ServedTool, ServerInfo, WireModelTest } from './server-wire.ts';

/** A page of a list that is read with `limit` and `cursor`. */
export interface ListPage<T> {
  readonly object: 'list';
  readonly data: readonly T[];
  readonly has_more: boolean;
  /** Null if nothing follows. */
  readonly next_cursor: string | null;
}
