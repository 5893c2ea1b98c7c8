import type { ModelError, ModelErrorCode } from '@treadle/core';
import { ApiError, type ApiErrorType } from '../api-error.ts';

interface Told {
  readonly status: number;
  readonly type: ApiErrorType;
  readonly code: string;
  /** `error.code` of a response, if the official clients have a word for it; else `server_error`. */
  readonly inResponse?: string;
}

const TOLD: Record<ModelErrorCode, Told> = {
  'rate-limit': {
    status: 429,
    type: 'rate_limit_error',
    code: 'rate_limit_exceeded',
    inResponse: 'rate_limit_exceeded',
  },
  'context-length': {
    status: 400,
    type: 'invalid_request_error',
    code: 'context_length_exceeded',
    inResponse: 'context_length_exceeded',
  },
  'content-filter': { status: 400, type: 'invalid_request_error', code: 'content_filter' },
  overloaded: { status: 503, type: 'server_error', code: 'model_overloaded' },
  timeout: { status: 504, type: 'server_error', code: 'model_timeout' },
  auth: { status: 502, type: 'server_error', code: 'model_auth' },
  network: { status: 502, type: 'server_error', code: 'model_unreachable' },
  protocol: { status: 502, type: 'server_error', code: 'model_protocol' },
  // Its own words say what it did not like; the same again would not help.
  'invalid-request': {
    status: 400,
    type: 'invalid_request_error',
    code: 'invalid_prompt',
    inResponse: 'invalid_prompt',
  },
  cancelled: { status: 499, type: 'server_error', code: 'cancelled' },
};

/** For whoever runs the server, and not for clients: where the model is, and what is wrong with the way there. */
const UNTOLD: Partial<Record<ModelErrorCode, string>> = {
  network: 'The model cannot be reached. Try again later.',
  timeout: 'The model took too long. Try again later.',
  protocol: 'The model gave an answer that cannot be understood. Try again.',
  auth: 'The model does not accept this server. Whoever runs it finds more in its log.',
};

/** A failure in words that any client may hear. */
export function toldFailure(error: ModelError): ModelError {
  // There is no such model, or nobody at that address: nothing that a client could mend.
  const code = error.code === 'invalid-request' && error.status === 404 ? 'auth' : error.code;
  const message = UNTOLD[code];
  return message === undefined ? error : { ...error, code, message };
}

/** `error.code` of a response that ended with this failure. */
export function codeInResponse(code: string): string {
  return (Object.hasOwn(TOLD, code) && TOLD[code as ModelErrorCode].inResponse) || 'server_error';
}

/** The type of the error, by its code in a response. */
export function typeInResponse(code: string): ApiErrorType {
  return Object.values(TOLD).find(({ inResponse }) => inResponse === code)?.type ?? 'server_error';
}

/** What a client is told when the model behind the server fails. */
export function failureOf({ code, message, retryAfterMs }: ModelError): ApiError {
  const { status, type, code: name } = TOLD[code];
  const headers = retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1000)) };
  return new ApiError(status, type, message, { code: name, headers });
}
