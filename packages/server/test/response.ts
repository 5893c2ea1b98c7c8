import type { ResponseResource } from '../src/apis/responses/wire.ts';

export const RESPONSE_ID = 'resp_00112233445566778899aabbccddeeff';

/** A response as it is created. */
export function createdResponse(): ResponseResource {
  return {
    id: RESPONSE_ID,
    object: 'response',
    created_at: 1_700_000_000,
    completed_at: null,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    output: [],
    usage: null,
    background: false,
    frequency_penalty: 0,
    instructions: null,
    max_output_tokens: null,
    max_tool_calls: null,
    metadata: {},
    model: 'scripted',
    parallel_tool_calls: true,
    presence_penalty: 0,
    previous_response_id: null,
    prompt_cache_key: null,
    reasoning: null,
    safety_identifier: null,
    service_tier: 'default',
    store: true,
    temperature: 1,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_logprobs: 0,
    top_p: 1,
    truncation: 'disabled',
  };
}
