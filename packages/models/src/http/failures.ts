import { messageOf, type ModelError, type ModelErrorCode } from '@treadle/core';
import { isRecord } from '../json.ts';

/** The failure that a status means if the provider does not report a more specific one. */
function failureOfStatus(status: number, message: string): ModelError {
  const [code, retryable] = meaningOfStatus(status);
  return { code, message, retryable, status };
}

function meaningOfStatus(status: number): [ModelErrorCode, retryable: boolean] {
  switch (status) {
    case 401:
    case 403:
      return ['auth', false];
    // The credit is used up: a limit, but waiting does not help.
    case 402:
      return ['rate-limit', false];
    case 429:
      return ['rate-limit', true];
    case 408:
    case 504:
      return ['timeout', true];
    case 413:
      return ['context-length', false];
    case 409:
    case 425:
      return ['overloaded', true];
    default:
      return status >= 500 ? ['overloaded', true] : ['invalid-request', false];
  }
}

/** The failure of a request that got no answer, or only a part of one: `isAnswered`. */
export function failureOfConnection(
  thrown: unknown,
  where: string,
  { isAnswered = false }: { readonly isAnswered?: boolean } = {},
): ModelError {
  const reason = reasonOf(thrown);
  const code = reason instanceof Error && 'code' in reason && typeof reason.code === 'string' ? reason.code : undefined;
  const details = `${messageOf(reason)}${code === undefined ? '' : ` (${code})`}`;
  if (code === 'UND_ERR_CONNECT_TIMEOUT') {
    return { code: 'timeout', message: `No connection to ${where}: ${details}`, retryable: true };
  }
  if (code?.startsWith('UND_ERR_INVALID')) {
    return { code: 'invalid-request', message: `The request cannot be sent: ${details}`, retryable: false };
  }
  // From undici, ours and the one inside Node. It has no code.
  if (reason instanceof Error && reason.name === 'HTTPParserError') {
    return { code: 'protocol', message: `${where} does not answer in HTTP: ${details}`, retryable: true };
  }
  if (isAnswered) {
    const message = `The connection to ${where} broke off in the middle of the answer: ${details}.`;
    return { code: 'network', message, retryable: true };
  }
  const certificate = code !== undefined && /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL/.test(code);
  const hint = certificate ? '' : ' Check that it is running and that the base URL is correct.';
  return { code: 'network', message: `Connection to ${where} failed: ${details}.${hint}`, retryable: !certificate };
}

export function timedOut(message: string): ModelError {
  return { code: 'timeout', message, retryable: true };
}

/** The answer is malformed or incomplete. */
export function protocolFailure(message: string): ModelError {
  return { code: 'protocol', message, retryable: true };
}

interface FailedReply {
  readonly type: 'failure';
  readonly error: ModelError;
}

/** Contains all of the text: it may be shortened only after secrets have been removed from it. */
export function notJson(text: string): FailedReply {
  return { type: 'failure', error: protocolFailure(`The answer contains data that is not JSON: ${text}`) };
}

/** The stream ended before the reply was complete. */
export function cutOff(how: string): FailedReply {
  return { type: 'failure', error: protocolFailure(`The reply was cut off: ${how}.`) };
}

export const CANCELLED: ModelError = { code: 'cancelled', message: 'The request was cancelled.', retryable: false };

/** `fetch` puts the reason into `cause`; a host with several addresses has one in `errors` for each. */
function reasonOf(thrown: unknown): unknown {
  if (thrown instanceof AggregateError && thrown.errors.length > 0) return reasonOf(thrown.errors[0]);
  return thrown instanceof Error && thrown.cause instanceof Error ? reasonOf(thrown.cause) : thrown;
}

/** An error as OpenAI and compatible hosts report it, in one of several shapes. */
interface ReportedError {
  readonly message: string;
  /** All fields that name the kind of the error. */
  readonly kind: string;
  readonly status?: number;
  /** Google's details of the error. */
  readonly details?: readonly unknown[];
}

/** The failure in the body of an answer with an error status. */
export function failureOfBody(status: number, text: string): ModelError {
  const reported = errorInText(text);
  return specificFailure(failureOfStatus(status, `The provider answered ${status}: ${reported.message}`), reported);
}

/** Whether an answer, or an event of one, is an error: `{error: …}`, or on vLLM the error object itself. */
export function isErrorFrame(frame: { readonly error?: unknown; readonly object?: unknown }): boolean {
  return Boolean(frame.error) || frame.object === 'error';
}

