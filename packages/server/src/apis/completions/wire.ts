import type { WireLogprob } from '../responses/wire.ts';

/** The objects that `/v1/chat/completions` returns. */

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter';

/** A call that the client executes. */
export type ChatToolCall = { readonly id: string } & (
  | { readonly type: 'function'; readonly function: { readonly name: string; readonly arguments: string } }
  | { readonly type: 'custom'; readonly custom: { readonly name: string; readonly input: string } }
);

export interface ChatUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number; readonly audio_tokens: 0 };
  readonly completion_tokens_details: {
    readonly reasoning_tokens: number;
    readonly audio_tokens: 0;
    readonly accepted_prediction_tokens: 0;
    readonly rejected_prediction_tokens: 0;
  };
}

/** The fields that a completion and its chunks share. */
export interface ChatHead {
  readonly id: string;
  /** In seconds since 1970. */
  readonly created: number;
  readonly model: string;
  readonly service_tier: string;
  readonly system_fingerprint: null;
}

export interface ChatMessage {
  readonly role: 'assistant';
  readonly content: string | null;
  readonly refusal: string | null;
  readonly annotations: readonly never[];
  /** The reasoning, in the field that other servers of this API use. */
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly ChatToolCall[];
}

/** Not part of the official API: why the answer is incomplete, if `finish_reason` has no value for it. */
export interface Incomplete {
  readonly incomplete_details?: { readonly reason: string };
}

export interface ChatCompletion extends ChatHead, Incomplete {
  readonly object: 'chat.completion';
  readonly choices: readonly [
    {
      readonly index: 0;
      readonly message: ChatMessage;
      readonly logprobs: ChatLogprobs | null;
      readonly finish_reason: FinishReason;
    },
  ];
  readonly usage: ChatUsage;
}

/** The tokens of the content. */
export interface ChatLogprobs {
  readonly content: readonly WireLogprob[];
  readonly refusal: null;
}

export interface ChatDelta {
  readonly role?: 'assistant';
  readonly content?: string;
  readonly refusal?: string | null;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly [ChatCallDelta];
}

/** `index` counts the calls that the client receives. `id`, `type` and the name are only in the first delta of a call. */
export type ChatCallDelta = { readonly index: number } & (
  | ChatToolCall
  | { readonly function: { readonly arguments: string } }
);

export interface ChatChunk extends ChatHead, Incomplete {
  readonly object: 'chat.completion.chunk';
  /** Empty in the chunk with the usage. */
  readonly choices: readonly {
    readonly index: 0;
    readonly delta: ChatDelta;
    readonly logprobs: ChatLogprobs | null;
    readonly finish_reason: FinishReason | null;
  }[];
  /** Only if the client requested it; null in all chunks but the last. */
  readonly usage?: ChatUsage | null;
}
