import type { Clock, ModelError, ModelReply } from '@treadle/core';

export interface BreakerOptions {
  /** Consecutive failures that open it; default 5. */
  readonly failures?: number;
  /** How long it stays open, in milliseconds; default 30,000. */
  readonly cooldownMs?: number;
}

/**
 * A circuit breaker: keeps requests from an endpoint that is down. While it is closed, all requests pass. Consecutive
 * failures open it, and no request passes for a while. Then one request passes as a probe, whose result closes the
 * breaker or opens it again.
 */
export interface Breaker {
  /** Whether a request could pass at that time. */
  admits(at: number): boolean;
  /** Passes, or returns for how long the breaker is still open. A request that passes reports its reply. */
  pass(): Passed | { readonly type: 'open'; readonly ms: number };
}

interface Passed {
  readonly type: 'passed';
  /** Only the first reply counts. */
  readonly report: (reply: ModelReply) => void;
}

/** The state of the endpoint as far as a reply shows it. */
type EndpointState = 'up' | 'down' | undefined;

export function breaker({ failures = 5, cooldownMs = 30_000 }: BreakerOptions, clock: Clock): Breaker {
  /** Not reset when the breaker opens, so that one failed probe opens it again. */
  let consecutiveFailures = 0;
  let openUntil: number | undefined;
  let probing = false;
  /** How often it opened. Replies to requests from before the last opening are ignored. */
  let openings = 0;

  const passed = (isProbe: boolean): Passed => {
    const openingsBefore = openings;
    let isReported = false;
    const report = (reply: ModelReply): void => {
      if (isReported) return;
      isReported = true;
      if (isProbe) probing = false;
      if (openingsBefore === openings) recordState(stateAfter(reply));
    };
    return { type: 'passed', report };
  };
  const recordState = (state: EndpointState): void => {
    if (state === 'down' && ++consecutiveFailures >= failures) {
      openings++;
      openUntil = clock.now() + cooldownMs;
    }
    if (state === 'up') {
      consecutiveFailures = 0;
      openUntil = undefined;
    }
  };

  return {
    admits: (at) => openUntil === undefined || (at >= openUntil && !probing),
    pass() {
      if (openUntil === undefined) return passed(false);
      const ms = openUntil - clock.now();
      if (ms > 0 || probing) return { type: 'open', ms: Math.max(0, ms) };
      probing = true;
      return passed(true);
    },
  };
}

/**
 * An endpoint that refuses a request or sends a retry-after is up. A cancelled request shows nothing.
 */
function stateAfter(reply: ModelReply): EndpointState {
  if (reply.type === 'reply') return 'up';
  const { code, retryable, retryAfterMs }: ModelError = reply.error;
  switch (code) {
    case 'network':
    case 'timeout':
    case 'overloaded':
    case 'protocol':
      return 'down';
    case 'rate-limit':
      return retryable && retryAfterMs === undefined ? 'down' : 'up';
    case 'cancelled':
      return undefined;
    case 'auth':
    case 'context-length':
    case 'invalid-request':
    case 'content-filter':
    case 'program-failed':
    case 'program-diverged':
      return 'up';
    default:
      return code satisfies never;
  }
}
