import { messageOf, type Clock, type Model, type ModelError, type ModelReply, type ModelRequest } from '@treadle/core';
import { CANCELLED, protocolFailure } from '../http/failures.ts';
import { singleAttemptOf, attemptsOf, withRetries } from '../http/retry.ts';
import type { Emit } from '../protocol.ts';
import { breaker, type BreakerOptions } from './breaker.ts';
import { turnstile, type TurnstileOptions } from './turnstile.ts';

export interface EndpointParts {
  readonly name: string;
  readonly model: Model;
  readonly limits: TurnstileOptions;
  readonly breaker: BreakerOptions | false;
  readonly maxRetries: number;
  readonly clock: Clock;
  readonly random: () => number;
}

/** One model of a router, with its own limits and breaker. Retryable failures are retried. */
export interface Endpoint {
  /** Does not retry if the wait is longer than `longestWaitMs`. */
  ask(request: ModelRequest, emit: Emit, signal: AbortSignal, longestWaitMs: number): Promise<ModelReply>;
}

export function endpoint(parts: EndpointParts): Endpoint {
  const { name, model, clock, random, maxRetries } = parts;
  const once = singleAttemptOf(model);
  const limiter = turnstile(parts.limits, clock);
  const guard = parts.breaker === false ? undefined : breaker(parts.breaker, clock);

  const skipAttempt = (error: ModelError): ModelReply => ({
    type: 'failure',
    error,
    attempts: [{ model: model.id, ms: 0, error }],
  });
  const skipWhileOpen = (): ModelReply =>
    skipAttempt({
      code: 'overloaded',
      message: `"${name}" (${model.id}) was not asked: it failed repeatedly, so it is skipped for a while.`,
      retryable: true,
    });
  const skipBeyondDeadline = (): ModelReply =>
    skipAttempt({
      code: 'rate-limit',
      message: `"${name}" (${model.id}) was not asked: its limits do not allow a request before the deadline of the run.`,
      retryable: false,
    });

  /** One attempt: waits for a slot of the limiter, then passes the breaker. */
  const attempt = async (request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply> => {
    if (guard && !guard.admits(clock.now())) return skipWhileOpen();
    const entry = await limiter.enter(signal, request.deadline ?? Infinity);
    if (entry.type === 'cancelled') return { type: 'failure', error: CANCELLED };
    if (entry.type === 'late') return skipBeyondDeadline();
    const passed = guard?.pass();
    if (passed?.type === 'open') {
      entry.leave();
      return skipWhileOpen();
    }
    const startedAt = clock.now();
    const pending = replyOf(once, request, emit, signal);
    // A cancelled request returns at once, but it occupies its slot until the model has settled. The breaker gets the
    // reply before the slot becomes free.
    void pending.then((reply) => {
      passed?.report(reply);
      entry.leave();
    });
    const reply = await unlessCancelled(pending, signal);
    passed?.report(reply);
    return { ...reply, attempts: attemptsOf(reply, model.id, clock.now() - startedAt) };
  };

  return {
    ask: (request, emit, signal, longestWaitMs) =>
      withRetries(
        {
          maxRetries,
          model: model.id,
          clock,
          random,
          deadline: request.deadline,
          worthwhile: (ms) => ms <= longestWaitMs && (guard?.admits(clock.now() + ms) ?? true),
        },
        (emit) => attempt(request, emit, signal),
        emit,
        signal,
      ),
  };
}

/** A failure if the model throws or does not return a reply, so that its slot becomes free in any case. */
async function replyOf(
  once: Model['reply'],
  request: ModelRequest,
  emit: Emit,
  signal: AbortSignal,
): Promise<ModelReply> {
  try {
    const reply = await once(request, (delta) => (signal.aborted ? undefined : emit(delta)), signal);
    if (reply?.type === 'reply' || typeof reply?.error?.message === 'string') return reply;
  } catch (thrown) {
    return {
      type: 'failure',
      error: { ...protocolFailure(`The model threw: ${messageOf(thrown)}`), retryable: false },
    };
  }
  return { type: 'failure', error: { ...protocolFailure('The model returned no reply.'), retryable: false } };
}

function unlessCancelled(pending: Promise<ModelReply>, signal: AbortSignal): Promise<ModelReply> {
  return new Promise((resolve) => {
    const cancel = (): void => resolve({ type: 'failure', error: CANCELLED });
    if (signal.aborted) return cancel();
    signal.addEventListener('abort', cancel, { once: true });
    void pending.then((reply) => {
      signal.removeEventListener('abort', cancel);
      resolve(reply);
    });
  });
}
