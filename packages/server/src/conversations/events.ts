import type { Touch, Usage } from '@treadle/core';
import type { Attachment } from './attachments.ts';

/** What a client of a conversation receives, each with the number `seq`, which counts per conversation. */
export type ChatEvent =
  | {
      readonly type: 'conversation_meta';
      readonly conversation_id: string;
      readonly title: string | null;
      /** The ids of the message and of its answer, as `GET /v1/chat/{id}` has them. */
      readonly message_id: string;
      readonly answer_id: string;
      readonly run_id: string;
      readonly model: string;
    }
  /** `id`: of the text. An answer has several texts if calls or reasoning are between them. */
  | { readonly type: 'token_delta'; readonly id: string; readonly delta: string }
  | { readonly type: 'reasoning_delta'; readonly id: string; readonly delta: string }
  /** `arguments`: the JSON text of the model, also if it is invalid. */
  | {
      readonly type: 'tool_call_start';
      readonly id: string;
      readonly name: string;
      readonly arguments: string;
      /** When the model called it, in milliseconds since 1970. */
      readonly called_at: number;
    }
  /** People or the policy have decided about the call. `id`: of the call. */
  | ({ readonly type: 'tool_call_decision'; readonly id: string } & CallDecision)
  | { readonly type: 'tool_call_output'; readonly id: string; readonly delta: string }
  | ({ readonly type: 'tool_call_result'; readonly id: string; readonly duration_ms: number } & ResultContent)
  | ({ readonly type: 'approval_request' } & ApprovalRequest)
  | ({ readonly type: 'question' } & QuestionRequest)
  /** `item_incomplete`: the text with the id `item` is not part of the answer. `item_stopped`: it is, as far as it was sent. */
  | ({ readonly type: 'warning'; readonly item?: string } & ChatWarning)
  | { readonly type: 'error'; readonly code: string; readonly message: string }
  | ({ readonly type: 'usage' } & ChatUsage)
  | { readonly type: 'done'; readonly status: ChatStatus };

export type NumberedEvent = ChatEvent & { readonly seq: number };

/** A call that somebody has to approve. */
export interface ApprovalRequest {
  /** Sent back with the answer, and the digest too. */
  readonly id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly arguments: string;
  readonly digest: string;
  readonly touches: readonly Touch[];
  readonly reason: string | null;
  /** The rule that requires the approval. Absent: it has no name. */
  readonly rule?: string;
  /** What the policy wants to be shown, such as a diff. Plain JSON. */
  readonly shown?: unknown;
  /** How many people have to approve. Absent: one. */
  readonly required?: number;
  /** Who has approved so far, if several people have to. */
  readonly approved_by?: readonly string[];
  /** In milliseconds since 1970. Then the call is denied. */
  readonly expires_at: number;
}

/** A decision about a call that people were asked about, or that the policy denied. */
export interface CallDecision {
  readonly approved: boolean;
  /** `policy`: it denied the call without asking. `deadline`: nobody has answered in time. */
  readonly source: 'person' | 'policy' | 'deadline';
  /** The names of those who answered. Empty if they have none: the server has no keys. */
  readonly by: readonly string[];
  /** The rule that denied the call or required the approval; null if it has no name. */
  readonly rule: string | null;
  /** Of a denial. */
  readonly reason: string | null;
}

/** The result of a call. */
export interface ResultContent {
  /** Its text. What is not text is described. */
  readonly content: string;
  readonly is_error: boolean;
  /** All of it, in order. Absent if it is only text. */
  readonly parts?: readonly ResultPart[];
}

export type ResultPart =
  | { readonly type: 'text'; readonly text: string }
  /** `id`: its bytes are those of the attachment with this id. */
  | ({ readonly type: 'image' | 'file'; readonly id: string } & Attachment);

/** A question of a tool. */
export interface QuestionRequest {
  readonly id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly prompt: string;
  readonly choices: readonly string[] | null;
  readonly schema: object | null;
  readonly expires_at: number | null;
}

export interface ChatUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly reasoning_tokens: number;
  /** In US dollars; null if a price is unknown. */
  readonly cost: number | null;
}

export interface ChatWarning {
  readonly code: string;
  readonly message: string;
}

export type ChatStatus = 'completed' | 'incomplete' | 'failed' | 'cancelled';

/** A piece of an answer, in order. Stored as JSON, so its fields must not change. */
export type AnswerPart =
  /** `stopped`: the run ended before the model completed the text. */
  | { readonly type: 'text' | 'reasoning'; readonly text: string; readonly stopped?: true }
  | ToolCallPart
  /** A message that was sent while the answer was in progress. */
  | { readonly type: 'input'; readonly text: string };

export interface ToolCallPart {
  readonly type: 'tool_call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  /** Absent: it is not known. */
  readonly called_at?: number;
  /** Absent: nobody was asked, and the policy did not deny it. */
  readonly decision?: CallDecision;
  /** Null while it has none. `duration_ms`: null if it is not known: the call belongs to a response, or its client executed it. */
  readonly result: (ResultContent & { readonly duration_ms: number | null }) | null;
}

export function chatUsage({
  inputTokens,
  outputTokens,
  cachedTokens = 0,
  reasoningTokens = 0,
  cost,
}: Usage): ChatUsage {
  return {
    input_tokens: inputTokens,
    output_tokens: outputTokens,
    cached_tokens: cachedTokens,
    reasoning_tokens: reasoningTokens,
    cost: cost ?? null,
  };
}
