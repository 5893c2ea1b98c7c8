import type { Model, Settings } from '@treadle/core';
import { sse } from '../framing.ts';
import { baseURLOf, checkEndpoint, rejectOptions, type EndpointOptions, type OwnNames } from '../http/endpoint.ts';
import { failureOfBody } from '../http/failures.ts';
import { httpModel } from '../http/model.ts';
import { GOOGLE } from '../providers.ts';
import { signerOf, type Protocol } from '../protocol.ts';
import { googleBody, type GoogleBody, type GoogleThinking } from './body.ts';
import { decodeGoogle, endGoogle, startGoogle, stepGoogle, type GoogleStream } from './stream.ts';

const SAMPLING = ['temperature', 'topP', 'seed', 'presencePenalty', 'frequencyPenalty'] as const;
const TAKEN: readonly (keyof Settings)[] = [...SAMPLING, 'maxOutputTokens', 'stop'];

export interface GoogleOptions extends EndpointOptions {
  /**
   * How `settings.reasoning` is sent: as a `budget` of tokens to Gemini 2.5, as a `level` to newer models, and not at all
   * to models that do not think; by default derived from the name of the model.
   */
  readonly thinking?: GoogleThinking;
}

const OWN_NAMES: OwnNames<GoogleOptions> = { thinking: '' };

/** A model behind Google's Gemini API, or a host with the same API. Throws if the options are invalid. */
export function google(options: GoogleOptions): Model {
  checkEndpoint('google', options, OWN_NAMES);
  const { model, stream = true, thinking = thinkingOf(model) } = options;
  const isKnown = ['level', 'budget', 'none'].includes(thinking);
  if (!isKnown) rejectOptions('google', '"thinking" must be "level", "budget" or "none".');
  return httpModel(
    {
      factory: 'google',
      own: OWN_NAMES,
      protocol: googleProtocol({
        model,
        stream,
        thinking,
        signer: signerOf('google', baseURLOf(GOOGLE, options).baseURL),
      }),
      provider: GOOGLE,
      auth: (apiKey) => ({ 'x-goog-api-key': apiKey }),
    },
    options,
  );
}

function thinkingOf(model: string): GoogleThinking {
  if (model.includes('gemini-2.5')) return 'budget';
  return /gemini-(?![12]\b)/.test(model) ? 'level' : 'none';
}

/** The path contains the model and whether to stream. `tunedModels/…` is not below `models`. */
export function googleProtocol(body: GoogleBody & { readonly stream: boolean }): Protocol<GoogleStream> {
  const { model, stream, thinking, signer } = body;
  const resource = model.includes('/') ? model : `models/${model}`;
  return {
    path: `/${resource.split('/').map(encodeURIComponent).join('/')}:${stream ? 'streamGenerateContent' : 'generateContent'}`,
    ...(stream && { query: { alt: 'sse' } }),
    framing: sse,
    accepts: { imageDetail: false },
    takes: thinking === 'none' ? TAKEN : [...TAKEN, 'reasoning'],
    body: googleBody(body),
    start: () => startGoogle(signer),
    step: stepGoogle,
    end: endGoogle,
    decode: (text) => decodeGoogle(text, signer),
    failure: failureOfBody,
  };
}
