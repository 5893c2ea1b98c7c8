import type { OutputItem } from './items.ts';

/**
 * How a response stands. `requires_action` is what it is and how it is stored; clients that did not ask for that word
 * see `completed`, because the official ones know no other.
 */
export type ResponseStatus = 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled' | 'requires_action';

export interface WireUsage {
  readonly input_tokens: number;
  readonly input_tokens_details: { readonly cached_tokens: number };
  readonly output_tokens: number;
  readonly output_tokens_details: { readonly reasoning_tokens: number };
  readonly total_tokens: number;
}

/** The fields of a response that repeat what was asked for, defaults filled in. */
export interface Echo {
  readonly background: false;
  readonly frequency_penalty: number;
  readonly instructions: unknown;
  readonly max_output_tokens: number | null;
  readonly max_tool_calls: number | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly model: string;
  readonly parallel_tool_calls: boolean;
  readonly presence_penalty: number;
  readonly previous_response_id: string | null;
  readonly prompt_cache_key: string | null;
  readonly reasoning: unknown;
  readonly safety_identifier: string | null;
  readonly service_tier: string;
  readonly store: boolean;
  readonly temperature: number;
  readonly text: unknown;
  readonly tool_choice: unknown;
  readonly tools: readonly unknown[];
  readonly top_logprobs: number;
  readonly top_p: number;
  readonly truncation: 'auto' | 'disabled';
  readonly user?: string;
}

/** A response, as it goes over the wire and into the store. */
export interface ResponseResource extends Echo {
  readonly id: string;
  readonly object: 'response';
  /** In seconds since 1970. */
  readonly created_at: number;
  readonly completed_at: number | null;
  readonly status: ResponseStatus;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly output: readonly OutputItem[];
  readonly usage: WireUsage | null;
  /** Calls that the client has to answer before the conversation goes on. Absent when there are none. */
  readonly pending_call_ids?: readonly string[];
}

/** As a client gets it. */
export function presented(response: ResponseResource, requiresAction: boolean): ResponseResource {
  if (requiresAction || response.status !== 'requires_action') return response;
  return { ...response, status: 'completed' };
}
