import type { ModelError } from '@treadle/core';
import { ApiError } from '../api-error.ts';
import { failureOf } from '../engine/failure.ts';
import type { Ending } from '../engine/ending.ts';

export type Unfinished = Extract<Ending, { type: 'failed' | 'cancelled' }>;

/** What a client is told instead of a completion: this API has no word for one that failed. */
export function errorOf(ending: Unfinished, failure?: ModelError): ApiError {
  if (ending.type === 'cancelled') {
    const message = 'The run was stopped before it had ended. Send the request again.';
    return new ApiError(503, 'server_error', message, { code: 'cancelled' });
  }
  if (failure) return failureOf(failure);
  const { code, message } = ending.error;
  return new ApiError(502, 'server_error', message, { code });
}
