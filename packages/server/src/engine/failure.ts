import type { ModelError, ModelErrorCode } from '@treadle/core';
import { ApiError, type ApiErrorType } from '../api-error.ts';

interface Told {
  readonly status: number;
  readonly type: ApiErrorType;
  readonly code: string;
}

const TOLD: Record<ModelErrorCode, Told> = {
  'rate-limit': { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' },
  'context-length': { status: 400, type: 'invalid_request_error', code: 'context_length_exceeded' },
  'content-filter': { status: 400, type: 'invalid_request_error', code: 'content_filter' },
  overloaded: { status: 503, type: 'server_error', code: 'model_overloaded' },
  timeout: { status: 504, type: 'server_error', code: 'model_timeout' },
  auth: { status: 502, type: 'server_error', code: 'model_auth' },
  network: { status: 502, type: 'server_error', code: 'model_unreachable' },
  protocol: { status: 502, type: 'server_error', code: 'model_protocol' },
  'invalid-request': { status: 502, type: 'server_error', code: 'model_refused' },
  cancelled: { status: 499, type: 'server_error', code: 'cancelled' },
};

/** What a client is told when the model behind the server fails. */
export function failureOf({ code, message, retryAfterMs }: ModelError): ApiError {
  const { status, type, code: name } = TOLD[code];
  const headers = retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1000)) };
  return new ApiError(status, type, message, { code: name, headers });
}
