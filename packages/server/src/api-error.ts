import { TreadleError } from '@treadle/core';

/** An error for the client. The message says what is wrong and what to do, and never contains a secret. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;
  readonly type: ApiErrorType;
  /** The field of the request that is wrong, such as `input[2].call_id`. */
  readonly param: string | null;
  readonly code: string | null;
  readonly headers: Readonly<Record<string, string>>;
  /** The status with which the provider of a model has failed. */
  readonly providerStatus?: number;

  constructor(status: number, type: ApiErrorType, message: string, more: ApiErrorDetails = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.param = more.param ?? null;
    this.code = more.code ?? null;
    this.headers = more.headers ?? {};
    if (more.providerStatus !== undefined) this.providerStatus = more.providerStatus;
  }
}

export type ApiErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'not_found_error'
  | 'rate_limit_error'
  | 'server_error';

/** The codes of the server's own errors. `npm run docs:errors` writes their page, docs/errors.md. */
export type ApiErrorCode =
  | 'agent_not_found'
  | 'agents_not_writable'
  | 'answer_unfit'
  | 'approval_decided'
  | 'array_above_max_length'
  | 'array_below_min_length'
  | 'attachment_not_found'
  | 'attachment_too_large'
  | 'cancelled'
  | 'changes_lost'
  | 'content_filter'
  | 'guardrail'
  | 'context_length_exceeded'
  | 'conversation_busy'
  | 'conversation_idle'
  | 'conversation_not_found'
  | 'conversation_waits'
  | 'decimal_above_max_value'
  | 'decimal_below_min_value'
  | 'device_not_found'
  | 'device_offline'
  | 'device_silent'
  | 'duplicate_call'
  | 'duplicate_item'
  | 'duplicate_output'
  | 'duplicate_tool'
  | 'duplicate_tool_result'
  | 'empty_input'
  | 'empty_items'
  | 'headers_too_large'
  | 'idempotency_key_reused'
  | 'injection_suspected'
  | 'input_too_large'
  | 'insufficient_quota'
  | 'insufficient_scope'
  | 'integer_above_max_value'
  | 'integer_below_min_value'
  | 'internal_error'
  | 'invalid_agent'
  | 'invalid_api_key'
  | 'invalid_base64'
  | 'invalid_encrypted_content'
  | 'invalid_file'
  | 'invalid_fork'
  | 'invalid_function_parameters'
  | 'invalid_idempotency_key'
  | 'invalid_image_url'
  | 'invalid_inputs'
  | 'invalid_json'
  | 'invalid_json_schema'
  | 'invalid_prompt'
  | 'invalid_request'
  | 'invalid_signature'
  | 'invalid_text'
  | 'invalid_type'
  | 'invalid_url'
  | 'invalid_value'
  | 'item_in_use'
  | 'item_not_found'
  | 'log_not_kept'
  | 'message_not_found'
  | 'method_not_allowed'
  | 'missing_approval'
  | 'missing_output'
  | 'missing_required_parameter'
  | 'missing_tool_result'
  | 'model_auth'
  | 'model_not_found'
  | 'model_overloaded'
  | 'model_protocol'
  | 'model_timeout'
  | 'model_unreachable'
  | 'mutually_exclusive_parameters'
  | 'nesting_too_deep'
  | 'not_local'
  | 'object_above_max_properties'
  | 'origin_not_allowed'
  | 'output_invalid'
  | 'previous_response_not_found'
  | 'program_diverged'
  | 'program_failed'
  | 'rate_limit_exceeded'
  | 'request_not_found'
  | 'request_timeout'
  | 'request_too_large'
  | 'response_deleted'
  | 'response_in_conversation'
  | 'response_in_progress'
  | 'response_interrupted'
  | 'response_not_found'
  | 'response_waiting'
  | 'run_driven_elsewhere'
  | 'run_driver_silent'
  | 'run_not_forkable'
  | 'run_not_found'
  | 'run_not_replayable'
  | 'run_not_resumable'
  | 'run_not_running'
  | 'memory_not_found'
  | 'schedule_configured'
  | 'schedule_exists'
  | 'schedule_not_found'
  | 'schema_too_large'
  | 'server_error'
  | 'server_stopping'
  | 'shutting_down'
  | 'store_unavailable'
  | 'stream_not_stored'
  | 'string_above_max_length'
  | 'string_below_min_length'
  | 'task_in_use'
  | 'test_unavailable'
  | 'thread_already_continued'
  | 'thread_continue_in_flight'
  | 'thread_fingerprint_mismatch'
  | 'thread_not_found'
  | 'too_many_bytes'
  | 'too_many_requests'
  | 'too_many_runs'
  | 'too_many_schedules'
  | 'too_many_streams'
  | 'tool_too_large'
  | 'tools_unavailable'
  | 'trigger_not_found'
  | 'unknown_approval'
  | 'unknown_call'
  | 'unknown_parameter'
  | 'unknown_tool'
  | 'unknown_tool_call'
  | 'unknown_url'
  | 'unsupported_media_type'
  | 'unsupported_parameter'
  | 'unsupported_protocol'
  | 'unsupported_tool'
  | 'unsupported_value'
  | 'upgrade_required'
  | 'websocket_connection_limit_reached'
  | 'workflow_not_found';

