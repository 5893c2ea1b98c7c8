import type { AnthropicErrorType } from '@treadle/models/anthropic-wire';
import { ApiError } from '../../api-error.ts';
import type { ErrorForm } from '../../http/admission.ts';

/** An error in the body of an answer, and in a stream. */
export interface AnthropicErrorBody {
  readonly type: 'error';
  readonly error: {
    readonly type: AnthropicErrorType;
    readonly message: string;
    /** `error_code`: a code of this server, or one that the official client knows. */
    readonly details?: { readonly error_code: string; readonly param?: string };
  };
  readonly request_id: string;
}

/** The API has this status for a model that has no capacity. */
const OVERLOADED = 529;

const TYPES: Readonly<Record<number, AnthropicErrorType>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  [OVERLOADED]: 'overloaded_error',
};

/** Claude Code gives up after three of these, within seconds, but not after other failures of a server: a provider may be back by then. */
function statusOf({ status, code, providerStatus = OVERLOADED }: ApiError): number {
  const hasNoCapacity = providerStatus === 503 || providerStatus === OVERLOADED;
  return code === 'model_overloaded' && hasNoCapacity ? OVERLOADED : status;
}

export function anthropicErrorBody(error: ApiError, requestId: string): AnthropicErrorBody {
  const status = statusOf(error);
  const { code, param } = error;
  return {
    type: 'error',
    error: {
      type: TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error'),
      message: messageOf(error),
      ...(code !== null && { details: { error_code: code, ...(param !== null && { param }) } }),
    },
    request_id: requestId,
  };
}

/** Clients recognise these errors by their words: Claude Code shortens the conversation, or says that the model is not known. */
function messageOf({ code, message }: ApiError): string {
  return code === 'context_length_exceeded' ? `prompt is too long: ${message}` : message;
}

export const ANTHROPIC_ERRORS: ErrorForm = {
  idHeader: 'request-id',
  schema: {
    type: 'object',
    required: ['type', 'error', 'request_id'],
    properties: {
      type: { const: 'error' },
      error: {
        type: 'object',
        required: ['type', 'message'],
        properties: { type: { type: 'string' }, message: { type: 'string' }, details: { type: 'object' } },
      },
      request_id: { type: 'string' },
    },
  },
  statusOf,
  bodyOf: anthropicErrorBody,
};

/**
 * The 404 for a model that the server does not have. Clients have names of their own, so it says how to map them to `standard`. `known`:
 * the models that the caller may use.
 */
export function unknownModel(name: string, known: readonly string[], standard?: string): ApiError {
  const mapped =
    standard === undefined
      ? ''
      : `, or map the name in its configuration: "${name}" = "${standard}" under [server.model_aliases]`;
  const message = `model: ${name}. This server has no model of this name. Use one of ${known.join(', ')}${mapped}.`;
  return new ApiError(404, 'not_found_error', message, { param: 'model', code: 'model_not_found' });
}
