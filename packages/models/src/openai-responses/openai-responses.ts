import type { Model } from '@treadle/core';
import { sse } from '../framing/sse.ts';
import type { EndpointOptions } from '../http/endpoint.ts';
import { httpModel } from '../http/model.ts';
import { failureOfBody } from '../http/provider-failures.ts';
import type { Protocol } from '../protocol.ts';
import { signerOf } from '../signer.ts';
import { responsesBody, type ResponsesBody } from './body.ts';
import { decodeResponses, endResponses, startResponses, stepResponses, type ResponsesStream } from './stream.ts';

export interface OpenAiResponsesOptions extends EndpointOptions {
  /** Whether the provider keeps the responses; default false. The whole history is sent either way. */
  readonly store?: boolean;
  /**
   * Whether to ask for reasoning in encrypted form, so that the next turn can build on it. By default where nothing is
   * stored, but not with models of OpenAI that do not reason: those refuse the question.
   */
  readonly encryptedReasoning?: boolean;
  /** How to sum up the reasoning for people to read; not at all by default. */
  readonly reasoningSummary?: 'auto' | 'concise' | 'detailed';
  /** Whether arguments and typed answers must keep to their schema. Needs schemas in OpenAI's strict subset. */
  readonly strict?: boolean;
}

const BASE_URL = 'https://api.openai.com/v1';
const WITHOUT_REASONING = /(^|[/:])(chatgpt-|gpt-[34]|gpt-5[\w.]*-chat)/;

/** A model behind OpenAI's Responses API, or a host that offers the same. Throws if the options cannot work. */
export function openaiResponses(options: OpenAiResponsesOptions): Model {
  const { model, baseURL = BASE_URL, stream = true, store = false, strict = false, reasoningSummary } = options ?? {};
  const encryptedReasoning = options?.encryptedReasoning ?? (!store && !WITHOUT_REASONING.test(model));
  return httpModel(
    {
      factory: 'openaiResponses',
      protocol: openaiResponsesProtocol({
        model,
        stream,
        store,
        encryptedReasoning,
        strict,
        signer: signerOf('openai-responses', baseURL),
        ...(reasoningSummary && { reasoningSummary }),
      }),
      baseURL: BASE_URL,
      auth: (apiKey) => ({ authorization: `Bearer ${apiKey}` }),
    },
    options,
  );
}

export function openaiResponsesProtocol(body: ResponsesBody): Protocol<ResponsesStream> {
  return {
    path: '/responses',
    framing: sse,
    body: responsesBody(body),
    start: () => startResponses(body.signer),
    step: stepResponses,
    end: endResponses,
    decode: (text) => decodeResponses(text, body.signer),
    failure: failureOfBody,
  };
}
