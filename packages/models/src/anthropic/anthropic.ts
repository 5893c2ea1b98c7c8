import { TreadleError, type Model } from '@treadle/core';
import { sse } from '../framing/sse.ts';
import { checkEndpoint, type EndpointOptions } from '../http/endpoint.ts';
import { httpModel } from '../http/model.ts';
import type { Protocol } from '../protocol.ts';
import { signerOf } from '../signer.ts';
import { anthropicBody, type AnthropicBody } from './body.ts';
import { failureOfBody } from './failures.ts';
import { traitsOf, type ThinkingForm } from './models.ts';
import { decodeMessage, endMessage, startMessage, stepMessage, type MessageStream } from './stream.ts';
import type { ThinkingDisplay } from './thinking.ts';

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
  /**
   * Whether thoughts are shown. Models before Claude Opus 4.7 show them unless told otherwise, newer ones do not. Either
   * way they go back to the model.
   */
  readonly thinkingDisplay?: ThinkingDisplay;
  /**
   * Whether the model can be made to call a tool; told from its name unless given. Where it cannot, it is left to the
   * model, and the loop asks again if no call came.
   */
  readonly forcedTools?: boolean;
  /** Whether the model takes `temperature` and `topP`; told from its name unless given. Where not, they are left out. */
  readonly sampling?: boolean;
}

/** A model behind Anthropic's Messages API, at Anthropic or at any host that offers the same. Throws if the options cannot work. */
export function anthropic(options: AnthropicOptions): Model {
  checkEndpoint('anthropic', options);
  const { model, baseURL = BASE_URL, stream = true, version = VERSION, betas = [], cache = true } = options;
  const known = traitsOf(model);
  const { thinking = known.thinking, forcedTools = known.forcedTools, sampling = known.sampling } = options;
  const { thinkingDisplay } = options;
  if (!Array.isArray(betas)) {
    throw new TreadleError('invalid-options', 'anthropic: "betas" must be a list of names.');
  }
  if (thinking !== 'adaptive' && thinking !== 'budget') {
    throw new TreadleError('invalid-options', 'anthropic: "thinking" must be "adaptive" or "budget".');
  }
  if (thinkingDisplay !== undefined && thinkingDisplay !== 'summarized' && thinkingDisplay !== 'omitted') {
    throw new TreadleError('invalid-options', 'anthropic: "thinkingDisplay" must be "summarized" or "omitted".');
  }
  const headers = {
    'anthropic-version': version,
    ...(betas.length > 0 && { 'anthropic-beta': betas.join(',') }),
    ...options.headers,
  };
  return httpModel(
    {
      factory: 'anthropic',
      protocol: anthropicProtocol({
        model,
        stream,
        cache,
        thinking,
        thinkingDisplay,
        thinksUnasked: known.thinksUnasked,
        forcedTools,
        sampling,
        signer: signerOf('anthropic', baseURL),
      }),
      baseURL: BASE_URL,
      auth: (apiKey) => ({ 'x-api-key': apiKey }),
    },
    { ...options, headers },
  );
}

export function anthropicProtocol(body: AnthropicBody): Protocol<MessageStream> {
  return {
    path: '/messages',
    framing: sse,
    body: anthropicBody(body),
    start: () => startMessage(body.signer),
    step: stepMessage,
    end: endMessage,
    decode: (text) => decodeMessage(text, body.signer),
    failure: failureOfBody,
  };
}
