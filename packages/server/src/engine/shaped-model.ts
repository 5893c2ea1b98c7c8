import type { Message, Model, ModelError, ModelReply, ModelRequest } from '@treadle/core';
import type { AnswerForm } from '../responses/request.ts';
import { alternating } from './alternating.ts';

/** What a request says of every reply, beyond what the loop itself goes by. */
export interface Shape {
  /** The form of the answer. Unlike the loop's own `output` it is asked of the model, and not checked here. */
  readonly format?: AnswerForm;
  /** False: the model is asked for one call at a time. */
  readonly parallel: boolean;
  /** A conversation that is too long for the model loses its beginning. */
  readonly truncates: boolean;
  /** Of all replies together. */
  readonly maxOutputTokens?: number;
  /** Of those, used up before. */
  readonly usedTokens: number;
  /** The tokens are used up, or a reply was cut off: no further one is to be had. */
  readonly onSpent: () => void;
}

const SPENT: ModelError = { code: 'cancelled', message: 'max_output_tokens is used up.', retryable: false };

/** The model as one response sees it. */
export function shaped(model: Model, shape: Shape): Model {
  const { format, parallel, truncates, maxOutputTokens, usedTokens, onSpent } = shape;
  const { schema: output, ...outputForm } = format ?? {};
  let left = maxOutputTokens === undefined ? Infinity : maxOutputTokens - usedTokens;
  /** How many messages of the beginning it is not shown any more. */
  let dropped = 0;

  /** A longer conversation than the model takes is shown again without the older half of it. */
  async function ask(request: ModelRequest, ...others: Others): Promise<ModelReply> {
    for (;;) {
      const reply = await model.reply({ ...request, messages: shown(request.messages, dropped) }, ...others);
      const isTooLong = reply.type === 'failure' && reply.error.code === 'context-length';
      const next = isTooLong && truncates ? cutAfter(request.messages, dropped) : undefined;
      if (next === undefined) return reply;
      dropped = next;
    }
  }

  return {
    ...model,
    async reply(request, emit, signal) {
      if (left <= 0) {
        onSpent();
        return { type: 'failure', error: SPENT };
      }
      const settings = left === Infinity ? request.settings : { ...request.settings, maxOutputTokens: left };
      const reply = await ask({ ...request, parallel, settings, ...(output && { output, outputForm }) }, emit, signal);
      if (reply.type === 'reply') left = reply.finish === 'length' ? 0 : left - reply.usage.outputTokens;
      return reply;
    },
  };
}

type Others = Parameters<Model['reply']> extends [unknown, ...infer Rest] ? Rest : never;

/** The very list as long as it can be: protocols keep what they have made of it. */
function shown(messages: readonly Message[], dropped: number): readonly Message[] {
  const left = dropped === 0 ? messages : messages.slice(dropped);
  return left.some(({ role }, index) => role !== 'tool' && role === left[index - 1]?.role) ? alternating(left) : left;
}

/** Where the later half of the user's words after `dropped` begins; undefined if there are none. */
function cutAfter(messages: readonly Message[], dropped: number): number | undefined {
  const starts = messages.flatMap(({ role }, index) => (role === 'user' && index > dropped ? index : []));
  return starts[Math.floor((starts.length - 1) / 2)];
}
