import type { Model, Settings } from '@treadle/core';
import { sse } from '../framing.ts';
import { baseURLOf, checkEndpoint, rejectOptions, type EndpointOptions, type OwnNames } from '../http/endpoint.ts';
import { httpModel } from '../http/model.ts';
import { ANTHROPIC } from '../providers.ts';
import { signerOf, type Protocol } from '../protocol.ts';
import { anthropicBody, omittedSampling, type AnthropicBody } from './body.ts';
import { traitsOf, type ThinkingForm } from './models.ts';
import {
  decodeAnthropic,
  endAnthropic,
  failureOfAnthropicBody,
  startAnthropic,
  stepAnthropic,
  type AnthropicStream,
} from './stream.ts';
import type { ThinkingDisplay } from './thinking.ts';

const VERSION = '2023-06-01';

const TAKEN: readonly (keyof Settings)[] = ['maxOutputTokens', 'stop', 'reasoning'];
const TAKEN_WITH_SAMPLING: readonly (keyof Settings)[] = [...TAKEN, 'temperature', 'topP'];

export interface AnthropicOptions extends EndpointOptions {
  /** The version of the API; default `2023-06-01`. */
  readonly version?: string;
  /** Names of betas to enable. */
  readonly betas?: readonly string[];
  /**
   * Whether to use prompt caching; default true. Each turn of a loop repeats all earlier turns. With caching a repeated
   * token costs a tenth of its price, and a quarter more than its price when it is first sent. Set false for single
   * questions, or for a host without prompt caching.
   */
  readonly cache?: boolean;
  /** How `settings.reasoning` is sent; by default derived from the name of the model. */
  readonly thinking?: ThinkingForm;
  /**
   * Whether thoughts are shown. Models before Claude Opus 4.7 show them by default, newer ones do not. Either way they are
   * sent back to the model.
   */
  readonly thinkingDisplay?: ThinkingDisplay;
  /**
   * Whether the model can be forced to call a tool; by default derived from its name. If it cannot, the model decides, and
   * the loop asks again if no call came.
   */
  readonly forcedTools?: boolean;
  /** Whether the model accepts `temperature` and `topP`; by default derived from its name. If not, they are omitted. */
  readonly sampling?: boolean;
}

const OWN_NAMES: OwnNames<AnthropicOptions> = {
  version: 'string',
  betas: '',
  cache: 'boolean',
  thinking: '',
  thinkingDisplay: '',
  forcedTools: 'boolean',
  sampling: 'boolean',
};

/** A model behind Anthropic's Messages API, or a host with the same API. Throws if the options are invalid. */
export function anthropic(options: AnthropicOptions): Model {
  checkEndpoint('anthropic', options, OWN_NAMES);
  const { model, stream = true, version = VERSION, betas = [], cache = true } = options;
  const known = traitsOf(model);
  const { thinking = known.thinking, forcedTools = known.forcedTools, sampling = known.sampling } = options;
  const { thinkingDisplay } = options;
  if (!Array.isArray(betas)) rejectOptions('anthropic', '"betas" must be a list of names.');
  if (thinking !== 'adaptive' && thinking !== 'budget') {
    rejectOptions('anthropic', '"thinking" must be "adaptive" or "budget".');
  }
  if (thinkingDisplay !== undefined && thinkingDisplay !== 'summarized' && thinkingDisplay !== 'omitted') {
    rejectOptions('anthropic', '"thinkingDisplay" must be "summarized" or "omitted".');
  }
  const headers = {
    'anthropic-version': version,
    ...(betas.length > 0 && { 'anthropic-beta': betas.join(',') }),
    ...options.headers,
  };
  return httpModel(
    {
      factory: 'anthropic',
      own: OWN_NAMES,
      protocol: anthropicProtocol({
        model,
        stream,
        cache,
        thinking,
        thinkingDisplay,
        thinksByDefault: known.thinksByDefault,
        forcedTools,
        sampling,
        signer: signerOf('anthropic', baseURLOf(ANTHROPIC, options).baseURL),
      }),
      provider: ANTHROPIC,
      auth: (apiKey) => ({ 'x-api-key': apiKey }),
    },
    { ...options, headers },
  );
}

export function anthropicProtocol(body: AnthropicBody): Protocol<AnthropicStream> {
  return {
    path: '/messages',
    framing: sse,
    accepts: { fileUrls: 'pdf', imageDetail: false },
    takes: body.sampling ? TAKEN_WITH_SAMPLING : TAKEN,
    omits: omittedSampling,
    body: anthropicBody(body),
    start: () => startAnthropic(body.signer),
    step: stepAnthropic,
    end: endAnthropic,
    decode: (text) => decodeAnthropic(text, body.signer),
    failure: failureOfAnthropicBody,
  };
}