/** The failure in an event of an answer that started without an error. */
export function failureOfFrame(frame: unknown): ModelError {
  const reported = errorIn(frame) ?? { message: 'an error without a message', kind: '' };
  const message = `The provider broke off with an error: ${reported.message}`;
  const { status } = reported;
  return specificFailure(status === undefined ? protocolFailure(message) : failureOfStatus(status, message), reported);
}

/** Kinds of errors that a status does not distinguish. The first match counts. */
const KINDS: readonly [RegExp, ModelErrorCode, retryable: boolean][] = [
  [/context_length|string_above_max|exceed_context/, 'context-length', false],
  [/content_filter|_policy|responsible_?ai|moderation|invalid_prompt/, 'content-filter', false],
  [/insufficient_quota|billing|quota_exceeded/, 'rate-limit', false],
  [/rate_limit|too_many_requests/, 'rate-limit', true],
  [/overloaded|server_error|unavailable|internal/, 'overloaded', true],
  [/invalid_api_key|api_key_invalid|authentication|permission/, 'auth', false],
  [/timeout/, 'timeout', true],
  [/image|_mismatch/, 'invalid-request', false],
];

const TOO_LONG =
  /(maximum|exceeds?|available|model'?s) context|context (length|window|size)|prompt is too long|too many (input )?tokens|reduce the length|token count.* exceeds/i;

function specificFailure(error: ModelError, reported: ReportedError): ModelError {
  const failure = failureOfKind(error, reported);
  return reported.details ? { ...failure, ...googleFacts(reported.details) } : failure;
}

/** When to retry, and whether a quota is that of a day. The wait that Google then asks for is far too short. */
function googleFacts(details: readonly unknown[]): Partial<ModelError> {
  const json = JSON.stringify(details);
  const wait = /"retryDelay":"(\d+(?:\.\d+)?)s"/.exec(json)?.[1];
  if (/"quotaId":"\w*PerDay/.test(json)) return { retryable: false };
  return wait === undefined ? {} : { retryAfterMs: Math.ceil(Number(wait) * 1_000) };
}

function failureOfKind(error: ModelError, { kind, message }: ReportedError): ModelError {
  const known = KINDS.find(([pattern]) => pattern.test(kind));
  const code = known?.[1] ?? error.code;
  // llama.cpp reports a context that is too long as a server error.
  const vague = code === 'invalid-request' || code === 'protocol' || code === 'overloaded';
  if (vague && TOO_LONG.test(message)) return { ...error, code: 'context-length', retryable: false };
  if (known !== undefined) return { ...error, code, retryable: known[2] };
  if (error.code === 'protocol' && kind.includes('invalid_request')) {
    return { ...error, code: 'invalid-request', retryable: false };
  }
  return error;
}

function errorInText(text: string): ReportedError {
  try {
    const reported = errorIn(JSON.parse(text));
    if (reported !== undefined) return reported;
  } catch {
    // Not JSON: the page of a proxy, or plain text.
  }
  const page = /<title>([^<]*)<\/title>/i.exec(text)?.[1];
  return { message: (page ?? text).trim() || 'no reason given', kind: '' };
}

/** `{error: {message, type, code}}`, `{error: '…'}`, `{message}`, `{detail}`, or one of them in an array. */
function errorIn(body: unknown): ReportedError | undefined {
  if (Array.isArray(body)) return errorIn(body[0]);
  if (!isRecord(body)) return undefined;
  const error = isRecord(body['error']) ? body['error'] : body;
  const message = [error['message'], body['error'], error['detail'], error['msg']].find(
    (text) => typeof text === 'string',
  );
  const details = isRecord(error['metadata']) ? error['metadata']['raw'] : undefined;
  const list = Array.isArray(error['details']) ? (error['details'] as unknown[]) : undefined;
  const reasons = (list ?? []).map((detail) => (isRecord(detail) ? detail['reason'] : undefined));
  const kind = [error['code'], error['type'], error['status'], ...reasons].filter((word) => typeof word === 'string');
  const status = [error['code'], error['status'], error['status_code']].find(isStatus);
  if (message === undefined && kind.length === 0 && status === undefined) return undefined;
  return {
    message: `${String(message ?? JSON.stringify(error))}${typeof details === 'string' ? ` (${details})` : ''}`,
    kind: kind.join(' ').toLowerCase(),
    ...(status !== undefined && { status }),
    ...(list && { details: list }),
  };
}

function isStatus(value: unknown): value is number {
  return typeof value === 'number' && value >= 400 && value <= 599;
}
