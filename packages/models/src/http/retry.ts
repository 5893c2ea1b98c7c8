import type { Attempt, Clock, Model, ModelReply } from '@treadle/core';
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
  /** By the clock: nobody waits beyond it. */
  readonly deadline?: number | undefined;
  /** Whether another attempt makes sense after so long a wait; default: up to a minute. */
  readonly worthwhile?: (waitMs: number) => boolean;
}

const FIRST_WAIT_MS = 500;
/** Of the waits that nobody has asked for. */
export const LONGEST_WAIT_MS = 8_000;
/** A server that wants to be left alone for longer is not waited for: whoever called may know another one. */
export const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Attempts until one succeeds, fails for good or has shown something: what was shown cannot be taken back, so then the
 * failure goes to the caller. Every attempt is in the reply; an attempt that has made several itself tells of those.
 */
export async function withRetries(
  retries: Retries,
  attempt: (emit: Emit) => Promise<ModelReply>,
  emit: Emit,
  signal: AbortSignal,
): Promise<ModelReply> {
  const { maxRetries, model, clock, random, deadline = Infinity, worthwhile = upToAMinute } = retries;
  let attempts: readonly Attempt[] = [];
  for (let retry = 0; ; retry++) {
    let shown = false;
    const began = clock.now();
    const reply = await attempt((delta) => {
      shown = true;
      return emit(delta);
    });
    const made = attemptsOf(reply, model, clock.now() - began);
    attempts = retry === 0 ? made : [...attempts, ...made];
    if (reply.type === 'reply') return { ...reply, attempts };

    const { error } = reply;
    if (!error.retryable || shown || retry >= maxRetries) return { ...reply, attempts };
    const backoff = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** retry);
    const wait = Math.max(error.retryAfterMs ?? 0, Math.ceil(backoff * (0.5 + random() / 2)));
    if (clock.now() + wait >= deadline || !worthwhile(wait)) return { ...reply, attempts };
    await pause(wait, clock, signal);
    if (signal.aborted) return { type: 'failure', error: CANCELLED, attempts };
  }
}

/** A reply that tells of no attempts was one itself. */
export function attemptsOf(reply: ModelReply, model: string, ms: number): readonly Attempt[] {
  if (reply.attempts) return reply.attempts;
  return [reply.type === 'reply' ? { model: reply.model, ms } : { model, ms, error: reply.error }];
}

function upToAMinute(waitMs: number): boolean {
  return waitMs <= LONGEST_RETRY_AFTER_MS;
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

/** By the model itself, so that a copy of it with another `reply` is not passed by. */
const single = new WeakMap<Model, Model['reply']>();

/** Says how a model that retries is asked without that. */
export function retrying<M extends Model>(model: M, once: Model['reply']): M {
  single.set(model, once);
  return model;
}

/** Asks a model once: whoever retries must not have each retry retried. A model that we do not know does as it does. */
export function askOnce(model: Model): Model['reply'] {
  return single.get(model) ?? ((request, emit, signal) => model.reply(request, emit, signal));
}
