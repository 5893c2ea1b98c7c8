import { messageOf, type ModelError } from '@treadle/core';
import {
  CANCELLED,
  failureOfBody,
  failureOfConnection,
  failureOfFrame,
  protocolFailure,
  timedOut,
} from '../http/failures.ts';
import { retryAfterMs } from '../http/retry.ts';
import { isRecord } from '../json.ts';

/** The fields of an `APICallError` of any version of the AI SDK. */
interface CallError {
  readonly statusCode?: unknown;
  readonly responseHeaders?: Readonly<Record<string, string>>;
  readonly responseBody?: unknown;
  readonly isRetryable?: unknown;
  readonly url?: unknown;
}

/**
 * Text that looks like a key. The provider package has the key, so it cannot be compared. Messages are not shortened
 * here, because the caller first redacts other secrets in them.
 */
const KEY_LIKE = /\b(?:sk|rk|pk|gsk|xai|hf|AIza)[-_]?[\w-]{16,}/g;

/** The failure for an error that the model threw. */
export function failureOfThrown(thrown: unknown, now: number): ModelError {
  return redactKeys(isRecord(thrown) ? failureOfError(thrown, now) : protocolFailure(messageOf(thrown)));
}

/** The failure for an `error` part of a stream, which contains an error, the provider's own object, or a string. */
export function failureOfPart(error: unknown): ModelError {
  // There is no clock here, so a date in retry-after counts as past.
  if (error instanceof Error) return failureOfThrown(error, Infinity);
  const frame = isRecord(error) ? error : { message: messageOf(error) };
  return redactKeys(failureOfFrame({ status_code: (frame as CallError).statusCode, ...frame }));
}

function failureOfError(thrown: object, now: number): ModelError {
  const name = 'name' in thrown ? String(thrown.name) : '';
  if (name === 'AbortError' || name === 'ResponseAborted') return CANCELLED;
  if (name === 'TimeoutError') return timedOut(messageOf(thrown));
  if (name === 'AI_LoadAPIKeyError') return finalFailure('auth', thrown);
  const { statusCode, responseHeaders, responseBody, isRetryable, url } = thrown as CallError;
  if (typeof statusCode === 'number' && statusCode >= 300) {
    const body = typeof responseBody === 'string' && responseBody !== '' ? responseBody : messageOf(thrown);
    const error = failureOfBody(statusCode, body);
    const wait = retryAfterMs((header) => responseHeaders?.[header], now);
    return {
      ...error,
      retryable: error.retryable && isRetryable !== false,
      ...(wait !== undefined && { retryAfterMs: wait }),
    };
  }
  if (typeof statusCode === 'number' || UNREADABLE.has(name)) {
    return protocolFailure(`The provider's answer cannot be parsed: ${messageOf(thrown)}`);
  }
  if (name === 'AI_APICallError' || hasCause(thrown)) {
    // A connection that fails before the answer is a call error of the AI SDK.
    const isAnswered = name !== 'AI_APICallError';
    return failureOfConnection(hasCause(thrown) ? thrown.cause : thrown, hostOf(url), { isAnswered });
  }
  if (name.startsWith('AI_')) return finalFailure('invalid-request', thrown);
  return { ...protocolFailure(`The AI SDK's model failed: ${messageOf(thrown)}`), retryable: false };
}

const UNREADABLE: ReadonlySet<string> = new Set([
  'AI_EmptyResponseBodyError',
  'AI_InvalidResponseDataError',
  'AI_JSONParseError',
  'AI_NoContentGeneratedError',
  'AI_TypeValidationError',
]);

function finalFailure(code: 'auth' | 'invalid-request', thrown: object): ModelError {
  return { code, message: messageOf(thrown), retryable: false };
}

function redactKeys(error: ModelError): ModelError {
  return { ...error, message: error.message.replaceAll(KEY_LIKE, '[redacted]') };
}

function hostOf(url: unknown): string {
  const parsed = typeof url === 'string' ? URL.parse(url) : null;
  return parsed?.host ?? 'the provider';
}

function hasCause(thrown: object): thrown is { readonly cause: Error } {
  return 'cause' in thrown && thrown.cause instanceof Error;
}
