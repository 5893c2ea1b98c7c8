import type { ModelError, ModelErrorCode } from '@treadle/core';
import { isRecord } from '../json.ts';
import { failureOfStatus, misunderstood } from './failures.ts';

/** An error as OpenAI and the hosts that follow it tell it, in one of several shapes. */
interface Told {
  readonly message: string;
  /** All words that name the kind of error. */
  readonly kind: string;
  readonly status?: number;
}

export function failureOfBody(status: number, text: string): ModelError {
  const told = toldBy(text);
  return sharpened(failureOfStatus(status, `The provider answered ${status}: ${told.message}`), told);
}

/** Whether an answer, or an event of one, tells an error: `{error: …}`, or as vLLM does with the error itself. */
export function isErrorFrame(frame: { readonly error?: unknown; readonly object?: unknown }): boolean {
  return Boolean(frame.error) || frame.object === 'error';
}

/** An error inside an answer that began well. */
export function failureOfFrame(frame: unknown): ModelError {
  const told = read(frame) ?? { message: 'an error without words', kind: '' };
  const message = `The provider broke off with an error: ${told.message}`;
  const plain = told.status === undefined ? misunderstood(message) : failureOfStatus(told.status, message);
  return sharpened(plain, told);
}

/** The kinds that matter and that a status does not tell apart; the first that fits. */
const KINDS: readonly [RegExp, ModelErrorCode, retryable: boolean][] = [
  [/context_length|string_above_max|exceed_context/, 'context-length', false],
  [/content_filter|_policy|responsible_?ai|moderation|invalid_prompt/, 'content-filter', false],
  [/insufficient_quota|billing|quota_exceeded/, 'rate-limit', false],
  [/rate_limit|too_many_requests/, 'rate-limit', true],
  [/overloaded|server_error|unavailable|internal/, 'overloaded', true],
  [/invalid_api_key|authentication|permission/, 'auth', false],
  [/timeout/, 'timeout', true],
  [/image|_mismatch/, 'invalid-request', false],
];

const TOO_LONG =
  /(maximum|exceeds?|available|model'?s) context|context (length|window|size)|prompt is too long|too many (input )?tokens|reduce the length/i;

function sharpened(error: ModelError, { kind, message }: Told): ModelError {
  const known = KINDS.find(([pattern]) => pattern.test(kind));
  const code = known?.[1] ?? error.code;
  // llama.cpp calls it a server error.
  const vague = code === 'invalid-request' || code === 'protocol' || code === 'overloaded';
  if (vague && TOO_LONG.test(message)) return { ...error, code: 'context-length', retryable: false };
  if (known !== undefined) return { ...error, code, retryable: known[2] };
  if (error.code === 'protocol' && kind.includes('invalid_request')) {
    return { ...error, code: 'invalid-request', retryable: false };
  }
  return error;
}

function toldBy(text: string): Told {
  try {
    const told = read(JSON.parse(text));
    if (told !== undefined) return told;
  } catch {
    // Not JSON: a proxy's page, or plain words.
  }
  const page = /<title>([^<]*)<\/title>/i.exec(text)?.[1];
  return { message: (page ?? text).trim() || 'no reason given', kind: '' };
}

/** `{error: {message, type, code}}`, `{error: '…'}`, `{message}`, `{detail}`, or one of them in an array. */
function read(body: unknown): Told | undefined {
  if (Array.isArray(body)) return read(body[0]);
  if (!isRecord(body)) return undefined;
  const error = isRecord(body['error']) ? body['error'] : body;
  const message = [error['message'], body['error'], error['detail'], error['msg']].find(
    (words) => typeof words === 'string',
  );
  const details = isRecord(error['metadata']) ? error['metadata']['raw'] : undefined;
  const kind = [error['code'], error['type'], error['status']].filter((word) => typeof word === 'string');
  const status = [error['code'], error['status'], error['status_code']].find(isStatus);
  if (message === undefined && kind.length === 0 && status === undefined) return undefined;
  return {
    message: `${String(message ?? JSON.stringify(error))}${typeof details === 'string' ? ` (${details})` : ''}`,
    kind: kind.join(' ').toLowerCase(),
    ...(status !== undefined && { status }),
  };
}

function isStatus(value: unknown): value is number {
  return typeof value === 'number' && value >= 400 && value <= 599;
}
