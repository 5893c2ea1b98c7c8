import { messageOf, type ModelError } from '@treadle/core';
import {
  CANCELLED,
  failureOfBody,
  failureOfConnection,
  failureOfFrame,
  misunderstood,
  timedOut,
} from '../http/failures.ts';
import { retryAfterMs } from '../http/retry.ts';
import { isRecord } from '../json.ts';

/** What an `APICallError` of the AI SDK has, of whichever version; recognised by its fields. */
interface CallError {
  readonly statusCode?: unknown;
  readonly responseHeaders?: Readonly<Record<string, string>>;
  readonly responseBody?: unknown;
  readonly isRetryable?: unknown;
  readonly url?: unknown;
}

/**
 * The provider holds the key and we do not know it, so what looks like one is taken for one. What is told is not cut
 * here: whoever knows of other secrets looks for them first.
 */
const KEY_LIKE = /\b(?:sk|rk|pk|gsk|xai|hf|AIza)[-_]?[\w-]{16,}/g;

/** What was thrown instead of an answer. */
export function failureOfThrown(thrown: unknown, now: number): ModelError {
  return safe(isRecord(thrown) ? failureOfError(thrown, now) : misunderstood(messageOf(thrown)));
}

/** What a stream gives in an `error` part: an error, the provider's own frame, or words. */
export function failureOfPart(error: unknown): ModelError {
  // Without a clock, a date to wait for is taken to be past.
  if (error instanceof Error) return failureOfThrown(error, Infinity);
  const frame = isRecord(error) ? error : { message: messageOf(error) };
  return safe(failureOfFrame({ status_code: (frame as CallError).statusCode, ...frame }));
}

function failureOfError(thrown: object, now: number): ModelError {
  const name = 'name' in thrown ? String(thrown.name) : '';
  if (name === 'AbortError' || name === 'ResponseAborted') return CANCELLED;
  if (name === 'TimeoutError') return timedOut(messageOf(thrown));
  if (name === 'AI_LoadAPIKeyError') return refused('auth', thrown);
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
    return misunderstood(`The provider's answer cannot be understood: ${messageOf(thrown)}`);
  }
  if (name === 'AI_APICallError' || hasCause(thrown)) {
    return failureOfConnection(hasCause(thrown) ? thrown.cause : thrown, hostOf(url));
  }
  if (name.startsWith('AI_')) return refused('invalid-request', thrown);
  return { ...misunderstood(`The AI SDK's model failed: ${messageOf(thrown)}`), retryable: false };
}

const UNREADABLE: ReadonlySet<string> = new Set([
  'AI_EmptyResponseBodyError',
  'AI_InvalidResponseDataError',
  'AI_JSONParseError',
  'AI_NoContentGeneratedError',
  'AI_TypeValidationError',
]);

function refused(code: 'auth' | 'invalid-request', thrown: object): ModelError {
  return { code, message: messageOf(thrown), retryable: false };
}

function safe(error: ModelError): ModelError {
  return { ...error, message: error.message.replaceAll(KEY_LIKE, '[redacted]') };
}

function hostOf(url: unknown): string {
  const parsed = typeof url === 'string' ? URL.parse(url) : null;
  return parsed?.host ?? 'the provider';
}

function hasCause(thrown: object): thrown is { readonly cause: Error } {
  return 'cause' in thrown && thrown.cause instanceof Error;
}
