import type { Attempt, Model, ModelReply } from '../model.ts';

/**
 * A model that repeats a call which failed and may succeed, such as after a network error. After a delta was emitted there is no
 * repetition: a listener would get the beginning of the answer twice.
 */
export function retriedModel(model: Model, retries: number): Model {
  if (retries === 0) return model;
  return {
    ...model,
    async reply(request, emit, signal) {
      const failed: Attempt[] = [];
      let hasEmitted = false;
      const emitDelta: typeof emit = (delta) => {
        hasEmitted = true;
        return emit(delta);
      };
      for (let left = retries; ; left--) {
        const reply = await model.reply(request, emitDelta, signal);
        const isFinal = reply.type === 'reply' || left === 0 || hasEmitted || signal.aborted || !reply.error.retryable;
        if (isFinal) return withAttempts(reply, failed);
        failed.push(...(reply.attempts ?? [{ model: model.id, ms: 0, error: reply.error }]));
      }
    },
  };
}

function withAttempts(reply: ModelReply, failed: readonly Attempt[]): ModelReply {
  return failed.length === 0 ? reply : { ...reply, attempts: [...failed, ...(reply.attempts ?? [])] };
}
