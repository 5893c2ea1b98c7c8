import type { Item } from '@treadle/core';
import type { ResponseEvent } from '../src/apis/responses/output-items.ts';
import {
  responseProjection,
  type ResponseError,
  type ResponseProjectionOptions,
} from '../src/apis/responses/projection.ts';
import { walkRun, type WalkOptions } from '../src/requests/projection.ts';
import type { Ending } from '../src/requests/ending.ts';
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

/** A response while its run is walked. */
export interface ResponseOutput {
  sendCreated(): void;
  addItem(item: Item): void | Promise<void>;
  replay(items: readonly Item[]): void;
  current(): ResponseResource;
  endResponse(ending: Ending): ResponseResource;
  sendTerminal(stored?: ResponseResource): void;
  sendInterruption(error: ResponseError): void;
}

export type ResponseOutputOptions = ResponseProjectionOptions & WalkOptions<ResponseEvent>;

export function responseOutput({ emit, sent, ...options }: ResponseOutputOptions): ResponseOutput {
  const projection = responseProjection(options);
  const walk = walkRun(projection, { emit, sent });
  return {
    sendCreated: walk.open,
    addItem: walk.add,
    replay: (items) => walk.replay({ items }),
    current: walk.result,
    endResponse: (ending) => walk.end({ ending }),
    sendTerminal: walk.last,
    sendInterruption: (error) => void walk.send(projection.interrupt(walk.state, error)),
  };
}
