import type { ModelError, ModelErrorCode } from '@treadle/core';
import { ApiError, type ApiErrorCode, type ApiErrorType } from '../api-error.ts';

/** How the APIs report a failure of the model. */
interface Reported {
  readonly status: number;
  readonly type: ApiErrorType;
  readonly code: ApiErrorCode;
  /** `error.code` of a response, if the official clients know one; otherwise `server_error`. */
  readonly inResponse?: ApiErrorCode;
}

/** Why a run ended: a failure of its model, a budget that has not enough left, or a guardrail. */
export type RunFailure = Omit<ModelError, 'code'> & { readonly code: ModelErrorCode | 'budget' | 'guardrail' };

const REPORTED: Record<RunFailure['code'], Reported> = {
  budget: {
    status: 429,
    type: 'rate_limit_error',
    code: 'insufficient_quota',
    inResponse: 'rate_limit_exceeded',
  },
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
  // The provider's message says what is wrong with the request. A retry would not help.
  'invalid-request': {
    status: 400,
    type: 'invalid_request_error',
    code: 'invalid_prompt',
    inResponse: 'invalid_prompt',
  },
  // Nothing of the server has failed: a retry would be refused too.
  guardrail: { status: 400, type: 'invalid_request_error', code: 'guardrail' },
  'program-failed': { status: 500, type: 'server_error', code: 'program_failed' },
  'program-diverged': { status: 500, type: 'server_error', code: 'program_diverged' },
  cancelled: { status: 499, type: 'server_error', code: 'cancelled' },
};

/** Replaces messages that are for the operator: they contain the model's address and what is wrong with the connection. */
const PUBLIC_MESSAGES: Partial<Record<ModelErrorCode, string>> = {
  network: 'The model cannot be reached. Retry later.',
  timeout: 'The model took too long. Retry later.',
  protocol: 'The model returned a reply that the server cannot read. Retry.',
  auth: 'The model rejects the credentials of this server. Its operator finds the reason in the log.',
};

/** The failure with a message that any client may see. */
export function publicFailure(error: ModelError): ModelError {
  // An unknown model or a wrong address: the client cannot correct that.
  const code = error.code === 'invalid-request' && error.status === 404 ? 'auth' : error.code;
  const message = PUBLIC_MESSAGES[code];
  return message === undefined ? error : { ...error, code, message };
}

const BUDGET = 'budget';

/** The failure of a run whose first step a budget has refused. */
export function budgetFailure(reason: string): RunFailure {
  return { code: BUDGET, message: reason, retryable: false };
}

/** `error.code` of a response that ended with this failure. */
export function codeInResponse(code: string): ApiErrorCode {
  if (code === 'output-invalid') return 'output_invalid';
  return (Object.hasOwn(REPORTED, code) && REPORTED[code as RunFailure['code']].inResponse) || 'server_error';
}

/** The error type that belongs to an `error.code` of a response. */
export function typeInResponse(code: string): ApiErrorType {
  return Object.values(REPORTED).find(({ inResponse }) => inResponse === code)?.type ?? 'server_error';
}

/** The error that a client receives when the model fails. */
export function modelApiError(failure: RunFailure): ApiError {
  const { code, message, retryAfterMs, status: providerStatus } = failure;
  const isSpent = code === BUDGET || isCreditSpent(failure);
  const { status, type, code: name } = REPORTED[isSpent ? BUDGET : code];
  const headers = {
    ...(retryAfterMs !== undefined && { 'retry-after': String(Math.ceil(retryAfterMs / 1000)) }),
    // Official clients would retry a 429 and a 502.
    ...((isSpent || code === 'auth') && { 'x-should-retry': 'false' }),
  };
  return new ApiError(status, type, message, { code: name, headers, providerStatus });
}

/** Whether the provider has refused a request because nothing is paid for any more: a later one is refused too. */
function isCreditSpent({ code, retryable, status }: RunFailure): boolean {
  return code === 'rate-limit' && !retryable && status !== undefined;
}
