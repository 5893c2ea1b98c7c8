/** An error for the client. The message says what is wrong and what to do, and never contains a secret. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;
  readonly type: ApiErrorType;
  /** The field of the request that is wrong, such as `input[2].call_id`. */
  readonly param: string | null;
  readonly code: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, type: ApiErrorType, message: string, more: ApiErrorDetails = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.param = more.param ?? null;
    this.code = more.code ?? null;
    this.headers = more.headers ?? {};
  }
}

export type ApiErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'not_found_error'
  | 'rate_limit_error'
  | 'server_error';

export interface ApiErrorDetails {
  readonly param?: string;
  readonly code?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A 400: the client has to change the request. */
export function badRequest(message: string, param?: string, code?: string): ApiError {
  return new ApiError(400, 'invalid_request_error', message, {
    ...(param !== undefined && { param }),
    ...(code !== undefined && { code }),
  });
}

/** The JSON body of an error response. */
export function errorBody({ message, type, param, code }: ApiError): { readonly error: object } {
  return { error: { message, type, param, code } };
}

/** The error that a client receives for anything that was thrown. Details of unexpected errors are only in the log. */
export function toApiError(thrown: unknown, requestId: string): ApiError {
  if (thrown instanceof ApiError) return thrown;
  return new ApiError(
    500,
    'server_error',
    `The server failed to process this request. Its log has the reason, with the request id ${requestId}.`,
    { code: 'internal_error' },
  );
}
