import { messageOf, type ModelError, type ModelErrorCode } from '@treadle/core';

/** What a status means where the provider gives no better reason. */
export function failureOfStatus(status: number, message: string): ModelError {
  const [code, retryable] = meaning(status);
  return { code, message, retryable, status };
}

function meaning(status: number): [ModelErrorCode, retryable: boolean] {
  switch (status) {
    case 401:
    case 403:
      return ['auth', false];
    // Credit is used up: like a limit, but one that waiting does not lift.
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

/** A request that got no answer, or only half of one. */
export function failureOfConnection(thrown: unknown, where: string): ModelError {
  const code = codeOf(thrown);
  const told = `${messageOf(reasonOf(thrown))}${code === undefined ? '' : ` (${code})`}`;
  if (code === 'UND_ERR_CONNECT_TIMEOUT') {
    return { code: 'timeout', message: `No connection to ${where}: ${told}`, retryable: true };
  }
  if (code?.startsWith('UND_ERR_INVALID')) {
    return { code: 'invalid-request', message: `The request cannot be sent: ${told}`, retryable: false };
  }
  // Of undici, ours and the one inside Node: it has no code.
  if (nameOf(thrown) === 'HTTPParserError') {
    return { code: 'protocol', message: `${where} does not answer in HTTP: ${told}`, retryable: true };
  }
  const certificate = code !== undefined && /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL/.test(code);
  const hint = certificate ? '' : ' Check that it is up and that the base URL is right.';
  return { code: 'network', message: `Connection to ${where} failed: ${told}.${hint}`, retryable: !certificate };
}

export function timedOut(message: string): ModelError {
  return { code: 'timeout', message, retryable: true };
}

/** The answer makes no sense, or not all of it came. */
export function misunderstood(message: string): ModelError {
  return { code: 'protocol', message, retryable: true };
}

export const CANCELLED: ModelError = { code: 'cancelled', message: 'The request was cancelled.', retryable: false };

/** `fetch` hides the reason in `cause`, several addresses of one host in `errors`. */
function reasonOf(thrown: unknown): unknown {
  if (thrown instanceof AggregateError && thrown.errors.length > 0) return reasonOf(thrown.errors[0]);
  return thrown instanceof Error && thrown.cause instanceof Error ? reasonOf(thrown.cause) : thrown;
}

function codeOf(thrown: unknown): string | undefined {
  const reason = reasonOf(thrown);
  return reason instanceof Error && 'code' in reason && typeof reason.code === 'string' ? reason.code : undefined;
}

function nameOf(thrown: unknown): string | undefined {
  const reason = reasonOf(thrown);
  return reason instanceof Error ? reason.name : undefined;
}
