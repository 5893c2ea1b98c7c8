import {
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  SseError,
  UnauthorizedError,
} from '@modelcontextprotocol/client';
import { messageOf } from '@treadle/core';
import { cleanText } from './describe.ts';
import { STREAM_ENDED } from './http.ts';
import { McpError } from './options.ts';

/* What the errors of the SDK and of servers mean for a connection, and what a user is told of them. */

const HEADER_MISMATCH = -32020;

/** What a user is told of an error. */
export function problemOf(name: string, error: unknown): McpError {
  if (error instanceof McpError) return error;
  // The SDK wraps what fails while it negotiates the version.
  const wraps =
    error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed && error.cause instanceof Error;
  return wraps ? problemOf(name, error.cause) : mcpErrorOf(name, error);
}

export function abortError(name: string, { reason }: AbortSignal): Error {
  if (reason instanceof McpError) return reason;
  return new McpError('aborted', `The request to MCP server "${name}" was cancelled.`, { cause: reason });
}

export function mcpErrorOf(name: string, error: unknown): McpError {
  const about = `MCP server "${name}"`;
  const why = cleanText(messageOf(error), 1_000);
  const cause = { cause: error };
  if (error instanceof UnauthorizedError) {
    return new McpError('unauthorized', `${about} wants a sign-in. Sign in, or give credentials in its headers.`, {
      ...cause,
      httpStatus: 401,
    });
  }
  if (error instanceof SdkHttpError) {
    const { status } = error.data;
    const facts = { ...cause, httpStatus: status };
    if (status === 401 || status === 403) {
      const remedy = 'Sign in, or check the credentials in its headers';
      return new McpError('unauthorized', `${about} refused the credentials (HTTP ${status}). ${remedy}.`, facts);
    }
    const code = status >= 500 || status === 429 ? 'unreachable' : 'protocol';
    return new McpError(code, `${about} answered with HTTP ${status}: ${why}`, facts);
  }
  if (error instanceof ProtocolError) {
    return new McpError('refused', `${about} refused: ${why}`, { ...cause, protocolCode: error.code });
  }
  if (error instanceof SdkError) {
    if (error.code === SdkErrorCode.RequestTimeout)
      return new McpError('timeout', `${about} did not answer in time.`, cause);
    if (error.code === SdkErrorCode.ConnectionClosed || error.code === SdkErrorCode.NotConnected) {
      return new McpError('ended', `The connection to ${about} has ended.`, cause);
    }
    return new McpError('protocol', `${about} does not follow the protocol: ${why}`, cause);
  }
  if (error instanceof TypeError) {
    const { cause: inner } = error as { cause?: unknown };
    const reason = inner === undefined ? why : cleanText(messageOf(inner), 1_000);
    return new McpError('unreachable', `${about} cannot be reached: ${reason}`, cause);
  }
  return new McpError('protocol', `${about} failed: ${why}`, cause);
}

export function isConnectionLost(error: unknown): boolean {
  if (error instanceof ProtocolError) return error.code === STREAM_ENDED;
  if (error instanceof McpError) return error.code === 'ended' || error.code === 'too-large';
  return (
    error instanceof SdkError &&
    (error.code === SdkErrorCode.ConnectionClosed || error.code === SdkErrorCode.NotConnected)
  );
}

/** Whether the address does not take messages, as one that only sends events, or the reverse. */
export function refusesPosts(error: unknown): boolean {
  if (error instanceof SdkError && error.code === SdkErrorCode.EraNegotiationFailed) return refusesPosts(error.cause);
  const status = error instanceof SdkHttpError ? error.status : error instanceof SseError ? error.code : undefined;
  return status === 400 || status === 404 || status === 405;
}

/** Nothing has reached the server, or it does not know the session any more: it was started again, for example. */
export function wasNotAccepted(error: unknown): boolean {
  if (error instanceof SdkHttpError) {
    const { status, text } = error.data as { readonly status: number; readonly text?: unknown };
    // Many servers answer 400 instead of the 404 that the protocol requires.
    return status === 404 || (status === 400 && typeof text === 'string' && /session/i.test(text));
  }
  const { cause } = (error ?? {}) as { readonly cause?: { readonly code?: unknown } };
  return error instanceof TypeError && cause?.code === 'ECONNREFUSED';
}

export function isHeaderMismatch(error: unknown): boolean {
  return error instanceof ProtocolError && error.code === HEADER_MISMATCH;
}

/** What a server says of a task for good. */
export const FINAL: ReadonlySet<string> = new Set(['refused', 'protocol', 'too-large']);
