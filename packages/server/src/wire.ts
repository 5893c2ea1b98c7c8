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
  NumberedEvent as ChatEvent,
  QuestionRequest,
  SentAttachment,
  StoredAttachment,
} from './apis/chat/wire.ts';
export type { ListPage } from './request/list-page.ts';
export type {
  ForkBody,
  ForkLimits,
  WireAnswer,
  WireEntryPage,
  WireForkPreview,
  WireRun,
  WireRunDetails,
  WireWaiting,
} from './apis/runs/wire.ts';
export type { ServedModel, ServedTool, ServerInfo, WireModelTest } from './server-wire.ts';
