import type { Usage } from '@treadle/core';
import type { Ending } from '../engine/ending.ts';
import type { ChatCompletion, ChatHead, ChatToolCall, ChatUsage, FinishReason, Incomplete } from './wire.ts';

/** How a completion may end; what failed or was cancelled is none. */
export type Finished = Extract<Ending, { type: 'completed' | 'pending' | 'incomplete' }>;

/** What all turns of the run have said to the client. */
export interface Said {
  readonly content: string;
  readonly reasoning: string;
  /** Those that wait for the client. */
  readonly calls: readonly ChatToolCall[];
}

/** The whole answer. */
export function completionOf(head: ChatHead, { content, reasoning, calls }: Said, ending: Finished): ChatCompletion {
  const message = {
    role: 'assistant',
    content: content === '' ? null : content,
    refusal: null,
    annotations: [],
    ...(reasoning !== '' && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  } as const;
  return {
    ...head,
    object: 'chat.completion',
    choices: [{ index: 0, message, logprobs: null, finish_reason: finishReasonOf(ending) }],
    usage: usageOf(ending.usage),
    ...incompleteOf(ending),
  };
}

/** Every limit is a `length`: the official clients know no other word for an answer that is not whole. */
export function finishReasonOf(ending: Finished): FinishReason {
  switch (ending.type) {
    case 'completed':
      return 'stop';
    case 'pending':
      return 'tool_calls';
    case 'incomplete':
      return ending.reason === 'content_filter' ? 'content_filter' : 'length';
    default:
      return ending satisfies never;
  }
}

export function incompleteOf(ending: Finished): Incomplete {
  return ending.type === 'incomplete' ? { incomplete_details: { reason: ending.reason } } : {};
}

export function usageOf({ inputTokens, outputTokens, cachedTokens = 0, reasoningTokens = 0 }: Usage): ChatUsage {
  return {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}
