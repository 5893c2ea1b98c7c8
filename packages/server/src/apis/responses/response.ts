import { modelApiError, type RunFailure } from '../../engine/model-failure.ts';
import { ApiError } from '../../api-error.ts';
import type { ConversationBefore } from '../../history/conversation.ts';
import type { EventWriter } from '../../requests/event-log.ts';
import type { RequestKey } from '../../requests/idempotency.ts';
import { retryLater, type Interruption } from '../../requests/interruption.ts';
import type { StoredEnd } from '../../requests/requests.ts';
import type { ResumedRun, RunPlan } from '../../requests/run.ts';
import type { EmitEvent, ResponseEvent } from './output-items.ts';
import type { ResponseError, ResponseProjectionOptions } from './projection.ts';
import type { ResponseRequest } from './parse-request.ts';
import type { RequestConversations } from '../../history/request-conversation.ts';
import { hasReply, type ResponseResource } from './wire.ts';

/* The forms in which a response is prepared, driven and finished, and the errors of one that cannot be. */

export interface PreparedResponse {
  readonly id: string;
  /** Its events are stored, so that a client can continue after any of them. */
  readonly isResumable?: boolean;
  /**
   * Rejects if another process has taken over. `signal` aborts when the client disconnects: the response is cancelled,
   * unless it has a key, because the client can ask for it again. A background response goes on. Without `emit` it is
   * returned at once.
   */
  run(listener: ResponseListener, signal: AbortSignal): Promise<FinishedResponse>;
}

export interface ResponseListener extends Pick<ResponseProjectionOptions, 'requiresAction'> {
  /** Absent: no events are needed, only the response. */
  readonly emit?: EmitEvent;
  /** Counts the bytes of events that are made at once. Throws an `ApiError` if they are too many. */
  readonly hold?: (bytes: number) => void;
}

export interface FinishedResponse extends StoredEnd {
  readonly response: ResponseResource;
  /** The failure that ended it. */
  readonly failure?: RunFailure;
  /** The request has a key, so that it can be sent again after an interruption. */
  readonly hasKey?: boolean;
  /** The client did not get the terminal event. It can continue after its last event. */
  readonly isCut?: boolean;
}

export interface ActiveResponse {
  cancel(): void;
  current(): ResponseResource;
  readonly finished: Promise<FinishedResponse>;
}

/** A run of a response that is about to be driven. */
export interface ResponseRun extends Omit<ResponseProjectionOptions, 'response' | 'calls' | 'requiresAction'> {
  readonly created: ResponseResource;
  /** Kept while the response runs, so that other requests that continue the same conversation share its messages. */
  readonly before?: ConversationBefore;
  readonly listener: ResponseListener;
  readonly signal?: AbortSignal;
  /** The id of the stored record. Absent: neither the response nor its run is stored. */
  readonly record?: string;
  /** Only the run is stored. It ends with its client, and with its process. */
  readonly isUnstored?: boolean;
  /** The key of the request that waits for the response. */
  readonly key?: RequestKey;
  /** The status that the response has in the store; default `in_progress`. */
  readonly from?: string;
  /** Set if the run has started before. */
  readonly resume?: ResumedRun;
  /** The ids of the requests for approvals that it decides about. */
  readonly decided?: readonly string[];
  /** Where the events of a background response are stored. */
  readonly sink?: EventWriter;
  /** The events that were stored before it was resumed. */
  readonly sent?: readonly ResponseEvent[];
}

export interface StoredEnding {
  readonly at: number;
  readonly from: string | undefined;
  readonly releaseKey?: boolean;
  /** Only that it has ended is stored. */
  readonly isUnstored?: boolean | undefined;
}

/** What responses that are created and those that are resumed have in common. */
export interface ResponseDriver extends Pick<RequestConversations, 'requestConversation'> {
  /** Drives a run and builds the response. Releases the lease of the plan at the end. */
  runResponse(plan: RunPlan, run: ResponseRun): ActiveResponse;
  /** What seals the items of a response. `system`: of its conversation. `toolset` is absent if nothing is executed any more. */
  sealsFor(
    request: Pick<ResponseRequest, 'include' | 'compactFrom' | 'store'>,
    system: readonly string[],
    run: { readonly tenant: string; readonly toolset?: RunPlan['toolset'] },
  ): Promise<Pick<ResponseProjectionOptions, 'seal' | 'carrier' | 'compactions'>>;
  /** Stores the end of a response. Resolves to the response that is stored: another process may have been first. */
  storeEnd(id: string, tenant: string, response: ResponseResource, ending: StoredEnding): Promise<ResponseResource>;
}

/** The official clients repeat requests after a 409 or a 503. Here, what the response does would then be done twice. */
const DO_NOT_RETRY = { 'x-should-retry': 'false' };

/** Throws a 503 for a response that was interrupted. */
export function endedResponse({ response, interruption, hasKey = false }: FinishedResponse): ResponseResource {
  if (!interruption) return response;
  throw hasKey ? retryLater(interruption) : interruptedError(response.id, interruption);
}

/** If the model failed before there was any output, the request fails. Later failures are part of the response. */
export function checkFinished(finished: FinishedResponse): ResponseResource {
  const response = endedResponse(finished);
  if (response.status !== 'failed' || hasReply(response)) return response;
  throw finished.failure
    ? modelApiError(finished.failure)
    : new ApiError(500, 'server_error', response.error!.message, { code: 'internal_error' });
}

export function interruptedError(id: string, interruption: Interruption): ApiError {
  const { code, message } = fetchLater(id, interruption);
  return new ApiError(503, 'server_error', message, { code, headers: DO_NOT_RETRY });
}

export function fetchLater(id: string, { code, reason }: Interruption): ResponseError {
  return { code, message: `${reason} Fetch it by its id, ${id}.` };
}

/** Only the process that drives a run can stop it. */
export function drivenElsewhere(id: string): ApiError {
  const message = `The response ${JSON.stringify(id)} is in progress in another process of this server. Retry when it has ended.`;
  return new ApiError(409, 'invalid_request_error', message, {
    param: 'response_id',
    code: 'response_in_progress',
    headers: DO_NOT_RETRY,
  });
}

/** A response of a conversation is part of its history. */
export function ofConversation(id: string, conversation: string): ApiError {
  const message = `The response ${JSON.stringify(id)} belongs to the conversation ${JSON.stringify(conversation)}. Delete the conversation with DELETE /v1/conversations/{id}.`;
  return new ApiError(409, 'invalid_request_error', message, {
    param: 'response_id',
    code: 'response_in_conversation',
    headers: DO_NOT_RETRY,
  });
}
