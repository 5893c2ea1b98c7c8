import type { Usage } from '@treadle/core';

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
  | { readonly type: 'tool_call_start'; readonly id: string; readonly name: string; readonly arguments: string }
  | { readonly type: 'tool_call_output'; readonly id: string; readonly delta: string }
  | {
      readonly type: 'tool_call_result';
      readonly id: string;
      readonly content: string;
      readonly is_error: boolean;
      readonly duration_ms: number;
    }
  | ({ readonly type: 'approval_request' } & ApprovalRequest)
  | ({ readonly type: 'question' } & QuestionRequest)
  /** `item_incomplete`: the text with the id `item` is not part of the answer. */
  | { readonly type: 'warning'; readonly code: string; readonly message: string; readonly item?: string }
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
  readonly touches: readonly unknown[];
  readonly reason: string | null;
  /** In milliseconds since 1970. Then the call is denied. */
  readonly expires_at: number;
}

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

export type ChatStatus = 'completed' | 'incomplete' | 'failed' | 'cancelled';

/** A piece of an answer, in order. Stored as JSON, so its fields must not change. */
export type AnswerPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | ToolCallPart
  /** A message that was sent while the answer was in progress. */
  | { readonly type: 'input'; readonly text: string };

export interface ToolCallPart {
  readonly type: 'tool_call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  /** Null while it has none. */
  readonly result: {
    readonly content: string;
    readonly is_error: boolean;
    /** Null if it is not known: the call belongs to a response, or its client executed it. */
    readonly duration_ms: number | null;
  } | null;
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