export interface ApiErrorDetails {
  readonly param?: string;
  /** One of the server's, or a code of your own. */
  readonly code?: ApiErrorCode | (string & {});
  readonly headers?: Readonly<Record<string, string>>;
  readonly providerStatus?: number | undefined;
}

/** A 400: the client has to change the request. */
export function badRequest(message: string, param?: string, code?: ApiErrorCode): ApiError {
  return new ApiError(400, 'invalid_request_error', message, {
    ...(param !== undefined && { param }),
    ...(code !== undefined && { code }),
  });
}

/** Another server, or this one after its restart, can answer. */
export function shuttingDown(): ApiError {
  return new ApiError(503, 'server_error', 'The server is shutting down. Retry in a moment.', {
    code: 'shutting_down',
    headers: { 'Retry-After': '1' },
  });
}

/** The JSON body of an error response. */
export function errorBody({ message, type, param, code }: ApiError): { readonly error: object } {
  return { error: { message, type, param, code } };
}

/** Somebody has to free space on the disk, or another program has to release its lock. */
const STORE_RETRY_SECONDS = 5;

/** The store cannot be read or written, such as on a full disk. What it contains is intact, so a later attempt may succeed. */
export function isStoreFailure(error: unknown): error is TreadleError {
  return error instanceof TreadleError && (error.code === 'journal-failed' || error.code.startsWith('store-'));
}

/** What was refused may be accepted a while later, so that whoever has no client repeats it. */
export function isTemporary(error: unknown): boolean {
  return isStoreFailure(error) || (error instanceof ApiError && [429, 503].includes(error.status));
}

/** One record is damaged, and the store works. Failures of the store itself have a cause. */
function isDamage({ code, cause }: TreadleError): boolean {
  return code === 'store-failed' && cause === undefined;
}

/** The error that a client receives for anything that was thrown. Details of unexpected errors are only in the log. */
export function toApiError(thrown: unknown, requestId: string): ApiError {
  if (thrown instanceof ApiError) return thrown;
  if (isStoreFailure(thrown) && !isDamage(thrown)) {
    const message = `The server cannot use its store at the moment. Retry later. Its log has the reason, with the request id ${requestId}.`;
    const headers = { 'Retry-After': String(STORE_RETRY_SECONDS) };
    return new ApiError(503, 'server_error', message, { code: 'store_unavailable', headers });
  }
  return new ApiError(
    500,
    'server_error',
    `The server failed to process this request. Its log has the reason, with the request id ${requestId}.`,
    { code: 'internal_error' },
  );
}
