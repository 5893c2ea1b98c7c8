import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { ApiError, errorBody } from '../api-error.ts';
import { newRequestId } from './exchange.ts';

/**
 * Answers what Node could not read as a request. The error is not logged as it is: it holds the bytes that came, and
 * with them keys.
 */
export function refuseUnreadable(error: NodeJS.ErrnoException, socket: Duplex, log: Logger): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const refusal = refusalOf(error.code);
  const requestId = newRequestId();
  const body = JSON.stringify(errorBody(refusal));
  log.info({ requestId, status: refusal.status, code: error.code }, 'unreadable request');
  const head = [
    `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`,
    'Connection: close',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}

function refusalOf(code: string | undefined): ApiError {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError(408, 'invalid_request_error', 'The request did not arrive in time. Send it again.', {
        code: 'request_timeout',
      });
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError(431, 'invalid_request_error', 'The headers of the request are too large.', {
        code: 'headers_too_large',
      });
    default:
      return new ApiError(400, 'invalid_request_error', 'This is not a valid HTTP/1.1 request.', {
        code: 'invalid_request',
      });
  }
}
