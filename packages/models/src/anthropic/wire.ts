import type { Effort } from '@treadle/core';

/*
 * The vocabulary of Anthropic's Messages API: what a server writes, and what the protocol here reads. Other hosts omit and add
 * fields, so a reader takes `Loose` forms of these types.
 */

export interface AnthropicMessage {
  readonly id: string;
  readonly type: 'message';
  readonly role: 'assistant';
  readonly model: string;
  readonly content: readonly AnthropicBlock[];
  /** Null while the message is being streamed. */
  readonly stop_reason: AnthropicStopReason | null;
  readonly stop_sequence: string | null;
  readonly stop_details: null;
  readonly container: null;
  readonly context_management: AnthropicContextManagement | null;
  readonly diagnostics: null;
  readonly usage: AnthropicUsage;
}

export type AnthropicStopReason =
  | 'end_turn'
  | 'max_tokens'
  | 'stop_sequence'
  | 'tool_use'
  | 'pause_turn'
  | 'refusal'
  | 'model_context_window_exceeded';

export type AnthropicBlock =
  | AnthropicText
  | { readonly type: 'thinking'; readonly thinking: string; readonly signature: string }
  | { readonly type: 'redacted_thinking'; readonly data: string }
  | AnthropicCall
  | {
      readonly type: 'mcp_tool_result';
      readonly tool_use_id: string;
      readonly is_error: boolean;
      readonly content: readonly AnthropicText[];
    };

export interface AnthropicText {
  readonly type: 'text';
  readonly text: string;
  readonly citations: null;
}

/** `mcp_tool_use`: the server of the API executes it. In a stream, `input` is an empty object that the deltas fill. */
export type AnthropicCall = { readonly id: string; readonly name: string; readonly input: unknown } & (
  | { readonly type: 'tool_use' }
  | { readonly type: 'mcp_tool_use'; readonly server_name: string }
);

export type AnthropicDelta =
  | { readonly type: 'text_delta'; readonly text: string }
  | { readonly type: 'thinking_delta'; readonly thinking: string; readonly estimated_tokens: null }
  | { readonly type: 'signature_delta'; readonly signature: string }
  | { readonly type: 'input_json_delta'; readonly partial_json: string };

/** The three counts of input tokens exclude each other. */
export interface AnthropicTokens {
  readonly input_tokens: number;
  readonly cache_creation_input_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly output_tokens: number;
}

export interface AnthropicUsage extends AnthropicTokens {
  readonly cache_creation: AnthropicCacheCreation;
  readonly output_tokens_details: { readonly thinking_tokens: number } | null;
  /** The model calls of a message that consists of several. */
  readonly iterations: readonly AnthropicIteration[] | null;
  readonly server_tool_use: null;
  readonly service_tier: 'standard';
  readonly fallback_credit: null;
  readonly inference_geo: null;
  readonly speed: null;
}

export interface AnthropicCacheCreation {
  readonly ephemeral_5m_input_tokens: number;
  readonly ephemeral_1h_input_tokens: number;
}

export interface AnthropicIteration extends AnthropicTokens {
  readonly type: 'message';
  readonly model: string | null;
  readonly cache_creation: AnthropicCacheCreation;
}

export type AnthropicDeltaUsage = AnthropicTokens &
  Pick<AnthropicUsage, 'output_tokens_details' | 'iterations' | 'server_tool_use' | 'fallback_credit'>;

/** What was left out of the conversation before the model got it. */
export interface AnthropicContextManagement {
  readonly applied_edits: readonly AnthropicAppliedEdit[];
}

export type AnthropicAppliedEdit = { readonly cleared_input_tokens: number } & (
  | { readonly type: 'clear_thinking_20251015'; readonly cleared_thinking_turns: number }
  | { readonly type: 'clear_tool_uses_20250919'; readonly cleared_tool_uses: number }
);

export type AnthropicEvent =
  | { readonly type: 'message_start'; readonly message: AnthropicMessage }
  | { readonly type: 'content_block_start'; readonly index: number; readonly content_block: AnthropicBlock }
  | { readonly type: 'content_block_delta'; readonly index: number; readonly delta: AnthropicDelta }
  | { readonly type: 'content_block_stop'; readonly index: number }
  | {
      readonly type: 'message_delta';
      readonly delta: Pick<AnthropicMessage, 'stop_reason' | 'stop_sequence' | 'stop_details' | 'container'>;
      /** Replaces the counts of `message_start`. */
      readonly usage: AnthropicDeltaUsage;
      readonly context_management: AnthropicContextManagement | null;
    }
  | { readonly type: 'message_stop' };

export type AnthropicErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'billing_error'
  | 'permission_error'
  | 'not_found_error'
  | 'request_too_large'
  | 'rate_limit_error'
  | 'api_error'
  | 'timeout_error'
  | 'overloaded_error';

/** All fields of a type, or of the members of a union, as they may arrive. */
export type Loose<T> = { readonly [Field in T extends unknown ? keyof T : never]?: unknown };

/** The thinking budgets of efforts, in tokens. */
export const THINKING_BUDGETS: Readonly<Record<Exclude<Effort, 'none'>, number>> = {
  minimal: 1_024,
  low: 4_096,
  medium: 8_192,
  high: 16_384,
  xhigh: 24_576,
  max: 32_768,
};

/** The highest effort whose budget is not larger. */
export function effortOfBudget(tokens: number): Effort {
  const efforts = Object.entries(THINKING_BUDGETS) as readonly [Effort, number][];
  return efforts.findLast(([, budget]) => budget <= tokens)?.[0] ?? 'minimal';
}
