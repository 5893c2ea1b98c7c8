import type { ModelError } from '@treadle/core';
import { failureOfBody as toldByBody, failureOfFrame as toldByFrame } from '../http/provider-failures.ts';

/** Errors have the shape that OpenAI's have, `{error: {type, message}}`, and the same kinds, but for these few. */
export function failureOfBody(status: number, text: string): ModelError {
  return sharpened(toldByBody(status, text));
}

/** An error inside an answer that began well. */
export function failureOfFrame(frame: { readonly error?: unknown }): ModelError {
  const error = sharpened(toldByFrame(frame));
  const { type } = (frame.error ?? {}) as { readonly type?: unknown };
  // A breakdown inside the provider; as an answer of its own it has status 500, which says the same.
  return type === 'api_error' ? { ...error, code: 'overloaded', retryable: true } : error;
}

/** What the API calls an invalid request though no other request would fare better. */
function sharpened(error: ModelError): ModelError {
  if (error.code !== 'invalid-request') return error;
  if (/credit balance is too low/i.test(error.message)) return { ...error, code: 'rate-limit' };
  if (/blocked by content filtering/i.test(error.message)) return { ...error, code: 'content-filter' };
  return error;
}
