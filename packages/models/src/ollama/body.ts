import type { ModelRequest, Settings, ToolSpec } from '@treadle/core';
import { allowedOf } from '../allowed-tools.ts';
import { instructionsWithForm } from '../answer-form.ts';
import { listOfMessages } from '../body.ts';
import { messagesBody } from '../messages-body.ts';
import { wireMessage } from './messages.ts';

export interface OllamaBody {
  readonly model: string;
  readonly stream: boolean;
  readonly contextTokens?: number | undefined;
  readonly keepAlive?: string | number | undefined;
  readonly think?: Think | undefined;
}

export type Think = boolean | 'low' | 'medium' | 'high';

const histories = listOfMessages(wireMessage);

export function ollamaBody(body: OllamaBody): (request: ModelRequest) => Uint8Array {
  return messagesBody({
    model: body.model,
    histories,
    system: instructionsWithForm,
    tools: offered,
    rest: (request) => restOf(body, request),
  });
}

/**
 * There is no tool choice. What the server is not told of the model cannot call, so the tools that are ruled out are
 * left out: with `none` all of them, which is the only way to get an answer in words, with a named one all others. That
 * a call is demanded cannot be said: the loop sees whether it came and asks again. Nor can it be said that calls should
 * come one at a time.
 */
function offered(request: ModelRequest): readonly ToolSpec[] {
  const { tools, toolChoice } = request;
  if (toolChoice === 'none') return [];
  if (typeof toolChoice === 'object') return tools.filter(({ name }) => name === toolChoice.tool);
  return allowedOf(request);
}

/**
 * `truncate` and `shift` off: what does not fit is refused, and the loop can shorten the conversation. On, which is the
 * default, the server drops the oldest messages without a word.
 */
function restOf(
  { model, stream, contextTokens, keepAlive, think }: OllamaBody,
  request: ModelRequest,
): Record<string, unknown> {
  const { settings, output } = request;
  return {
    stream,
    truncate: false,
    shift: false,
    think: thinkFor(model, settings) ?? think,
    // A schema is held to token by token, which leaves no way to call a tool.
    format: offered(request).length === 0 ? output : undefined,
    keep_alive: keepAlive,
    options: {
      temperature: settings.temperature,
      num_predict: settings.maxOutputTokens,
      top_p: settings.topP,
      stop: settings.stop,
      seed: settings.seed,
      num_ctx: contextTokens,
    },
  };
}

/** Only gpt-oss has levels, and takes nothing else; other models are refused them. */
function thinkFor(model: string, { reasoning }: Settings): Think | undefined {
  if (reasoning === undefined) return undefined;
  return /gpt-?oss/i.test(model) ? reasoning : true;
}
