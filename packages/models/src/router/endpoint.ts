import { messageOf, type Clock, type Model, type ModelError, type ModelReply, type ModelRequest } from '@treadle/core';
import { CANCELLED, misunderstood } from '../http/failures.ts';
import { askOnce, attemptsOf, withRetries } from '../http/retry.ts';
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

/** One model of a router, behind its own limits and breaker, asked until it answers or there is no sense in it. */
export interface Endpoint {
  /** `longestWaitMs`: a retry that has to wait for longer is not made. */
  ask(request: ModelRequest, emit: Emit, signal: AbortSignal, longestWaitMs: number): Promise<ModelReply>;
}

export function endpoint(parts: EndpointParts): Endpoint {
  const { name, model, clock, random, maxRetries } = parts;
  const once = askOnce(model);
  const gate = turnstile(parts.limits, clock);
  const guard = parts.breaker === false ? undefined : breaker(parts.breaker, clock);

  const notAsked = (error: ModelError): ModelReply => ({
    type: 'failure',
    error,
    attempts: [{ model: model.id, ms: 0, error }],
  });
  const down = (): ModelReply =>
    notAsked({
      code: 'overloaded',
      message: `"${name}" (${model.id}) was not asked: it has failed again and again, and is left alone for a while.`,
      retryable: true,
    });
  const late = (): ModelReply =>
    notAsked({
      code: 'rate-limit',
      message: `"${name}" (${model.id}) was not asked: its limits do not allow it before the run's time is up.`,
      retryable: false,
    });

  /** One attempt. It takes its place in the queue first, and then looks whether the endpoint is up. */
  const attempt = async (request: ModelRequest, emit: Emit, signal: AbortSignal): Promise<ModelReply> => {
    if (guard && !guard.admits(clock.now())) return down();
    const entry = await gate.enter(signal, request.deadline ?? Infinity);
    if (entry.type === 'cancelled') return { type: 'failure', error: CANCELLED };
    if (entry.type === 'late') return late();
    const passed = guard?.pass();
    if (passed?.type === 'open') {
      entry.leave();
      return down();
    }
    const began = clock.now();
    const asked = replyOf(once, request, emit, signal);
    // Whoever cancels does not wait, but the place is taken until the model has really ended. Before the next one may
    // go in, the breaker has to know.
    void asked.then((reply) => {
      passed?.told(reply);
      entry.leave();
    });
    const reply = await unlessCancelled(asked, signal);
    passed?.told(reply);
    return { ...reply, attempts: attemptsOf(reply, model.id, clock.now() - began) };
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

/** A model that throws or gives something else has broken its contract; that must not cost us a place for good. */
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
    return { type: 'failure', error: { ...misunderstood(`The model threw: ${messageOf(thrown)}`), retryable: false } };
  }
  return { type: 'failure', error: { ...misunderstood('The model gave no reply.'), retryable: false } };
}

function unlessCancelled(asked: Promise<ModelReply>, signal: AbortSignal): Promise<ModelReply> {
  return new Promise((resolve) => {
    const cancel = (): void => resolve({ type: 'failure', error: CANCELLED });
    if (signal.aborted) return cancel();
    signal.addEventListener('abort', cancel, { once: true });
    void asked.then((reply) => {
      signal.removeEventListener('abort', cancel);
      resolve(reply);
    });
  });
}
