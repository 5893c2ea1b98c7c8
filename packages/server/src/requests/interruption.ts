import { TreadleError, type Lease } from '@treadle/core';
import { ApiError, isStoreFailure, type ApiErrorCode } from '../api-error.ts';
import { TOO_MANY_BYTES } from '../http/limits.ts';

/**
 * Why a stored request has not ended, although nobody drives its run any more in this process. The run is left as it is, and
 * resumed later or by another process.
 */
export interface Interruption {
  readonly code: ApiErrorCode;
  readonly reason: string;
}

export const TAKEN_OVER: Interruption = {
  code: 'response_interrupted',
  reason: 'Another process of this server has taken over the response.',
};

export const SHUTTING_DOWN: Interruption = {
  code: 'server_stopping',
  reason: 'The server is shutting down; this response resumes after the restart.',
};

export const ASLEEP: Interruption = {
  code: 'response_waiting',
  reason: 'A tool waits for something that takes long. The response continues when its time has come.',
};

export const WAITING: Interruption = {
  code: 'response_waiting',
  reason: 'A call waits for an approval or an answer. The response continues when it has one.',
};

export const STORE_FAILED: Interruption = {
  code: 'response_interrupted',
  reason: 'The server cannot store the response at the moment. It is resumed when the store can be written.',
};

// Errors

/** Another server with the same store drives the run. */
export function isDrivenElsewhere(error: unknown): boolean {
  return isLeaseLost(error) || (error instanceof TreadleError && error.code === 'run-driven');
}

/** Another server has taken the run over from this one, which may have stored what it did last. */
export function isLeaseLost(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'lease-lost';
}

/**
 * Releases a run that could not be resumed now, and throws the error: the store failed, there is no room for its bytes, or it
 * cannot be resumed with these answers. After any other error the run can never be resumed.
 */
export async function leaveForLater({ lease }: { readonly lease: Lease }, error: unknown): Promise<void> {
  if (!isStoreFailure(error) && !isTooMuch(error) && !isAnswerUnfit(error)) return;
  await lease.release();
  throw error;
}

/** There is no room for the bytes of a run. */
export function isTooMuch(error: unknown): boolean {
  return error instanceof ApiError && error.code === TOO_MANY_BYTES;
}

// Answers to clients

/** The 503 for a request that was interrupted, and that can be sent again because it has a key. */
export function retryLater({ code, reason }: Interruption): ApiError & { readonly code: string } {
  const message = `${reason} Send the request again with the same Idempotency-Key.`;
  const error = new ApiError(503, 'server_error', message, { code, headers: { 'Retry-After': '1' } });
  return error as ApiError & { readonly code: string };
}

/** What a client may see of the reason why a run cannot be resumed. */
export function unresumableReason(error: unknown): string {
  const isPublic = error instanceof ApiError || error instanceof TreadleError;
  return isPublic ? error.message : 'The server stopped while the response was in progress.';
}

/** The code of an interruption because an answer cannot be used. */
export const UNFIT = 'answer_unfit';

/** Whether the answers that a run was resumed with cannot be used. */
export function isUnfit({ code }: Interruption): boolean {
  return code === UNFIT;
}

/** Why a run was not resumed with answers, or not cancelled. */
export function notDone(interruption: Interruption): ApiError {
  const { code, reason } = interruption;
  if (isUnfit(interruption)) return answerUnfit(reason);
  return new ApiError(503, 'server_error', reason, { code, headers: { 'Retry-After': '1' } });
}

/** An answer cannot be used: it does not fit, or the run does not wait for it any more. */
export function isAnswerUnfit(error: unknown): boolean {
  return error instanceof ApiError && error.code === UNFIT;
}

export function answerUnfit(message: string): ApiError {
  return new ApiError(409, 'invalid_request_error', message, { param: 'answers', code: UNFIT });
}
