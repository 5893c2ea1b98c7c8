import type { JsonSchema, Model, ModelError } from '@treadle/core';

/** What a request says of every reply, beyond what the loop itself goes by. */
export interface Shape {
  /** The form of the answer. Unlike the loop's own `output` it is asked of the model, and not checked here. */
  readonly format?: JsonSchema;
  /** False: the model is asked for one call at a time. */
  readonly parallel: boolean;
  /** Of all replies together. */
  readonly maxOutputTokens?: number;
  /** Of those, used up before. */
  readonly usedTokens: number;
  /** The tokens are used up, or a reply was cut off: no further one is to be had. */
  readonly onSpent: () => void;
}

const SPENT: ModelError = { code: 'cancelled', message: 'max_output_tokens is used up.', retryable: false };

/** The model as one response sees it. */
export function shaped(model: Model, { format, parallel, maxOutputTokens, usedTokens, onSpent }: Shape): Model {
  let left = maxOutputTokens === undefined ? Infinity : maxOutputTokens - usedTokens;
  return {
    ...model,
    async reply(request, emit, signal) {
      if (left <= 0) {
        onSpent();
        return { type: 'failure', error: SPENT };
      }
      const settings = left === Infinity ? request.settings : { ...request.settings, maxOutputTokens: left };
      const asked = { ...request, parallel, settings, ...(format && { output: format }) };
      const reply = await model.reply(asked, emit, signal);
      if (reply.type === 'reply') left = reply.finish === 'length' ? 0 : left - reply.usage.outputTokens;
      return reply;
    },
  };
}
