import { ApiError, errorBody } from '../api-error.ts';

/** What the client is told of something thrown. Only what was meant for it; the rest is for the log. */
export function toApiError(thrown: unknown, requestId: string): ApiError {
  if (thrown instanceof ApiError) return thrown;
  return new ApiError(
    500,
    'server_error',
    `The server failed at this request. Its log says why, under the request id ${requestId}.`,
    { code: 'internal_error' },
  );
}

/** An error as an answer. */
export function errorResponse(error: ApiError): Response {
  return new Response(JSON.stringify(errorBody(error)), {
    status: error.status,
    headers: { 'Content-Type': 'application/json', ...error.headers },
  });
}
