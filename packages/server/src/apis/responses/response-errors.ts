import { ApiError } from '../../api-error.ts';
import { retryLater, type Interruption } from '../../requests/interruption.ts';
import type { ResponseError } from './output.ts';
import type { FinishedResponse } from './response.ts';
import type { ResponseResource } from './wire.ts';

/** The official clients repeat requests after a 409 or a 503. Here, what the response does would then be done twice. */
const DO_NOT_RETRY = { 'x-should-retry': 'false' };

/** Throws a 503 for a response that was interrupted. */
export function endedResponse({ response, interruption, hasKey = false }: FinishedResponse): ResponseResource {
  if (!interruption) return response;
  throw hasKey ? retryLater(interruption) : interruptedError(response.id, interruption);
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
