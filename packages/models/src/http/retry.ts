import type { Attempt, Clock, ModelReply } from '@treadle/core';
import type { Emit } from '../protocol.ts';
import { CANCELLED } from './failures.ts';

export interface Retries {
  /** Attempts after the first. */
  readonly maxRetries: number;
  /** Named in the record of a failed attempt. */
  readonly model: string;
  readonly clock: Clock;
  /** From 0 to below 1. */
  readonly random: () => number;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;
/** A server that wants to be left alone for longer is not waited for: whoever called may know another one. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Attempts until one succeeds, fails for good or has shown something: what was shown cannot be taken back, so then the
 * failure goes to the caller. Every attempt is in the reply.
 */
export async function withRetries(
  { maxRetries, model, clock, random }: Retries,
  attempt: (emit: Emit) => Promise<ModelReply>,
  emit: Emit,
  signal: AbortSignal,
): Promise<ModelReply> {
  const attempts: Attempt[] = [];
  for (;;) {
    let shown = false;
    const began = clock.now();
    const reply = await attempt((delta) => {
      shown = true;
      emit(delta);
    });
    const ms = clock.now() - began;
    if (reply.type === 'reply') return { ...reply, attempts: [...attempts, { model: reply.model, ms }] };

    const { error } = reply;
    attempts.push({ model, ms, error });
    const asked = error.retryAfterMs ?? 0;
    if (!error.retryable || shown || attempts.length > maxRetries || asked > LONGEST_RETRY_AFTER_MS) {
      return { ...reply, attempts };
    }
    const backoff = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (attempts.length - 1));
    await pause(Math.max(asked, backoff * (0.5 + random() / 2)), clock, signal);
    if (signal.aborted) return { type: 'failure', error: CANCELLED, attempts };
  }
}

function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const wake = (): void => {
      stop();
      signal.removeEventListener('abort', wake);
      resolve();
    };
    const stop = clock.timer(ms, wake);
    signal.addEventListener('abort', wake, { once: true });
    if (signal.aborted) wake();
  });
}
