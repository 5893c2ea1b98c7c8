import type { Model, Settings } from '@treadle/core';
import { sse } from '../framing.ts';
import { baseURLOf, type EndpointOptions, type OwnNames } from '../http/endpoint.ts';
import { failureOfBody } from '../http/failures.ts';
import { httpModel } from '../http/model.ts';
import { OPENAI } from '../providers.ts';
import { signerOf, type Protocol } from '../protocol.ts';
import { responsesBody, type ResponsesBody } from './body.ts';
import { decodeResponses, endResponses, startResponses, stepResponses, type ResponsesStream } from './stream.ts';

export interface OpenAiResponsesOptions extends EndpointOptions {
  /** Whether the provider stores the responses; default false. The whole history is sent either way. */
  readonly store?: boolean;
  /**
   * Whether to request encrypted reasoning, so that the next turn can build on it. By default if nothing is stored, except
   * for models of OpenAI that do not reason: those reject the request.
   */
  readonly encryptedReasoning?: boolean;
  /** The form of a readable summary of the reasoning; none by default. */
  readonly reasoningSummary?: 'auto' | 'concise' | 'detailed';
  /** Whether the provider enforces the schemas of arguments and answers. They must be in OpenAI's strict subset. */
  readonly strict?: boolean;
  /** False: the host has no tools that take a text, so they are sent as functions. Default true. */
  readonly customTools?: boolean;
}

const OWN_NAMES: OwnNames<OpenAiResponsesOptions> = {
  store: 'boolean',
  encryptedReasoning: 'boolean',
  reasoningSummary: '',
  strict: 'boolean',
  customTools: 'boolean',
};

/** The API has no stop sequences, seed, penalties and biases. */
const TAKEN: readonly (keyof Settings)[] = [
  'temperature',
  'maxOutputTokens',
  'topP',
  'reasoning',
  'serviceTier',
  'promptCacheKey',
  'verbosity',
  'topLogprobs',
];

const WITHOUT_REASONING = /(^|[/:])(chatgpt-|gpt-[34]|gpt-5[\w.]*-chat)/;

/** A model behind OpenAI's Responses API, or a host with the same API. Throws if the options are invalid. */
export function openaiResponses(options: OpenAiResponsesOptions): Model {
  const { model, stream = true, store = false, strict = false, reasoningSummary } = options ?? {};
  const encryptedReasoning = options?.encryptedReasoning ?? (!store && !WITHOUT_REASONING.test(model));
  return httpModel(
    {
      factory: 'openaiResponses',
      own: OWN_NAMES,
      protocol: openaiResponsesProtocol({
        model,
        stream,
        store,
        encryptedReasoning,
        strict,
        customTools: options?.customTools ?? true,
        signer: signerOf('openai-responses', baseURLOf(OPENAI, options).baseURL),
        ...(reasoningSummary && { reasoningSummary }),
      }),
      provider: OPENAI,
      auth: (apiKey) => ({ authorization: `Bearer ${apiKey}` }),
    },
    options,
  );
}

export function openaiResponsesProtocol(body: ResponsesBody): Protocol<ResponsesStream> {
  return {
    path: '/responses',
    framing: sse,
    takes: TAKEN,
    body: responsesBody(body),
    start: () => startResponses(body.signer),
    step: stepResponses,
    end: endResponses,
    decode: (text) => decodeResponses(text, body.signer),
    failure: failureOfBody,
  };
}
