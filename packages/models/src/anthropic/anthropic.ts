import { TreadleError, type Model } from '@treadle/core';
import { sse } from '../framing/sse.ts';
import { checkEndpoint, type EndpointOptions } from '../http/endpoint.ts';
import { httpModel } from '../http/model.ts';
import type { Protocol } from '../protocol.ts';
import { messagesBody, type MessagesBody } from './body.ts';
import { failureOfBody } from './failures.ts';
import { decodeMessage, endMessage, startMessage, stepMessage, type MessageStream } from './stream.ts';
import { thinkingForm, type ThinkingForm } from './thinking.ts';

const BASE_URL = 'https://api.anthropic.com/v1';
const VERSION = '2023-06-01';

export interface AnthropicOptions extends EndpointOptions {
  /** Of the API; default `2023-06-01`. */
  readonly version?: string;
  /** Names of betas to take part in. */
  readonly betas?: readonly string[];
  /**
   * Ask for prompt caching; default true. Each turn of a loop repeats all turns before it: what is repeated then costs a
   * tenth, for a quarter more when it is first sent. Set false for single questions, or for a host that knows no marks.
   */
  readonly cache?: boolean;
  /** How `settings.reasoning` is put; told from the name of the model unless given. */
  readonly thinking?: ThinkingForm;
}

/** A model behind Anthropic's Messages API, at Anthropic or at any host that offers the same. Throws if the options cannot work. */
export function anthropic(options: AnthropicOptions): Model {
  checkEndpoint('anthropic', options);
  const { model, stream = true, version = VERSION, betas = [], cache = true } = options;
  const { thinking = thinkingForm(model) } = options;
  if (!Array.isArray(betas)) {
    throw new TreadleError('invalid-options', 'anthropic: "betas" must be a list of names.');
  }
  if (thinking !== 'adaptive' && thinking !== 'budget') {
    throw new TreadleError('invalid-options', 'anthropic: "thinking" must be "adaptive" or "budget".');
  }
  const headers = {
    'anthropic-version': version,
    ...(betas.length > 0 && { 'anthropic-beta': betas.join(',') }),
    ...options.headers,
  };
  return httpModel(
    {
      factory: 'anthropic',
      protocol: anthropicProtocol({ model, stream, thinking, cache }),
      baseURL: BASE_URL,
      auth: (apiKey) => ({ 'x-api-key': apiKey }),
    },
    { ...options, headers },
  );
}

export function anthropicProtocol(body: MessagesBody): Protocol<MessageStream> {
  return {
    path: '/messages',
    framing: sse,
    body: messagesBody(body),
    start: startMessage,
    step: stepMessage,
    end: endMessage,
    decode: decodeMessage,
    failure: failureOfBody,
  };
}
