import type { Message, Model, ModelError, ModelReply, ModelRequest } from '@treadle/core';
import { mergeSameRole } from './conversation.ts';

/** A JSON Schema of the answer, with the options of models that can enforce it. */
export interface AnswerFormat {
  readonly schema: Readonly<Record<string, unknown>>;
  readonly name?: string;
  readonly strict?: boolean;
}

/** The fields of a request that apply to every model call. */
interface ModelCallRequest {
  /** Sent to the model. The loop validates the answer if it is strict. */
  readonly format?: AnswerFormat;
  readonly parallel: boolean;
  readonly truncation: 'auto' | 'disabled';
  /** For all replies together. */
  readonly maxOutputTokens?: number;
}

interface TokenBudget {
  /** Tokens that were generated before the run was resumed. */
  readonly usedTokens: number;
  /** The last reply before the run was resumed was cut off; default false. */
  readonly isCutOff?: boolean;
  /** Called when the tokens are used up, or when a reply was cut off: the model is not called again. */
  readonly onSpent: () => void;
}

const SPENT: ModelError = { code: 'cancelled', message: 'max_output_tokens is used up.', retryable: false };

/** The model with the settings of one request applied to every call. */
export function requestModel(
  model: Model,
  request: ModelCallRequest,
  { usedTokens, isCutOff = false, onSpent }: TokenBudget,
): Model {
  const { format, parallel, truncation, maxOutputTokens } = request;
  const { schema: output, ...outputForm } = format ?? {};
  let remaining = isCutOff ? 0 : (maxOutputTokens ?? Infinity) - usedTokens;
  /** How many messages at the beginning of the conversation are no longer sent. */
  let dropped = 0;

  /** If the conversation is too long for the model, the older half is dropped and the call is repeated. */
  async function callTruncated(modelRequest: ModelRequest, ...others: Others): Promise<ModelReply> {
    for (;;) {
      const messages = sentMessages(modelRequest.messages, dropped);
      const reply = await model.reply({ ...modelRequest, messages }, ...others);
      const isTooLong = reply.type === 'failure' && reply.error.code === 'context-length';
      const next = isTooLong && truncation === 'auto' ? nextCut(modelRequest.messages, dropped) : undefined;
      if (next === undefined) return reply;
      dropped = next;
    }
  }

  return {
    ...model,
    async reply(modelRequest, emit, signal) {
      if (remaining <= 0) {
        onSpent();
        return { type: 'failure', error: SPENT };
      }
      const settings =
        remaining === Infinity ? modelRequest.settings : { ...modelRequest.settings, maxOutputTokens: remaining };
      const reply = await callTruncated(
        { ...modelRequest, parallel, settings, ...(output && { output, outputForm }) },
        emit,
        signal,
      );
      if (reply.type === 'reply') remaining = reply.finish === 'length' ? 0 : remaining - reply.usage.outputTokens;
      return reply;
    },
  };
}

type Others = Parameters<Model['reply']> extends [unknown, ...infer Rest] ? Rest : never;

/** Returns the same array whenever possible: protocols cache what they derive from it. */
function sentMessages(messages: readonly Message[], dropped: number): readonly Message[] {
  const sent = dropped === 0 ? messages : messages.slice(dropped);
  return sent.some(({ role }, index) => role !== 'tool' && role === sent[index - 1]?.role) ? mergeSameRole(sent) : sent;
}

/** The index of the user message at which the later half after `dropped` begins; undefined if there is none. */
function nextCut(messages: readonly Message[], dropped: number): number | undefined {
  const starts = messages.flatMap(({ role }, index) => (role === 'user' && index > dropped ? index : []));
  return starts[Math.floor((starts.length - 1) / 2)];
}
