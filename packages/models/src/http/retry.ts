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
  /** A time of `clock`. No attempt is made if the wait would pass it. */
  readonly deadline?: number | undefined;
  /** Whether another attempt makes sense after a wait of that length; default: up to a minute. */
  readonly worthwhile?: (waitMs: number) => boolean;
}

const FIRST_WAIT_MS = 500;
/** The longest wait that the server did not ask for. */
export const LONGEST_WAIT_MS = 8_000;
/** If the server asks for a longer wait, the failure is returned: the caller may have another model to use. */
export const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Repeats `attempt` until it succeeds, fails permanently or has emitted a delta. Deltas cannot be taken back, so a failure
 * after one is returned. The reply lists all attempts; if an attempt lists attempts itself, those are included.
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
    let hasEmitted = false;
    const startedAt = clock.now();
    const reply = await attempt((delta) => {
      hasEmitted = true;
      return emit(delta);
    });
    const made = attemptsOf(reply, model, clock.now() - startedAt);
    attempts = retry === 0 ? made : [...attempts, ...made];
    if (reply.type === 'reply') return { ...reply, attempts };

    const { error } = reply;
    if (!error.retryable || hasEmitted || retry >= maxRetries) return { ...reply, attempts };
    const backoff = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** retry);
    const wait = Math.max(error.retryAfterMs ?? 0, Math.ceil(backoff * (0.5 + random() / 2)));
    if (clock.now() + wait >= deadline || !worthwhile(wait)) return { ...reply, attempts };
    await waitBeforeRetry(wait, clock, signal);
    if (signal.aborted) return { type: 'failure', error: CANCELLED, attempts };
  }
}

/** The attempts that a reply lists. A reply that lists none was one attempt. */
export function attemptsOf(reply: ModelReply, model: string, ms: number): readonly Attempt[] {
  if (reply.attempts) return reply.attempts;
  return [reply.type === 'reply' ? { model: reply.model, ms } : { model, ms, error: reply.error }];
}

function upToAMinute(waitMs: number): boolean {
  return waitMs <= LONGEST_RETRY_AFTER_MS;
}

function waitBeforeRetry(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
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

/** Keyed by the model object, so that a copy with another `reply` is not bypassed. */
const singleAttempts = new WeakMap<Model, Model['reply']>();

/** Registers how to call a model that retries without its retries. */
export function retrying<M extends Model>(model: M, once: Model['reply']): M {
  singleAttempts.set(model, once);
  return model;
}

/** Calls a model without its own retries, so that retries do not multiply. A model that is not registered is called as usual. */
export function askOnce(model: Model): Model['reply'] {
  return singleAttempts.get(model) ?? ((request, emit, signal) => model.reply(request, emit, signal));
}

/** How long the server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date. */
export function retryAfterMs(header: (name: string) => string | undefined, now: number): number | undefined {
  const ms = numberIn(header('retry-after-ms'));
  if (ms !== undefined) return ms;
  const value = header('retry-after');
  const seconds = numberIn(value);
  if (seconds !== undefined) return seconds * 1000;
  const until = value !== undefined && /[a-z]{3}/i.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(until) ? undefined : Math.max(0, until - now);
}

function numberIn(text: string | undefined): number | undefined {
  return text !== undefined && /^\s*\d+(\.\d+)?\s*$/.test(text) ? Number(text) : undefined;
}
