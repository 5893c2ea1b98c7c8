import type { Clock, ModelError, ModelReply } from '@treadle/core';

export interface BreakerOptions {
  /** Failures in a row that open it; default 5. */
  readonly failures?: number;
  /** How long nobody asks then; default 30,000. */
  readonly cooldownMs?: number;
}

/**
 * Keeps requests from an endpoint that is down. Closed: all may pass. After some failures in a row it is open: nobody
 * may, for a while. Then it is half open: one may pass to try it, and how that goes closes it or opens it again.
 */
export interface Breaker {
  /** Whether somebody might pass at that time. */
  admits(at: number): boolean;
  /** Passes, or gives how long nobody may. Whoever passes tells how it went; the first word counts. */
  pass(): Passed | { readonly type: 'open'; readonly ms: number };
}

interface Passed {
  readonly type: 'passed';
  readonly told: (reply: ModelReply) => void;
}

/** What a reply says of the endpoint; undefined: nothing. */
type Sign = 'up' | 'down' | undefined;

export function breaker({ failures = 5, cooldownMs = 30_000 }: BreakerOptions, clock: Clock): Breaker {
  /** Since it last closed, so that one more opens it again. */
  let inARow = 0;
  let openUntil: number | undefined;
  let probing = false;
  /** Counts the openings: what began before the last one says nothing about now. */
  let opened = 0;

  const passed = (isProbe: boolean): Passed => {
    const since = opened;
    let isTold = false;
    const told = (reply: ModelReply): void => {
      if (isTold) return;
      isTold = true;
      if (isProbe) probing = false;
      if (since === opened) take(signOf(reply));
    };
    return { type: 'passed', told };
  };
  const take = (sign: Sign): void => {
    if (sign === 'down' && ++inARow >= failures) {
      opened++;
      openUntil = clock.now() + cooldownMs;
    }
    if (sign === 'up') {
      inARow = 0;
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
 * What a reply tells of the endpoint. To refuse a request is to be up, and so is to name the time when to come back. A
 * request that was cancelled tells nothing.
 */
function signOf(reply: ModelReply): Sign {
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
      return 'up';
    default:
      return code satisfies never;
  }
}
